//! What the allocator does with memory that is given back.

/// Lets the process keep up to [`KEPT`] bytes that it has freed, where the system's allocator would give each large
/// buffer back and fetch it anew, page by page, for the next step. For programs, at their start; it changes how all of
/// the process allocates. Does something with glibc only.
pub fn keep_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: these set thresholds of the allocator, which takes them at any time; what it refuses stays as it was.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, LARGEST);
            libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT);
            libc::mallopt(libc::M_TOP_PAD, STEP);
        }
    }
}

/// Gives the system back what the process has freed and kept: after something large has gone that does not come again soon.
/// Does something with glibc only.
pub fn give_freed_memory_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: it may be called at any time, from any thread; what is in use stays.
        unsafe {
            libc::malloc_trim(0);
        }
    }
}

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
