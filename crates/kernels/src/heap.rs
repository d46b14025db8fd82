//! What the allocator does with memory that is given back.

/// Lets the process keep up to [`KEPT`] bytes that it has freed, where the system's allocator would give each large
/// buffer back and fetch it anew, page by page, for the next step. For programs, at their start; it changes how all of
/// the process allocates. Does something with glibc only.
pub fn keep_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: this sets a threshold of the allocator, which takes it at any time; what it refuses stays as it was.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, LARGEST);
        }
        keep(KEPT, STEP);
    }
}

/// Gives the system back what the process has freed and kept: after something large has gone that does not come again soon, and
/// on the thread that had it, because every thread may have a heap of its own. Does something with glibc only.
pub fn give_freed_memory_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // What is free at the end of a thread's own heap goes only when the thread gives back something large beside it.
        keep(0, 0);
        // SAFETY: the buffer is the allocator's own or none, and is given back once; nobody else knows it.
        unsafe { libc::free(std::hint::black_box(libc::malloc(BESIDE))) };
        // SAFETY: it may be called at any time, from any thread; what is in use stays.
        unsafe {
            libc::malloc_trim(0);
        }
        keep(KEPT, STEP);
    }
}

/// How many free bytes stay at the end of a heap, and how far it grows at once.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn keep(free: i32, step: i32) {
    // SAFETY: these set thresholds of the allocator, which takes them at any time; what it refuses stays as it was.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, free);
        libc::mallopt(libc::M_TOP_PAD, step);
    }
}

/// Bytes of a buffer for which the allocator looks at the end of its heap when it is freed: more than 64 KiB.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const BESIDE: usize = 256 << 10;
/// The largest buffer that is kept: glibc's own limit.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LARGEST: i32 = 32 << 20;
/// Free bytes at the end of the heap that are kept.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const KEPT: i32 = 256 << 20;
/// How far the heap grows at once: addresses alone, which take no memory until they are written to. A large page is given
/// only where all of it belongs to the heap already.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const STEP: i32 = 16 << 20;
