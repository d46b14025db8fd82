//! Q6: without a key there is nothing, however a path is spelled; and time does not tell how near a guess was.

use crate::client::{connect, read, request, send};
use crate::serving::{SIZE, Serving, alone, best_of_three, decoder, report};
use attend_testkit::hostile::spellings;
use std::io::{BufReader, Write};
use std::sync::Arc;
use std::time::Instant;

const KEY: &str = "0123456789abcdef0123456789abcdef";

fn server() -> Serving {
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    let model = decoder(folder.path(), &SIZE);
    let keys = folder.path().join("keys");
    std::fs::write(&keys, KEY).expect("written");
    Serving::over(folder, model, &["--api-key-file", keys.to_str().expect("text"), "--no-log"])
}

/// Asks for every path of the document in every spelling; how many requests that were.
fn walk(serving: &Serving, methods: &[&str]) -> usize {
    let key = [("Authorization", format!("Bearer {KEY}"))];
    let key: Vec<(&str, &str)> = key.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let document = send(serving.address, &request("GET", "/openapi.json", &key, b"")).good();
    let mut paths: Vec<String> = document["paths"].as_object().expect("paths").keys().cloned().collect();
    let others = ["/v1/models/tiny", "/v2/rerank", "/api/embeddings", "/v1/nothing", "/nothing", "/v1", "/api"];
    paths.extend(others.map(str::to_owned));
    let mut count = 0;
    for path in paths.iter().filter(|path| *path != "/health") {
        for path in spellings(path, KEY) {
            for method in methods {
                let answer = send(serving.address, &request(method, &path, &[], b""));
                assert_eq!(answer.status, 401, "{method} {path}");
                count += 1;
            }
        }
    }
    count
}

/// Welch's t between two samples, without the slowest twentieth of each, which the system's pauses are.
fn t(samples: [&mut Vec<f64>; 2]) -> f64 {
    let moments = samples.map(|sample| {
        sample.sort_by(f64::total_cmp);
        let kept = &sample[..sample.len() * 19 / 20];
        let mean = kept.iter().sum::<f64>() / kept.len() as f64;
        let variance = kept.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (kept.len() - 1) as f64;
        (mean, variance / kept.len() as f64)
    });
    let [(first, own), (second, other)] = moments;
    (first - second) / (own + other).sqrt()
}

/// Guesses that share nothing with the key, and all of it but its last character, in turns; `measure` says how long one takes.
fn compare(tries: usize, mut measure: impl FnMut(&str) -> f64) -> f64 {
    let far = "x".repeat(KEY.len());
    let near = format!("{}x", &KEY[..KEY.len() - 1]);
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for index in 0..tries / 2 {
        // Whoever comes second finds a warmer machine: they take turns at that too.
        if index % 2 == 0 {
            first.push(measure(&far));
            second.push(measure(&near));
        } else {
            second.push(measure(&near));
            first.push(measure(&far));
        }
    }
    t([&mut first, &mut second])
}

#[test]
fn q6_keys_in_small() {
    let _alone = alone();
    walk(&server(), &["GET", "POST"]);
}

#[test]
#[ignore = "measures"]
fn q6_keys() {
    let _alone = alone();
    let serving = server();
    let count = walk(&serving, &["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE"]);
    let foreign = send(serving.address, &request("GET", "/health", &[("Host", "evil.example")], b""));
    assert_eq!(foreign.status, 403);
    best_of_three(|| {
        let mut reader = BufReader::new(connect(serving.address));
        let over_http = compare(20_000, |guess| {
            let bytes = request("GET", "/v1/models", &[("Connection", "keep-alive"), ("x-api-key", guess)], b"");
            let begun = Instant::now();
            reader.get_mut().write_all(&bytes).expect("sent");
            let answer = read(&mut reader).expect("an answer");
            let took = begun.elapsed().as_secs_f64();
            assert_eq!(answer.status, 401);
            took
        });
        let figures =
            format!("{count} requests without a key, all 401; 20000 guesses, far and near, t = {over_http:.2}");
        report("Q6", &figures);
        if over_http.abs() < 4.5 { Ok(()) } else { Err(figures) }
    });
}
