//! L7: panics in a step, on the thread that computes and on one that helps it: whoever caused one fails, typed, and nobody else.
//!
//! No request can cause one, so the server is in this process here, over a model that is watched: before a step that feeds a
//! certain token the watcher panics.

use crate::client::Answer;
use crate::faults::{fails, neighbour};
use crate::mix::{Exchange, exchanges};
use crate::serving::{Over, SIZE, alone, decoder, report};
use crate::support::{Setup, parts};
use attend::engine::OnStep;
use attend::kernels::{parallel, set_threads};
use serde_json::Value;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

/// Tokens at which the thread that computes panics, and a thread that helps it.
const OWN: u32 = 77;
const HELPER: u32 = 78;

/// Panics without words on standard error, as a test that wants it.
fn panics(words: &str) -> ! {
    resume_unwind(Box::new(words.to_owned()))
}

/// Panics on a thread of the pool, where one comes in time; counts those that did.
fn helper_panics(count: &AtomicUsize) {
    let (begun, done) = (Instant::now(), AtomicBool::new(false));
    parallel(64, |_| {
        let helps = thread::current().name().is_some_and(|name| name.starts_with("attend-"));
        if helps {
            count.fetch_add(usize::from(!done.swap(true, SeqCst)), SeqCst);
            panics("a helper was made to panic");
        }
        while !done.load(SeqCst) && begun.elapsed() < Duration::from_secs(1) {
            thread::yield_now();
        }
    });
    panics("nobody helped");
}

fn l7(rounds: usize, told: bool) {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let model = decoder(folder.path(), &SIZE);
    let cursed = |one: &Exchange| {
        [OWN, HELPER].iter().any(|token| one.prompt.contains(token) || one.text.contains(&format!("t{token}")))
    };
    let all: Vec<Exchange> = exchanges(&model, 80, 5..40).into_iter().filter(|one| !cursed(one)).collect();
    set_threads(3);
    let helped = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&helped);
    let on_step = OnStep(Arc::new(move |feeds: &[&[u32]]| {
        // The model itself may say these tokens, one a step; only prompts have two in a row. They
        // have eight, because a prompt may be read in pieces.
        let fed = |token: u32| feeds.iter().any(|feed| feed.windows(2).any(|two| two == [token, token]));
        if fed(OWN) {
            panics("it was made to panic");
        }
        if fed(HELPER) {
            helper_panics(&count);
        }
    }));
    let loader = Box::new(move || {
        let mut parts = parts(&model, None);
        (parts.options.on_step, parts.options.chunk) = (Some(on_step.clone()), 512);
        Ok(parts)
    });
    let serving = Setup::new(vec![("tiny", loader)]).ready();
    let over = AtomicBool::new(false);
    let post = |body: &Value| -> Answer { serving.post("/v1/completions", body) };
    let answered: usize = thread::scope(|scope| {
        let (address, all, over) = (serving.address, &all, &over);
        let neighbours: Vec<_> =
            (0..4).map(|offset| scope.spawn(move || neighbour(address, all, offset * 9, over))).collect();
        let end = Over(over);
        for round in 0..rounds {
            fails(&post, &[OWN; 8], round.is_multiple_of(2));
            fails(&post, &[HELPER; 8], round.is_multiple_of(2));
            serving.until("healthy, since others are answered", || serving.get("/health").status == 200);
        }
        drop(end);
        neighbours.into_iter().map(|one| one.join().expect("no panic")).sum()
    });
    set_threads(0);
    serving.until_idle();
    assert_eq!(serving.figure("faults_total"), 2.0 * rounds as f64, "nobody else failed");
    let helped = helped.load(SeqCst);
    assert!(helped > 0, "nobody helped");
    let log = serving.log.text();
    assert!(log.contains("made to panic"), "the log says why");
    for _ in 0..3 {
        fails(&post, &[OWN; 8], false);
    }
    assert_eq!(serving.get("/health").status, 503, "three faults in a row are said");
    assert_eq!(post(&all[0].body(false)).good()["choices"][0]["text"], all[0].text);
    assert_eq!(serving.get("/health").status, 200, "it answers again");
    if told {
        report(
            "L7",
            &format!(
                "{rounds} rounds of panics on the thread that computes and on those that help it ({helped}): {} typed faults, \
                 {answered} answers beside them all as alone",
                2 * rounds
            ),
        );
    }
}

#[test]
fn l7_panics_in_small() {
    l7(5, false);
}

#[test]
#[ignore = "takes longer"]
fn l7_panics() {
    l7(100, true);
}
