//! Heads, bodies, lengths and time: what a connection may not do.

use crate::client::{connect, read, request, send};
use crate::support::{Serving, tiny_setup};
use attend_server::Limits;
use serde_json::json;
use std::io::{BufReader, Read, Write};
use std::time::{Duration, Instant};

fn quick() -> Serving {
    let mut setup = tiny_setup(json!({}), None);
    setup.limits = Limits {
        head_time: Duration::from_millis(400),
        body_time: Duration::from_millis(600),
        idle: Duration::from_millis(800),
        ..Limits::default()
    };
    setup.ready()
}

#[test]
fn heads_are_bounded() {
    let serving = quick();
    let long = "x".repeat(20 << 10);
    let answer = send(serving.address, &request("GET", "/health", &[("X-Long", &long)], b""));
    assert_eq!(answer.refused(431)["code"], "header_too_large");
    let answer = send(serving.address, &request("GET", &format!("/{long}"), &[], b""));
    assert_eq!(answer.refused(answer.status)["code"], "header_too_large");
    assert!((414..=431).contains(&answer.status), "{answer:?}");
    let many: Vec<(String, String)> = (0..90).map(|index| (format!("X-{index}"), "y".into())).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(send(serving.address, &request("GET", "/health", &many, b"")).status, 200);
}

/// What is no request gets an error like any other, and is counted.
#[test]
fn what_is_no_request_is_refused_in_words() {
    let serving = quick();
    let wrong: [&[u8]; 7] = [
        b"GET\r\n\r\n",
        b"GET /health HTTP/9.9\r\n\r\n",
        b"G\xffT /health HTTP/1.1\r\n\r\n",
        b"GET /a b HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /health HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost : localhost\r\n\r\n",
        b"\x00\x01\x02\r\n\r\n",
    ];
    for bytes in wrong {
        let answer = send(serving.address, bytes);
        assert_eq!(answer.refused(400)["code"], "malformed_request", "{}", bytes.escape_ascii());
        assert_eq!(answer.header("connection"), Some("close"));
    }
    let counted = r#"attend_http_requests_total{route="none",status="400"} 7"#;
    serving.until("counted", || serving.get("/metrics").body.contains(counted));
    // Behind a request that is in order, too.
    let both = [request("GET", "/health", &[("Connection", "keep-alive")], b""), b"what\r\n\r\n".to_vec()].concat();
    let mut stream = connect(serving.address);
    stream.write_all(&both).expect("sent");
    let mut reader = BufReader::new(stream);
    assert_eq!(read(&mut reader).expect("an answer").status, 200);
    assert_eq!(read(&mut reader).expect("an answer").status, 400);
    assert!(read(&mut reader).is_none());
}

#[test]
fn bodies_are_bounded_before_they_are_read() {
    let serving = quick();
    // Declared.
    let head = request("POST", "/v1/completions", &[("Content-Length", "10000000000")], b"");
    assert_eq!(send(serving.address, &head).refused(413)["code"], "body_too_large");
    // Not declared: the server stops reading soon after the limit.
    let head = request("POST", "/v1/completions", &[("Transfer-Encoding", "chunked")], b"");
    let mut stream = connect(serving.address);
    stream.write_all(&head).expect("sent");
    let chunk = [b"10000\r\n".as_slice(), &[b' '; 0x10000], b"\r\n"].concat();
    let mut sent = 0;
    while sent < 64 << 20 && stream.write_all(&chunk).is_ok() {
        sent += chunk.len();
    }
    assert!(sent < 32 << 20, "{sent} bytes were taken");
    // A slow one that declares nothing is refused as soon as it is over the limit, and read no further than 64 KiB behind it.
    let patient = tiny_setup(json!({}), None).ready();
    let mut stream = connect(patient.address);
    stream.write_all(&head).expect("sent");
    let piece = |bytes: usize| [format!("{bytes:x}\r\n").as_bytes(), &vec![b' '; bytes], b"\r\n"].concat();
    let limit = Limits::default().body;
    stream.write_all(&piece(limit)).expect("sent");
    stream.set_read_timeout(Some(Duration::from_millis(100))).expect("set");
    let (mut beyond, mut first) = (0, [0; 12]);
    while stream.read_exact(&mut first).is_err() {
        assert!(beyond < 64 << 10, "{beyond} bytes beyond the limit were taken");
        stream.write_all(&piece(0x1000)).expect("sent");
        beyond += 0x1000;
    }
    assert!(beyond > 0, "the limit itself is allowed");
    assert!(first.ends_with(b" 413"), "{}", first.escape_ascii());
    // A little more than the limit is answered properly.
    let body = vec![b' '; 2_000_001];
    assert_eq!(send(serving.address, &request("POST", "/v1/completions", &[], &body)).status, 413);
    let body = [json!({"prompt": "t5"}).to_string().into_bytes(), vec![b' '; 1_900_000]].concat();
    assert_eq!(send(serving.address, &request("POST", "/v1/completions", &[], &body)).status, 200);
}

