//! L1 steady load, L2 a burst, L3 more than can be done.

use crate::client::{connect, read_head, request};
use crate::mix::{Client, Exchange, Seen, exchanges};
use crate::serving::{Over, Serving, alone, best_of_three, figure, quantile, report};
use serde_json::json;
use std::io::{BufReader, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// So many clients ask one request after the other for so long; what they saw, and how long it took in all.
fn steady(serving: &Serving, all: &[Exchange], clients: usize, time: Duration) -> (Vec<Seen>, Duration) {
    let next = AtomicUsize::new(0);
    let begun = Instant::now();
    let seen = thread::scope(|scope| {
        let work = || {
            let (mut client, mut seen) = (Client::new(serving.address), Vec::new());
            while begun.elapsed() < time {
                let exchange = &all[next.fetch_add(1, Ordering::Relaxed) % all.len()];
                seen.push(client.stream(exchange));
            }
            seen
        };
        let clients: Vec<_> = (0..clients).map(|_| scope.spawn(work)).collect();
        clients.into_iter().flat_map(|client| client.join().expect("no panic")).collect()
    });
    (seen, begun.elapsed())
}

fn l1(clients: usize, time: Duration, timed: bool) {
    let _alone = alone();
    let serving = Serving::start(&[]);
    let all = exchanges(&serving.model, 300, 1..65);
    best_of_three(|| {
        let (seen, took) = steady(&serving, &all, clients, time);
        assert!(seen.iter().all(|one| one.status == 200), "nobody is refused");
        serving.until_idle();
        let mut between: Vec<f64> = seen.iter().filter_map(|one| Some(one.between?.as_secs_f64() * 1e3)).collect();
        let (median, slowest) = (quantile(&mut between, 0.5), quantile(&mut between, 1.0));
        let figures = format!(
            "{} requests of {clients} clients in {:.0} s, all as the library answers them; a token each {median:.2} ms \
             (median), {slowest:.2} ms (slowest request), ratio {:.2}",
            seen.len(),
            took.as_secs_f64(),
            slowest / median
        );
        if timed {
            report("L1", &figures);
        }
        if timed && slowest / median >= 5.0 { Err(figures) } else { Ok(()) }
    });
}

/// L1: answers are those of the library alone, whole, in order, and nobody's is much slower than another's.
#[test]
fn l1_steady_load_in_small() {
    l1(16, Duration::from_secs(2), false);
}

#[test]
#[ignore = "takes 2 minutes"]
fn l1_steady_load() {
    l1(32, Duration::from_secs(120), true);
}

fn l2(connections: usize, timed: bool) {
    let _alone = alone();
    // Room for a few at a time, so that most wait or are refused.
    let serving = Serving::start(&["--kv-memory", "1MB", "--queue", "100"]);
    let all = exchanges(&serving.model, connections, 40..65);
    best_of_three(|| {
        let refused = AtomicUsize::new(0);
        let mut waits: Vec<f64> = thread::scope(|scope| {
            let ask = |exchange| {
                let serving = &serving;
                let refused = &refused;
                move || {
                    let mut client = Client::new(serving.address);
                    let seen = client.stream(exchange);
                    assert!([200, 429].contains(&seen.status), "{}", seen.status);
                    (seen.status == 429).then(|| {
                        refused.fetch_add(1, Ordering::Relaxed);
                        seen.first.as_secs_f64() * 1e3
                    })
                }
            };
            let clients: Vec<_> = all.iter().map(|exchange| scope.spawn(ask(exchange))).collect();
            clients.into_iter().filter_map(|client| client.join().expect("an answer")).collect()
        });
        let refused = refused.into_inner();
        assert!(refused < connections, "some are answered");
        serving.until_idle();
        assert_eq!(Client::new(serving.address).whole(&all[0]), 200);
        if !timed {
            return Ok(());
        }
        waits.push(0.0);
        let (median, most) = (quantile(&mut waits, 0.5), quantile(&mut waits, 1.0));
        let figures = format!(
            "{connections} connections at once: {} answered as alone, {refused} refused, the first byte of a refusal \
             after {median:.1} ms (median), {most:.1} ms (most)",
            connections - refused
        );
        report("L2", &figures);
        if refused > 0 && most < 100.0 { Ok(()) } else { Err(figures) }
    });
}

/// L2: many at once: each is answered as it would be alone, or told to come again.
#[test]
fn l2_burst_in_small() {
    l2(128, false);
}

#[test]
#[ignore = "measures"]
fn l2_burst() {
    l2(256, true);
}

/// Offers requests at a rate, whatever becomes of them; how many were answered, and how many refused.
fn offer(serving: &Serving, all: &[Exchange], (rate, time): (f64, Duration), threads: usize) -> (usize, usize) {
    let (done, refused, next) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let begun = Instant::now();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut client = Client::new(serving.address);
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let due = Duration::from_secs_f64(index as f64 / rate);
                    if due >= time {
                        return;
                    }
                    thread::sleep(due.saturating_sub(begun.elapsed()));
                    match client.stream(&all[index % all.len()]).status {
                        200 if begun.elapsed() <= time => done.fetch_add(1, Ordering::Relaxed),
                        // Its answer came after the end of the time that counts.
                        200 => 0,
                        429 => refused.fetch_add(1, Ordering::Relaxed),
                        other => panic!("{other}"),
                    };
                }
            });
        }
    });
    (done.into_inner(), refused.into_inner())
}

