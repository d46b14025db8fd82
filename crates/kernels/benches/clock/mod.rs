//! The clock of the benchmarks.

use attend_kernels::{set_threads, threads};
use std::time::Instant;

/// With `--cpu` among the arguments: one thread from here on.
pub fn choose() {
    if std::env::args().any(|arg| arg == "--cpu") {
        set_threads(1);
    }
}

/// Seconds: of the thread where it works alone, which other work on the machine disturbs less; else by the clock.
pub fn now() -> f64 {
    if threads() > 1 {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        return START.get_or_init(Instant::now).elapsed().as_secs_f64();
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to a structure of its own type.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}
