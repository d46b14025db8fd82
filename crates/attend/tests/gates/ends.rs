//! L8: told to stop under load, and killed.

use crate::client::{chunk, connect, read_head};
use crate::mix::{Exchange, exchanges};
use crate::serving::{Serving, alone, report};
use serde_json::Value;
use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// What became of a stream that ran when the server was told to stop.
fn rest(mut reader: BufReader<TcpStream>, exchange: &Exchange) -> &'static str {
    let (mut text, mut reason, mut all) = (String::new(), Value::Null, String::new());
    while let Some(bytes) = chunk(&mut reader) {
        all += std::str::from_utf8(&bytes).expect("whole characters");
    }
    for event in all.split_terminator("\n\n") {
        let data = event.strip_prefix("data: ").expect("an event");
        let Ok(event) = serde_json::from_str::<Value>(data) else { continue };
        text += event["choices"][0]["text"].as_str().unwrap_or_default();
        reason = event["choices"][0]["finish_reason"].clone();
    }
    assert!(all.ends_with("data: [DONE]\n\n"), "its end is said: {all}");
    match reason.as_str() {
        Some("length") => {
            assert_eq!(text, exchange.text);
            "finished"
        }
        Some("abort") => {
            assert!(exchange.text.starts_with(&text), "what was made until then");
            "cut"
        }
        other => panic!("{other:?}"),
    }
}

/// How long it took to end, and how many answers were finished.
fn stop(all: &[Exchange]) -> (Duration, usize) {
    let mut serving = Serving::start(&[]);
    let mut streams = Vec::new();
    for exchange in all {
        let mut reader = BufReader::new(connect(serving.address));
        reader.get_mut().write_all(&exchange.bytes(true, "close")).expect("sent");
        streams.push((reader, exchange));
    }
    for (reader, _) in &mut streams {
        assert_eq!(read_head(reader), 200);
    }
    let begun = Instant::now();
    serving.signal("TERM");
    let (address, bytes) = (serving.address, all[0].bytes(false, "close"));
    let ends = thread::scope(|scope| {
        let rests: Vec<_> = streams.into_iter().map(|(reader, one)| scope.spawn(|| rest(reader, one))).collect();
        // New work is refused from when it has heard, by its status or by a door that is shut.
        let refused = (0..2000).any(|_| {
            thread::sleep(Duration::from_millis(1));
            let Ok(mut stream) = TcpStream::connect(address) else { return true };
            let sent = stream.set_read_timeout(Some(Duration::from_secs(30))).and_then(|()| stream.write_all(&bytes));
            if sent.is_err() {
                return true;
            }
            let mut line = String::new();
            let read = std::io::BufRead::read_line(&mut BufReader::new(stream), &mut line);
            read.is_err() || line.is_empty() || line.contains(" 503 ")
        });
        assert!(refused, "new work is taken");
        rests.into_iter().map(|rest| rest.join().expect("an end")).collect::<Vec<_>>()
    });
    let status = serving.child.wait().expect("ends");
    let took = begun.elapsed();
    assert_eq!(status.code(), Some(0), "{}", serving.log());
    assert!(took < Duration::from_secs(30), "{took:?}");
    (took, ends.iter().filter(|end| **end == "finished").count())
}

/// How long a server needs to answer again after one was killed in the midst of work.
fn kill(all: &[Exchange]) -> Duration {
    let mut serving = Serving::start(&[]);
    let mut open = Vec::new();
    for exchange in all {
        let mut stream = connect(serving.address);
        stream.write_all(&exchange.bytes(true, "close")).expect("sent");
        open.push(stream);
    }
    serving.until("running", || serving.figure("requests_running") > 0.0);
    serving.child.kill().expect("killed");
    serving.child.wait().expect("ends");
    let begun = Instant::now();
    let again = Serving::over(Arc::clone(&serving.folder), serving.model.clone(), &[]);
    assert_eq!(again.post("/v1/completions", &all[0].body(false)).good()["choices"][0]["text"], all[0].text);
    begun.elapsed()
}

fn l8(rounds: usize, said: bool) {
    let _alone = alone();
    let first = Serving::start(&[]);
    let all = exchanges(&first.model, 16, 100..400);
    drop(first);
    let (mut stopped, mut ready, mut finished) = (Duration::ZERO, Duration::ZERO, 0);
    for _ in 0..rounds {
        let (took, whole) = stop(&all);
        stopped = stopped.max(took);
        finished += whole;
        ready = ready.max(kill(&all));
    }
    if said {
        report(
            "L8",
            &format!(
                "{rounds} rounds: after SIGTERM with 16 streams the end after at most {:.2} s with code 0, {finished} of {} \
                 answers finished, the others cut with their reason; after SIGKILL ready and answering in at most {:.2} s",
                stopped.as_secs_f64(),
                rounds * 16,
                ready.as_secs_f64()
            ),
        );
        assert!(ready < Duration::from_secs(3), "{ready:?}");
    }
}

#[test]
fn l8_stop_and_restart_in_small() {
    l8(1, false);
}

#[test]
#[ignore = "takes a minute"]
fn l8_stop_and_restart() {
    l8(20, true);
}