/// How long a short request takes, in milliseconds: the median of several.
fn latency(serving: &Serving, probe: &Exchange) -> f64 {
    let mut client = Client::new(serving.address);
    let mut times: Vec<f64> = (0..9).map(|_| client.stream(probe).whole.as_secs_f64() * 1e3).collect();
    quantile(&mut times, 0.5)
}

fn l3(time: Duration, timed: bool) {
    const QUEUE: usize = 64;
    let _alone = alone();
    let serving = Serving::start(&["--queue", "64", "--prefix-cache", "4MB", "--no-log"]);
    // Long answers: what is measured is the model's work, not the connections'.
    let all = exchanges(&serving.model, 60, 200..300);
    let probe = &exchanges(&serving.model, 1, 8..9)[0];
    best_of_three(|| {
        let before = latency(&serving, probe);
        let (seen, took) = steady(&serving, &all, 32, time / 3);
        let capacity = seen.len() as f64 / took.as_secs_f64();
        let resident = serving.resident();
        let (over, highest) = (AtomicBool::new(false), AtomicUsize::new(0));
        let (done, refused) = thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let waiting = figure(&serving.get("/metrics").body, "requests_waiting");
                    highest.fetch_max(waiting as usize, Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(20));
                }
            });
            let _end = Over(&over);
            offer(&serving, &all, (capacity * 10.0, time), 200)
        });
        let ended = Instant::now();
        let mut after = latency(&serving, probe);
        while after > before * 2.0 && ended.elapsed() < Duration::from_secs(5) {
            after = latency(&serving, probe);
        }
        let recovered = ended.elapsed();
        let (highest, rate) = (highest.into_inner(), done as f64 / time.as_secs_f64());
        let grown = serving.resident().saturating_sub(resident) / 1024;
        assert!(highest <= QUEUE, "{highest} waited");
        assert!(refused > 0, "nobody was refused");
        serving.until_idle();
        if !timed {
            return Ok(());
        }
        let figures = format!(
            "offered {:.0} requests a second, ten times what 32 clients get ({capacity:.1}), for {:.0} s: {rate:.1} \
             completed a second ({:.0} %), {refused} refused, at most {highest} of {QUEUE} waited, memory {grown} MiB more, \
             a probe takes {after:.1} ms {:.1} s later ({before:.1} before)",
            capacity * 10.0,
            time.as_secs_f64(),
            rate / capacity * 100.0,
            recovered.as_secs_f64()
        );
        report("L3", &figures);
        let well = rate >= capacity * 0.8 && grown <= 10 && after <= before * 2.0;
        if well { Ok(()) } else { Err(figures) }
    });
}

/// L3: offered far more than it can do, it does what it can, refuses the rest, and holds no more for it.
#[test]
fn l3_overload_in_small() {
    l3(Duration::from_secs(3), false);
}

#[test]
#[ignore = "takes 90 seconds"]
fn l3_overload() {
    l3(Duration::from_secs(60), true);
}

/// L6: what can never fit is refused at once, and those beside it do not notice.
fn l6(count: usize, timed: bool) {
    let _alone = alone();
    let serving = Serving::start(&["--kv-memory", "512KB"]);
    let all = exchanges(&serving.model, 20, 30..60);
    let limit = serving.figure("kv_tokens_limit") as usize;
    assert!((200..4000).contains(&limit), "{limit}");
    best_of_three(|| {
        let over = AtomicBool::new(false);
        let mut times: Vec<f64> = thread::scope(|scope| {
            for offset in 0..2 {
                let (serving, all, over) = (&serving, &all, &over);
                scope.spawn(move || {
                    let mut client = Client::new(serving.address);
                    let mut index = offset;
                    while !over.load(Ordering::Relaxed) || index < 4 {
                        assert_eq!(client.stream(&all[index % all.len()]).status, 200);
                        index += 1;
                    }
                });
            }
            let ask = |index: usize| {
                let body = match index % 2 {
                    0 => json!({"prompt": vec![5; limit + 1 + index * 7 % 1000], "stream": index.is_multiple_of(4)}),
                    _ => json!({"prompt": [5, 6], "n": 16, "max_tokens": limit / 8, "temperature": 1}),
                };
                let bytes = request("POST", "/v1/completions", &[], body.to_string().as_bytes());
                let begun = Instant::now();
                let mut reader = BufReader::new(connect(serving.address));
                reader.get_mut().write_all(&bytes).expect("sent");
                assert_eq!(read_head(&mut reader), 400, "{index}");
                begun.elapsed().as_secs_f64() * 1e3
            };
            let _end = Over(&over);
            (0..count).map(ask).collect()
        });
        serving.until_idle();
        if !timed {
            return Ok(());
        }
        let (median, most) = (quantile(&mut times, 0.5), quantile(&mut times, 1.0));
        let figures = format!(
            "{count} requests larger than the room of {limit} tokens refused in {median:.1} ms (median), {most:.1} ms \
             (most), beside two streams that stay as they are alone"
        );
        report("L6", &figures);
        if most < 100.0 { Ok(()) } else { Err(figures) }
    });
}

#[test]
fn l6_oversize_in_small() {
    l6(20, false);
}

#[test]
#[ignore = "measures"]
fn l6_oversize() {
    l6(100, true);
}