#[test]
fn lengths_that_conflict_are_refused() {
    let serving = quick();
    let body = br#"{"prompt": "t5"}"#;
    for headers in [
        &[("Content-Length", "16"), ("Content-Length", "17")][..],
        &[("Content-Length", "16"), ("Transfer-Encoding", "chunked")],
        &[("Transfer-Encoding", "chunked"), ("Content-Length", "16")],
        &[("Transfer-Encoding", "gzip")],
        &[("Content-Length", "-1")],
        &[("Content-Length", "0x10")],
        &[("Content-Length", "16, 16")],
        &[("Content-Length", "+16")],
    ] {
        let mut stream = connect(serving.address);
        let bytes = request("POST", "/v1/completions", &[headers, &[("Connection", "keep-alive")]].concat(), body);
        // What is taken for a second request would be answered.
        let smuggled = request("GET", "/v1/models", &[("Connection", "keep-alive")], b"");
        let _ = stream.write_all(&[bytes, smuggled].concat());
        let mut reader = BufReader::new(stream);
        let answer = read(&mut reader).expect("an answer");
        assert!((400..500).contains(&answer.status), "{headers:?}: {answer:?}");
        answer.refused(answer.status);
        assert!(read(&mut reader).is_none(), "{headers:?}: the connection is closed");
    }
}

#[test]
fn bodies_that_are_encoded_are_refused() {
    let serving = quick();
    for encoding in ["gzip", "br", "zstd", "deflate", "gzip, identity"] {
        let answer =
            send(serving.address, &request("POST", "/v1/completions", &[("Content-Encoding", encoding)], b"{}"));
        answer.refused(415);
    }
}

/// Q5: a head, a body, or silence may take so long and no longer; nobody else notices.
#[test]
fn slow_clients_are_given_up() {
    let serving = quick();
    let bytes = request("POST", "/v1/completions", &[], br#"{"prompt": "t5"}"#);
    let ends = |sent: &[u8]| {
        let mut stream = connect(serving.address);
        stream.write_all(sent).expect("sent");
        let begun = Instant::now();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        (begun.elapsed(), String::from_utf8(rest).expect("UTF-8"))
    };
    std::thread::scope(|scope| {
        let silent = scope.spawn(|| ends(b""));
        let head = scope.spawn(|| ends(&bytes[..20]));
        let body = scope.spawn(|| ends(&bytes[..bytes.len() - 3]));
        let many: Vec<_> = (0..100).map(|_| scope.spawn(|| ends(b"GET /he"))).collect();
        for _ in 0..20 {
            assert_eq!(serving.post("/v1/completions", &json!({"prompt": "t5"})).status, 200);
        }
        let (took, said) = silent.join().expect("ends");
        assert!(said.is_empty() && (Duration::from_millis(700)..Duration::from_secs(10)).contains(&took), "{took:?}");
        let (took, said) = head.join().expect("ends");
        assert!(said.is_empty() && (Duration::from_millis(300)..Duration::from_secs(10)).contains(&took), "{took:?}");
        let (_, said) = body.join().expect("ends");
        assert!(said.starts_with("HTTP/1.1 408"), "{said}");
        many.into_iter().for_each(|one| drop(one.join().expect("ends")));
    });
    serving.until("closed", || serving.get("/metrics").body.contains("attend_http_connections 1\n"));
}

/// A client that does not read is given up, and its request with it.
#[test]
fn clients_that_do_not_read_are_given_up() {
    let mut setup = tiny_setup(json!({"max_position_embeddings": 200_000}), Some(1 << 30));
    setup.limits = Limits { idle: Duration::from_millis(500), ..Limits::default() };
    let serving = setup.ready();
    let body = json!({"prompt": "t5", "max_tokens": 150_000, "ignore_eos": true, "stream": true, "logprobs": 20});
    let mut stream = connect(serving.address);
    stream.write_all(&request("POST", "/v1/completions", &[], body.to_string().as_bytes())).expect("sent");
    serving.until("running", || serving.figure("requests_running") == 1.0);
    serving.until("given up", || serving.log.text().contains("\"left\":true"));
    serving.until_idle();
    drop(stream);
}
