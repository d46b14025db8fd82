//! L8: told to stop under load, with and without the time to finish, and killed.

use crate::client::{self, chunk, connect, read_head, request};
use crate::mix::{Exchange, exchanges};
use crate::serving::{SIZE, Serving, alone, decoder, report};
use attend_testkit::files::model::Size;
use serde_json::{Value, json};
use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Tokens of an answer that is not finished in time.
const LONG: usize = 200_000;

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
            assert!(agree(&text, &exchange.text), "what was made until then");
            "cut"
        }
        other => panic!("{other:?}"),
    }
}

/// Of a request that is longer than anybody waits: what the library answers first, with more behind it.
fn endless(exchange: &Exchange, stream: bool) -> Vec<u8> {
    let body = json!({"prompt": exchange.prompt, "max_tokens": LONG, "ignore_eos": true, "stream": stream});
    request("POST", "/v1/completions", &[("Connection", "close")], body.to_string().as_bytes())
}

/// How a server ended.
struct Stop {
    took: Duration,
    finished: usize,
    cut: usize,
}

/// Tells a server to stop that has short streams, and long answers that it will not finish in time.
fn stop(folder: &Arc<TempDir>, model: &Path, (short, long): (&[Exchange], &[Exchange]), grace: u64) -> Stop {
    let grace = grace.to_string();
    let mut serving = Serving::over(Arc::clone(folder), model.to_owned(), &["--grace", &grace, "--no-log"]);
    let ask = |bytes: &[u8]| {
        let mut reader = BufReader::new(connect(serving.address));
        reader.get_mut().write_all(bytes).expect("sent");
        reader
    };
    // Every fourth long answer is no stream.
    let whole: Vec<_> = long.iter().step_by(4).map(|one| (ask(&endless(one, false)), one)).collect();
    let streamed = long.iter().enumerate().filter(|(index, _)| index % 4 != 0);
    let mut streams: Vec<_> = streamed.map(|(_, one)| (ask(&endless(one, true)), one)).collect();
    streams.extend(short.iter().map(|one| (ask(&one.bytes(true, "close")), one)));
    for (reader, _) in &mut streams {
        assert_eq!(read_head(reader), 200);
    }
    serving.until("all long ones running", || serving.figure("requests_running") >= long.len() as f64);
    let begun = Instant::now();
    serving.signal("TERM");
    let (address, bytes) = (serving.address, short[0].bytes(false, "close"));
    let ends = thread::scope(|scope| {
        let rests: Vec<_> = streams.into_iter().map(|(reader, one)| scope.spawn(|| rest(reader, one))).collect();
        let answers: Vec<_> = whole.into_iter().map(|(reader, one)| scope.spawn(|| cut_whole(reader, one))).collect();
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
        rests.into_iter().chain(answers).map(|rest| rest.join().expect("an end")).collect::<Vec<_>>()
    });
    let status = serving.child.wait().expect("ends");
    let took = begun.elapsed();
    assert_eq!(status.code(), Some(0), "{}", serving.log());
    assert!(took < Duration::from_secs(30), "{took:?}");
    let count = |wanted: &str| ends.iter().filter(|end| **end == wanted).count();
    Stop { took, finished: count("finished"), cut: count("cut") }
}

/// What became of an answer that is no stream.
fn cut_whole(mut reader: BufReader<TcpStream>, exchange: &Exchange) -> &'static str {
    let answer = client::read(&mut reader).expect("an answer").good();
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "abort", "{}", answer["usage"]);
    assert!(agree(choice["text"].as_str().expect("a text"), &exchange.text), "what was made until then");
    "cut"
}

/// One of the two begins with the other.
fn agree(text: &str, expected: &str) -> bool {
    !text.is_empty() && (text.starts_with(expected) || expected.starts_with(text))
}

/// How long a server needs to answer again after one was killed in the midst of work.
fn kill(folder: &Arc<TempDir>, model: &Path, all: &[Exchange]) -> Duration {
    let start = || Serving::over(Arc::clone(folder), model.to_owned(), &["--no-log"]);
    let mut serving = start();
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
    let again = start();
    assert_eq!(again.post("/v1/completions", &all[0].body(false)).good()["choices"][0]["text"], all[0].text);
    begun.elapsed()
}

/// `rounds` with a second to the end, and so many with the usual time.
fn l8(rounds: usize, usual: usize, told: bool) {
    let _alone = alone();
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    let model = decoder(folder.path(), &Size { context: LONG + 500, ..SIZE });
    let all = exchanges(&model, 22, 100..400);
    let parts = all.split_at(16);
    let (mut stopped, mut ready, mut finished, mut cut) = (Duration::ZERO, Duration::ZERO, 0, 0);
    for _ in 0..rounds {
        let stop = stop(&folder, &model, parts, 1);
        assert_eq!(stop.cut + stop.finished, all.len());
        assert!(stop.cut >= parts.1.len(), "nobody waits for {LONG} tokens");
        assert!(stop.took >= Duration::from_secs(1), "{:?}", stop.took);
        (finished, cut, stopped) = (finished + stop.finished, cut + stop.cut, stopped.max(stop.took));
        ready = ready.max(kill(&folder, &model, &all));
    }
    // Long enough that nobody is done in twenty seconds.
    for _ in 0..usual {
        let stop = stop(&folder, &model, parts, 20);
        assert_eq!((stop.finished, stop.cut), (parts.0.len(), parts.1.len()), "{:?}", stop.took);
        assert!(stop.took >= Duration::from_secs(20), "{:?}", stop.took);
        stopped = stopped.max(stop.took);
    }
    if told {
        report(
            "L8",
            &format!(
                "{rounds} rounds: after SIGTERM with 22 answers, six of them of {LONG} tokens, and a second to the end, code 0, \
                 {finished} finished, {cut} cut with their reason and what was made; {usual} with the usual 20 seconds, the last \
                 end after {:.1} s; after SIGKILL ready and answering in at most {:.2} s",
                stopped.as_secs_f64(),
                ready.as_secs_f64()
            ),
        );
        assert!(ready < Duration::from_secs(3), "{ready:?}");
    }
}

#[test]
fn l8_stop_and_restart_in_small() {
    l8(1, 0, false);
}

#[test]
#[ignore = "takes minutes"]
fn l8_stop_and_restart() {
    l8(20, 2, true);
}
