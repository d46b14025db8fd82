use super::*;
use std::sync::atomic::AtomicU32;

/// The pool is one per process: tests that change its size take turns.
pub(crate) static TURN: Mutex<()> = Mutex::new(());

fn each_once(tasks: usize) {
    let counts: Vec<AtomicU32> = (0..tasks).map(|_| AtomicU32::new(0)).collect();
    parallel(tasks, |task| {
        counts[task].fetch_add(1, SeqCst);
    });
    assert!(counts.iter().all(|count| count.load(SeqCst) == 1), "{tasks} tasks");
}

#[test]
fn every_task_runs_once_for_every_size_of_the_pool() {
    let _turn = lock(&TURN);
    for threads in [1, 2, 3, 8, 2, 5, 1] {
        set_threads(threads);
        assert_eq!(super::threads(), threads);
        for tasks in [0, 1, 2, 3, 7, 64, 1000] {
            each_once(tasks);
        }
    }
    set_threads(0);
}

#[test]
fn far_more_threads_than_cores_still_finish() {
    let _turn = lock(&TURN);
    set_threads(24);
    for _ in 0..500 {
        each_once(48);
    }
    set_threads(0);
}

#[test]
fn workers_wake_again_after_they_slept() {
    let _turn = lock(&TURN);
    set_threads(4);
    for _ in 0..20 {
        each_once(16);
        std::thread::sleep(3 * SPIN);
    }
    set_threads(0);
}

#[test]
fn nested_regions_run_inline() {
    let _turn = lock(&TURN);
    set_threads(3);
    let count = AtomicU32::new(0);
    parallel(8, |_| {
        let me = std::thread::current().id();
        parallel(8, |_| {
            assert_eq!(std::thread::current().id(), me);
            count.fetch_add(1, SeqCst);
        });
    });
    assert_eq!(count.load(SeqCst), 64);
    set_threads(0);
}

#[test]
fn regions_of_several_callers_do_not_disturb_each_other() {
    let _turn = lock(&TURN);
    set_threads(3);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..200).for_each(|_| each_once(9)));
        }
    });
    set_threads(0);
}

#[test]
fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
    let _turn = lock(&TURN);
    set_threads(4);
    for guilty in [0, 5, 63] {
        let caught = catch_unwind(|| {
            parallel(64, |task| {
                if task == guilty {
                    std::panic::panic_any(task);
                }
            });
        });
        assert_eq!(caught.unwrap_err().downcast_ref::<usize>(), Some(&guilty));
        each_once(64);
    }
    set_threads(0);
}

#[test]
fn lists_of_processors_are_read() {
    assert_eq!(parse_cpu_list("\t0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
    assert_eq!(parse_cpu_list(""), Vec::<usize>::new());
    assert_eq!(parse_cpu_list("x,2"), [2]);
    assert!(default_threads() >= 1);
}
