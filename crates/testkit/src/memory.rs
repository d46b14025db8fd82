//! How much memory a piece of work takes, in programs whose allocator counts.

use std::sync::{Mutex, MutexGuard};

/// The allocator that counts. A test program that measures makes it its own:
/// `#[global_allocator] static ALLOCATOR: PeakAlloc = PeakAlloc;`
pub use peak_alloc::PeakAlloc;

/// Tests of one program share its memory: only one at a time is measured.
static ALONE: Mutex<()> = Mutex::new(());

/// Keeps other tests from measuring (and, where they too ask for it, from working) at the same time.
pub fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// What `work` gives, and the most bytes that were allocated during it beyond those before.
pub fn peak_of<T>(work: impl FnOnce() -> T) -> (T, u64) {
    PeakAlloc.reset_peak_usage();
    let before = PeakAlloc.current_usage();
    let result = work();
    (result, PeakAlloc.peak_usage().saturating_sub(before) as u64)
}
