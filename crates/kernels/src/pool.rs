//! A pool of threads for short parallel regions.
//!
//! Tasks are claimed one by one from a counter, so that a worker which the system has put aside costs only its own
//! task; idle workers spin for a tenth of a millisecond before they sleep, because the regions of one layer follow
//! each other closely. The caller works too, and never waits for a worker that has not entered the region.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::*};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How long an idle thread looks for work before it sleeps.
const SPIN: Duration = Duration::from_micros(100);

/// More threads than this help nobody and may exhaust the system.
const MOST_THREADS: usize = 1024;

/// One parallel region; lives on the stack of the thread that called [`parallel`].
struct Job<'a> {
    next: AtomicUsize,
    tasks: usize,
    body: &'a (dyn Fn(usize) + Sync),
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Job<'_> {
    /// Claims and runs tasks until none is left.
    fn work(&self) {
        loop {
            let task = self.next.fetch_add(1, Relaxed);
            if task >= self.tasks {
                return;
            }
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| (self.body)(task))) {
                // No point in running the rest; `tasks` itself leaves room for the counter to go on.
                self.next.store(self.tasks, Relaxed);
                lock(&self.panic).get_or_insert(payload);
            }
        }
    }
}

/// What the workers and the callers share.
struct Pool {
    threads: AtomicUsize,
    /// Held by the caller whose region runs; counts the workers that were started.
    spawned: Mutex<usize>,
    /// Grows by one with every region: what idle workers watch.
    epoch: AtomicUsize,
    /// The region that runs; null between regions.
    job: AtomicPtr<Job<'static>>,
    /// Workers that may be looking at `job`. The caller nulls `job`, then waits for 0.
    inside: AtomicUsize,
    sleepers: AtomicUsize,
    bell: (Mutex<()>, Condvar),
    caller_waits: AtomicBool,
    done: (Mutex<()>, Condvar),
    /// Where the workers stay that `set_threads` has made superfluous.
    bench: (Mutex<()>, Condvar),
}

thread_local! {
    /// Set on workers, and on a caller while its region runs: a region inside it runs inline.
    static IN_REGION: Cell<bool> = const { Cell::new(false) };
}

/// A poisoned lock guards nothing that a panic could have left half done here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pool() -> &'static Pool {
    static POOL: OnceLock<Pool> = OnceLock::new();
    POOL.get_or_init(|| Pool {
        threads: AtomicUsize::new(default_threads()),
        spawned: Mutex::new(0),
        epoch: AtomicUsize::new(0),
        job: AtomicPtr::new(ptr::null_mut()),
        inside: AtomicUsize::new(0),
        sleepers: AtomicUsize::new(0),
        bell: Default::default(),
        caller_waits: AtomicBool::new(false),
        done: Default::default(),
        bench: Default::default(),
    })
}

/// Sets how many threads work on a region, the caller included; takes effect at the next region. 0 means the default.
pub fn set_threads(n: usize) {
    let n = if n == 0 { default_threads() } else { n.min(MOST_THREADS) };
    let pool = pool();
    let _guard = lock(&pool.bench.0);
    pool.threads.store(n, SeqCst);
    pool.bench.1.notify_all();
}

/// How many threads work on a region, the caller included.
pub fn threads() -> usize {
    pool().threads.load(Relaxed)
}

/// Runs `body(0)` .. `body(tasks - 1)`, each once, on the pool and the calling thread; returns when all are done.
///
/// A call from inside a task, or while another thread's region runs, works alone on the calling thread.
///
/// # Panics
/// With the first panic of a task, after every task that had begun has ended.
pub fn parallel(tasks: usize, body: impl Fn(usize) + Sync) {
    let pool = pool();
    let helpers = threads().min(tasks).saturating_sub(1);
    if helpers == 0 || IN_REGION.get() {
        return (0..tasks).for_each(body);
    }
    let Ok(mut spawned) = pool.spawned.try_lock().or_else(|error| match error {
        std::sync::TryLockError::Poisoned(poisoned) => Ok(poisoned.into_inner()),
        std::sync::TryLockError::WouldBlock => Err(()),
    }) else {
        return (0..tasks).for_each(body);
    };
    spawn_up_to(threads() - 1, &mut spawned);
    let job = Job { next: AtomicUsize::new(0), tasks, body: &body, panic: Mutex::new(None) };
    IN_REGION.set(true);
    run(pool, &job);
    IN_REGION.set(false);
    drop(spawned);
    if let Some(payload) = job.panic.into_inner().unwrap_or_else(PoisonError::into_inner) {
        resume_unwind(payload);
    }
}

