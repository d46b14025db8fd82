//! Q5: clients that dribble their heads, and clients that hardly read, cost the others nothing.

use crate::client::{connect, request, send};
use crate::mix::{Client, Exchange, exchanges};
use crate::serving::{Over, Serving, alone, best_of_three, quantile, report};
use serde_json::json;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long short requests take for so long, in milliseconds.
fn times(serving: &Serving, probe: &Exchange, time: Duration) -> Vec<f64> {
    let mut client = Client::new(serving.address);
    let (begun, mut times) = (Instant::now(), Vec::new());
    while begun.elapsed() < time {
        let seen = client.stream(probe);
        assert_eq!(seen.status, 200);
        times.push(seen.whole.as_secs_f64() * 1e3);
        thread::sleep(Duration::from_millis(5));
    }
    times
}

/// Sends a head a byte at a time, again and again, until it is over. Says how often the server had enough.
fn dribble(serving: &Serving, over: &AtomicBool) -> usize {
    let head = request("POST", "/v1/completions", &[("X-Slow", &"x".repeat(2000))], b"");
    let mut given_up = 0;
    while !over.load(Ordering::Relaxed) {
        let mut stream = connect(serving.address);
        for byte in &head {
            if over.load(Ordering::Relaxed) || stream.write_all(&[*byte]).is_err() {
                break;
            }
            thread::sleep(Duration::from_millis(500));
        }
        given_up += 1;
    }
    given_up
}

/// Asks for a long answer and reads a byte a second of it.
fn hardly_read(serving: &Serving, over: &AtomicBool) {
    let body =
        json!({"prompt": [5, 6], "max_tokens": 200, "ignore_eos": true, "stream": true, "logprobs": 20}).to_string();
    let mut stream = connect(serving.address);
    stream.write_all(&request("POST", "/v1/completions", &[], body.as_bytes())).expect("sent");
    let mut byte = [0];
    while !over.load(Ordering::Relaxed) && matches!(stream.read(&mut byte), Ok(1)) {
        for _ in 0..10 {
            thread::sleep(Duration::from_millis(if over.load(Ordering::Relaxed) { 0 } else { 100 }));
        }
    }
}

fn q5((heads, readers): (usize, usize), time: Duration, timed: bool) {
    let _alone = alone();
    let serving = Serving::start(&["--no-log"]);
    let probe = &exchanges(&serving.model, 1, 16..17)[0];
    times(&serving, probe, Duration::from_millis(500));
    best_of_three(|| {
        let start = serving.holds();
        let mut before = times(&serving, probe, time / 4);
        let (over, given_up) = (AtomicBool::new(false), AtomicUsize::new(0));
        let mut during = thread::scope(|scope| {
            for _ in 0..heads {
                scope.spawn(|| given_up.fetch_add(dribble(&serving, &over), Ordering::Relaxed));
            }
            for _ in 0..readers {
                scope.spawn(|| hardly_read(&serving, &over));
            }
            let _end = Over(&over);
            serving.until("connected", || serving.holds().0 >= start.0 + heads + readers / 2);
            times(&serving, probe, time)
        });
        let ended = Instant::now();
        serving.until("closed", || serving.holds().0 <= start.0 + 1);
        let closed = ended.elapsed();
        serving.until_idle();
        assert!(closed < Duration::from_secs(15), "{closed:?}");
        assert_eq!(serving.holds().1, start.1, "threads");
        if !timed {
            return Ok(());
        }
        let (before, during) = (quantile(&mut before, 0.99), quantile(&mut during, 0.99));
        let figures = format!(
            "{heads} sockets with slow heads ({} given up) and {readers} readers of a byte a second for {:.0} s: p99 of others \
             {during:.1} ms ({before:.1} without them), descriptors as at the start {:.1} s later",
            given_up.into_inner(),
            time.as_secs_f64(),
            closed.as_secs_f64()
        );
        report("Q5", &figures);
        if during < before * 2.0 { Ok(()) } else { Err(figures) }
    });
}

#[test]
fn q5_slow_clients_in_small() {
    q5((60, 8), Duration::from_secs(2), false);
}

#[test]
#[ignore = "takes 75 seconds"]
fn q5_slow_clients() {
    q5((300, 32), Duration::from_secs(60), true);
    let serving = Serving::start(&[]);
    let long = "x".repeat(17 << 10);
    assert_eq!(send(serving.address, &request("GET", "/health", &[("X-Long", &long)], b"")).status, 431);
}
