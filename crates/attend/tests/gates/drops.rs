//! L4: clients that go away at every stage of a request leave nothing behind.

use crate::client::{chunk, connect, read_head, request};
use crate::serving::{SIZE, Serving, alone, best_of_three, figure, quantile, report};
use serde_json::{Value, json};
use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Where in its life a request is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Body,
    Queued,
    Prefill,
    Decode,
    LastChunk,
}

const STAGES: [Stage; 5] = [Stage::Body, Stage::Queued, Stage::Prefill, Stage::Decode, Stage::LastChunk];

/// Requests that run and that wait.
fn busy(serving: &Serving) -> (f64, f64) {
    let text = serving.get("/metrics").body;
    (figure(&text, "requests_running"), figure(&text, "requests_waiting"))
}

/// Begins a request; `share` of its bytes are sent.
fn ask(serving: &Serving, body: &Value, share: f64) -> BufReader<TcpStream> {
    let bytes = request("POST", "/v1/completions", &[], body.to_string().as_bytes());
    let mut stream = connect(serving.address);
    stream.write_all(&bytes[..(bytes.len() as f64 * share) as usize]).expect("sent");
    BufReader::new(stream)
}

/// Brings a request to its stage, drops it, and says how long the server went on with it.
fn drop_at(serving: &Serving, stage: Stage, stream: bool) -> Duration {
    let decode = json!({"prompt": [5, 6, 7], "max_tokens": 3500, "ignore_eos": true, "stream": stream});
    let before = busy(serving);
    let reader = match stage {
        Stage::Body => ask(serving, &decode, 0.9),
        Stage::Queued => {
            // It holds all the room there is, so that the next one waits.
            let large = json!({"prompt": vec![9; 3000], "max_tokens": 900, "ignore_eos": true, "stream": stream});
            let first = ask(serving, &large, 1.0);
            serving.until("running", || busy(serving).0 > before.0);
            let waits = ask(serving, &large, 1.0);
            serving.until("waiting", || busy(serving).1 > before.1);
            let begun = Instant::now();
            drop(waits);
            serving.until("forgotten", || busy(serving).1 == before.1);
            let took = begun.elapsed();
            drop(first);
            serving.until("free", || busy(serving) == before);
            return took;
        }
        Stage::Prefill => {
            let reader = ask(serving, &json!({"prompt": vec![8; 3500], "stream": stream, "max_tokens": 500}), 1.0);
            serving.until("begun", || busy(serving) != before);
            reader
        }
        Stage::Decode => {
            let mut reader = ask(serving, &decode, 1.0);
            if stream {
                assert_eq!(read_head(&mut reader), 200);
                chunk(&mut reader).expect("a token");
            } else {
                serving.until("running", || busy(serving).0 > before.0);
            }
            reader
        }
        Stage::LastChunk => {
            let short = json!({"prompt": [5, 6, 7], "max_tokens": 20, "ignore_eos": true, "stream": stream});
            let mut reader = ask(serving, &short, 1.0);
            assert_eq!(read_head(&mut reader), 200);
            if stream {
                while !String::from_utf8(chunk(&mut reader).expect("an event")).expect("text").contains("length") {}
            }
            reader
        }
    };
    let begun = Instant::now();
    drop(reader);
    serving.until("forgotten", || busy(serving) == before);
    begun.elapsed()
}

fn l4(count: usize, timed: bool) {
    let _alone = alone();
    // 4096 tokens and no more; what was kept of prompts would hold blocks.
    let room = (4096 * SIZE.bytes_per_token()).to_string();
    let serving = Serving::start(&["--kv-memory", &room, "--prefix-cache", "0"]);
    assert_eq!(serving.figure("kv_tokens_limit"), 4096.0);
    // Each stage once: whatever is made when it is first needed is there.
    for stage in STAGES {
        drop_at(&serving, stage, true);
    }
    let settled = |serving: &Serving| {
        serving.until("closed", || serving.get("/metrics").body.contains("attend_http_connections 1\n"));
        serving.until_idle();
        serving.holds()
    };
    let start = settled(&serving);
    best_of_three(|| {
        let mut times: Vec<f64> = (0..count)
            .map(|index| drop_at(&serving, STAGES[index % 5], (index / 5).is_multiple_of(2)).as_secs_f64())
            .collect();
        serving.until("as at the start", || settled(&serving) == start);
        let good = serving.post("/v1/completions", &json!({"prompt": [5], "max_tokens": 3})).good();
        assert_eq!(good["usage"]["completion_tokens"], 3);
        if !timed {
            return Ok(());
        }
        let (median, most) = (quantile(&mut times, 0.5) * 1e3, quantile(&mut times, 1.0) * 1e3);
        let figures = format!(
            "{count} clients gone, at {} stages: forgotten after {median:.1} ms (median), {most:.1} ms (most); nothing held, \
             descriptors and threads {start:?} as at the start",
            STAGES.len()
        );
        report("L4", &figures);
        if most < 1000.0 { Ok(()) } else { Err(figures) }
    });
}

#[test]
fn l4_disconnects_in_small() {
    l4(20, false);
}

#[test]
#[ignore = "takes a minute"]
fn l4_disconnects() {
    l4(400, true);
}