/// Opens the region to the workers, works, closes it, and waits until no worker is inside.
fn run(pool: &'static Pool, job: &Job<'_>) {
    pool.job.store(ptr::from_ref(job).cast_mut().cast(), SeqCst);
    pool.epoch.fetch_add(1, SeqCst);
    if pool.sleepers.load(SeqCst) > 0 {
        let _guard = lock(&pool.bell.0);
        pool.bell.1.notify_all();
    }
    job.work();
    // From here on a worker that arrives sees null; one that saw the job before has raised `inside` before.
    pool.job.store(ptr::null_mut(), SeqCst);
    if !spin_until(|| pool.inside.load(SeqCst) == 0) {
        let mut guard = lock(&pool.done.0);
        pool.caller_waits.store(true, SeqCst);
        while pool.inside.load(SeqCst) != 0 {
            guard = pool.done.1.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        pool.caller_waits.store(false, SeqCst);
    }
}

/// True as soon as `ready` is; false when it was not for the length of [`SPIN`].
fn spin_until(ready: impl Fn() -> bool) -> bool {
    let mut start = None;
    loop {
        for _ in 0..64 {
            if ready() {
                return true;
            }
            std::hint::spin_loop();
        }
        // The clock is read only after a first round without luck.
        if start.get_or_insert_with(Instant::now).elapsed() > SPIN {
            return false;
        }
    }
}

/// Starts workers until `wanted` exist. A system that refuses leaves fewer: the caller does their work.
fn spawn_up_to(wanted: usize, spawned: &mut usize) {
    while *spawned < wanted {
        let index = *spawned;
        let builder = std::thread::Builder::new().name(format!("attend-{}", index + 1));
        if builder.spawn(move || worker(pool(), index)).is_err() {
            return;
        }
        *spawned += 1;
    }
}

/// The life of worker `index`: wait for a region, help, leave.
fn worker(pool: &'static Pool, index: usize) {
    IN_REGION.set(true);
    let mut seen = 0;
    loop {
        if index + 1 >= pool.threads.load(SeqCst) {
            let mut guard = lock(&pool.bench.0);
            while index + 1 >= pool.threads.load(SeqCst) {
                guard = pool.bench.1.wait(guard).unwrap_or_else(PoisonError::into_inner);
            }
        }
        seen = wait_for_region(pool, seen);
        pool.inside.fetch_add(1, SeqCst);
        let job = pool.job.load(SeqCst);
        if !job.is_null() {
            // SAFETY: `inside` was raised before `job` was read as not null, and the caller keeps the job alive until,
            // after nulling `job`, it has read `inside` as 0; both orders are sequentially consistent.
            unsafe { &*job }.work();
        }
        if pool.inside.fetch_sub(1, SeqCst) == 1 && pool.caller_waits.load(SeqCst) {
            let _guard = lock(&pool.done.0);
            pool.done.1.notify_all();
        }
    }
}

/// Waits until the epoch differs from `seen`, first spinning, then asleep; returns it.
fn wait_for_region(pool: &Pool, seen: usize) -> usize {
    if !spin_until(|| pool.epoch.load(SeqCst) != seen) {
        let mut guard = lock(&pool.bell.0);
        pool.sleepers.fetch_add(1, SeqCst);
        while pool.epoch.load(SeqCst) == seen {
            guard = pool.bell.1.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        pool.sleepers.fetch_sub(1, SeqCst);
    }
    pool.epoch.load(SeqCst)
}

/// The cores this process may use: those of its affinity mask, each once however many hardware threads it has, and no
/// more than its control group's quota.
fn default_threads() -> usize {
    let allowed = std::thread::available_parallelism().map_or(1, usize::from);
    physical_cores().map_or(allowed, |cores| cores.min(allowed)).clamp(1, MOST_THREADS)
}

/// Distinct cores among the processors of the affinity mask, where the system tells.
fn physical_cores() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let mut cores = std::collections::BTreeSet::new();
    for cpu in parse_cpu_list(list) {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        cores.insert(std::fs::read_to_string(path).ok()?);
    }
    (!cores.is_empty()).then_some(cores.len())
}

/// The numbers of a list such as `0-3,8,10-11`; what cannot be read is left out.
fn parse_cpu_list(list: &str) -> Vec<usize> {
    let mut cpus = Vec::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.trim().parse::<usize>(), last.trim().parse::<usize>()) {
            cpus.extend(first..=last.min(first.saturating_add(4096)));
        }
    }
    cpus
}

#[cfg(test)]
pub(crate) mod tests;
