//! Requests that mean nothing, or mean harm: each is refused with words in OpenAI's shape, and the server goes on.

use crate::client::{Answer, request, send};
use crate::openai::with;
use crate::support::{Serving, Setup, golden_encoder, loader, tiny};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";
const EMBEDDINGS: &str = "/v1/embeddings";

/// A case: what it is, and the bytes of the request.
type Case = (String, Vec<u8>);

fn post(path: &str, body: &[u8]) -> Vec<u8> {
    request("POST", path, &[("Content-Type", "application/json")], body)
}

fn case(path: &str, body: Value) -> Case {
    let text = body.to_string();
    (format!("{path} {}", text.chars().take(120).collect::<String>()), post(path, text.as_bytes()))
}

fn raw(path: &str, body: &[u8]) -> Case {
    let shown: String = String::from_utf8_lossy(body).chars().take(80).collect();
    (format!("{path} {shown}"), post(path, body))
}

/// A good request of each route, to be changed.
fn good() -> [(&'static str, Value); 3] {
    [
        (COMPLETIONS, json!({"model": "tiny", "prompt": "t5 t6", "max_tokens": 2})),
        (CHAT, json!({"model": "tiny", "messages": [{"role": "user", "content": "t5"}], "max_tokens": 2})),
        (EMBEDDINGS, json!({"model": "tiny", "input": "t5 t6"})),
    ]
}

/// API-01, API-10, B1: bodies.
fn bodies() -> Vec<Case> {
    let deep = |depth: usize| format!("{{\"prompt\":{}{}}}", "[".repeat(depth), "]".repeat(depth)).into_bytes();
    let mut cases = Vec::new();
    for path in [COMPLETIONS, CHAT, EMBEDDINGS] {
        for body in [
            &b""[..],
            b" ",
            b"{",
            b"}",
            b"null",
            b"true",
            b"1",
            b"\"text\"",
            b"[]",
            b"[{}]",
            b"{}",
            b"{\"model\": }",
            b"{,}",
            b"{} {}",
            b"{\"prompt\": NaN}",
            b"{\"prompt\": Infinity}",
            b"{'prompt': 'x'}",
            b"\xef\xbb\xbf{}",
            b"\xff\xfe{\x00}\x00",
            b"{\"prompt\": \"\xc4\xe3\xba\xc3\"}",
            br#"{"prompt": "\ud800"}"#,
            br#"{"prompt": "\udc00\ud800"}"#,
            br#"{"prompt": "a\u0000b"}"#,
            b"{\"prompt\": \"a\x00b\"}",
            br#"{"prompt": "a", "prompt": "b"}"#,
            b"{\"prompt\": 1e999}",
        ] {
            cases.push(raw(path, body));
        }
        for depth in [101, 129, 10_000, 500_000] {
            cases.push(raw(path, &deep(depth)));
        }
        let many = format!("{{\"prompt\": [{}0]}}", "0,".repeat(300_000));
        cases.push(raw(path, many.as_bytes()));
    }
    cases
}

/// Every field as every type that it is not.
fn types() -> Vec<Case> {
    let fields: [(usize, &str, &[&str]); 24] = [
        (0, "model", &["string"]),
        (0, "prompt", &["string"]),
        (0, "max_tokens", &["whole"]),
        (0, "temperature", &["whole", "number"]),
        (0, "top_p", &["number", "whole"]),
        (0, "n", &["whole"]),
        (0, "stream", &["bool"]),
        (0, "stop", &["string", "list"]),
        (0, "seed", &["whole", "negative"]),
        (0, "logit_bias", &["object"]),
        (0, "logprobs", &["whole"]),
        (0, "echo", &["bool"]),
        (0, "best_of", &["whole"]),
        (0, "presence_penalty", &["whole", "number", "negative"]),
        (1, "messages", &[]),
        (1, "max_completion_tokens", &["whole"]),
        (1, "logprobs", &["bool"]),
        (1, "top_logprobs", &[]),
        (1, "response_format", &[]),
        (1, "tools", &["list"]),
        (2, "input", &["string"]),
        (2, "dimensions", &["whole"]),
        (2, "encoding_format", &[]),
        (2, "truncate", &["bool"]),
    ];
    let values = [
        ("string", json!("x")),
        ("whole", json!(1)),
        ("number", json!(0.5)),
        ("negative", json!(-1)),
        ("bool", json!(true)),
        ("list", json!([])),
        ("object", json!({})),
        ("nested", json!([[["x"]]])),
        ("objects", json!([{"x": 1}])),
    ];
    let mut cases = Vec::new();
    for (route, field, right) in fields {
        for (kind, value) in &values {
            if !right.contains(kind) {
                let (path, body) = &good()[route];
                cases.push(case(path, with(body, json!({field: value}))));
            }
        }
    }
    cases
}

/// API-02 to API-05, B2 to B4: values.
fn values() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut completion = |changes: Value| cases.push(case(COMPLETIONS, with(&good()[0].1, changes)));
    for prompt in [
        json!([200_000]),
        json!([-1]),
        json!([[-1]]),
        json!([4_294_967_295_u64]),
        json!([1.5]),
        json!([1e30]),
        json!([true]),
        json!([4_294_967_296_u64]),
        json!([96]),
        json!([[96]]),
        json!([[]]),
        json!([]),
        json!(""),
        json!([""]),
        json!([null]),
        json!([[5], [null]]),
        json!(["t5", 5]),
        json!([5, "t5"]),
        json!(vec!["t5"; 33]),
        json!(vec![5; 129]),
        json!([{}]),
    ] {
        completion(json!({"prompt": prompt}));
    }
    for (field, list) in [
        ("temperature", vec![json!(-0.1), json!(-1e30), json!(1e30), json!(101)]),
        ("top_p", vec![json!(-0.1), json!(1.1)]),
        ("n", vec![json!(0), json!(17), json!(1_000_000), json!(-1), json!(u64::MAX)]),
        ("best_of", vec![json!(0), json!(1_000_000), json!(17), json!(-1)]),
        ("max_tokens", vec![json!(-1), json!(0), json!(1.5), json!(1e300)]),
        ("logprobs", vec![json!(21), json!(1_000_000), json!(-1)]),
        ("presence_penalty", vec![json!(2.1), json!(-2.1), json!(1e30)]),
        ("frequency_penalty", vec![json!(2.1), json!(-2.1)]),
        ("seed", vec![json!(1.5), json!(1e40)]),
        (
            "stop",
            vec![
                json!(""),
                json!(vec!["x"; 17]),
                json!(vec!["x"; 100_000]),
                json!("x".repeat(257)),
                json!([""]),
                json!([1]),
            ],
        ),
        ("top_k", vec![json!(-1), json!(1.5), json!("5")]),
        ("min_p", vec![json!(-0.1), json!(1.1)]),
        ("repetition_penalty", vec![json!(0), json!(-1)]),
        ("mirostat", vec![json!(1), json!(3)]),
        ("samplers", vec![json!(["magic"]), json!("top_k")]),
        ("num_beams", vec![json!(0), json!(17), json!(1_000_000)]),
        ("stop_ids", vec![json!([96]), json!([-1]), json!(vec![1; 301])]),
        ("banned_tokens", vec![json!([4_294_967_295_u64])]),
        ("min_tokens", vec![json!(3), json!(-1)]),
        ("prompt_lookup_num_tokens", vec![json!(65)]),
        ("suffix", vec![json!("x")]),
        ("stream_options", vec![json!({"include_usage": true})]),
        ("surprise", vec![json!(1)]),
        ("sequence_bias", vec![json!([[[1], 1.0]])]),
        ("dry_sequence_breakers", vec![json!(["x"])]),
    ] {
        for value in list {
            completion(json!({field: value}));
        }
    }
    let biases = |count: usize| (0..count).map(|id| (id.to_string(), json!(1))).collect::<serde_json::Map<_, _>>();
    for bias in [
        json!({"191222": 1}),
        json!({"-1": 1}),
        json!({"abc": 1}),
        json!({"": 1}),
        json!({"96": 1}),
        json!({"5": 1e9}),
        json!({"5": "x"}),
        json!({"5": null}),
        json!({"+5": 1}),
        json!({"5 ": 1}),
        json!({"5.0": 1}),
        json!({"4294967301": 1}),
        Value::Object(biases(301)),
        Value::Object(biases(100_000)),
    ] {
        completion(json!({"logit_bias": bias}));
    }
    completion(json!({"num_beams": 2, "temperature": 1}));
    completion(json!({"num_beams": 2, "stop": "x"}));
    completion(json!({"echo": true, "logprobs": 1, "stream": true}));
    completion(json!({"stream": true, "stream_options": {"surprise": 1}}));
    cases
}

/// B6, B12, API-18 and the rest of a conversation.
fn conversations() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut messages = |messages: Value| cases.push(case(CHAT, json!({"model": "tiny", "messages": messages})));
    let user = |content: Value| json!([{"role": "user", "content": content}]);
    for content in [
        Value::Null,
        json!(1),
        json!([]),
        json!({}),
        json!([1]),
        json!(["x"]),
        json!([{"type": "text"}]),
        json!([{"text": "x"}]),
        json!([{"type": "text", "text": 1}]),
        json!([{"type": "text", "text": "x", "surprise": 1}]),
        json!([{"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/x.png"}}]),
        json!([{"type": "image_url", "image_url": {"url": "http://169.254.169.254/latest"}}]),
        json!([{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]),
        json!([{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]),
        json!([{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}]),
        json!([{"type": "file", "file": {"file_id": "x"}}]),
        json!([{"type": "video_url", "video_url": {"url": "gopher://x"}}]),
    ] {
        messages(user(content));
    }
    for list in [
        json!([]),
        json!("x"),
        json!({}),
        json!([null]),
        json!(["x"]),
        json!([[]]),
        json!([{}]),
        json!([{"role": "user"}]),
        json!([{"content": "x"}]),
        json!([{"role": "wizard", "content": "x"}]),
        json!([{"role": 1, "content": "x"}]),
        json!([{"role": "", "content": "x"}]),
        json!([{"role": "User", "content": "x"}]),
        json!([{"role": "user", "content": "x", "surprise": 1}]),
        json!([{"role": "user", "content": "x", "name": 1}]),
        json!([{"role": "assistant", "tool_calls": "x"}]),
        json!([{"role": "assistant", "tool_calls": [{}]}]),
        json!([{"role": "assistant", "tool_calls": [{"function": {}}]}]),
        json!([{"role": "assistant", "tool_calls": [{"function": {"name": 1}}]}]),
        json!([{"role": "assistant", "content": null}]),
    ] {
        messages(list);
    }
    let mut chat = |changes: Value| cases.push(case(CHAT, with(&good()[1].1, changes)));
    for changes in [
        json!({"top_logprobs": 3}),
        json!({"logprobs": true, "top_logprobs": 21}),
        json!({"logprobs": false, "top_logprobs": 1}),
        json!({"max_tokens": 2, "max_completion_tokens": 3}),
        json!({"max_tokens": 0}),
        json!({"max_completion_tokens": 0}),
        json!({"response_format": {"type": "yaml"}}),
        json!({"response_format": {}}),
        json!({"response_format": "json"}),
        json!({"chat_template": "{{ 1 }}"}),
        json!({"chat_template_kwargs": {"messages": []}}),
        json!({"chat_template_kwargs": {"chat_template": "x"}}),
        json!({"chat_template_kwargs": []}),
        json!({"chat_template_kwargs": {"bos_token": "x"}}),
        json!({"tool_choice": "required"}),
        json!({"tool_choice": {"type": "function", "function": {"name": "x"}}}),
        json!({"functions": [{}]}),
        json!({"modalities": ["audio"]}),
        json!({"audio": {}}),
        json!({"echo": true}),
        json!({"prompt": "x"}),
        json!({"model": "none"}),
        json!({"model": "../../etc/passwd"}),
        json!({"model": "tiny\nINFO forged"}),
        json!({"model": "x".repeat(100_000)}),
        json!({"model": ""}),
        json!({"model": "TINY"}),
        json!({"model": "encoder"}),
        json!({"messages": [{"role": "user", "content": "t5 ".repeat(200)}]}),
    ] {
        chat(changes);
    }
    cases
}

/// B5: what cannot be compiled, or would cost too much.
fn compiled() -> Vec<Case> {
    let deep = |open: &str, close: &str, depth: usize| format!("{}a{}", open.repeat(depth), close.repeat(depth));
    let nested = (0..2000).fold(json!({"type": "string"}), |inner, _| json!({"type": "array", "items": inner}));
    let mut cases = Vec::new();
    let mut ask = |changes: Value| cases.push(case(COMPLETIONS, with(&good()[0].1, changes)));
    for pattern in ["(", ")", "[", "a{2,1}", "*a", "(?<n", "\\", "a{100000000}", "(?=a)b", "\\1(a)", "[z-a]"] {
        ask(json!({"guided_regex": pattern}));
    }
    ask(json!({"guided_regex": "a".repeat(5000)}));
    ask(json!({"guided_regex": deep("(", ")", 3000)}));
    for schema in [
        json!({"type": "mystery"}),
        json!({"type": 7}),
        json!({"$ref": "#/nowhere"}),
        json!({"$ref": "http://127.0.0.1:1/schema"}),
        json!({"pattern": "("}),
        json!({"type": "string", "minLength": -1}),
        json!({"minimum": 5, "maximum": 1, "type": "integer"}),
        json!({"enum": []}),
        json!("text"),
        json!([]),
        json!({"description": "x".repeat(70_000)}),
        nested,
    ] {
        ask(json!({"guided_json": schema}));
    }
    for grammar in ["", "start", "start: a", "start: \"a", "start: start", "%import x.y", "start: /(/"] {
        ask(json!({"guided_grammar": grammar}));
    }
    ask(json!({"guided_choice": []}));
    ask(json!({"guided_choice": [1]}));
    ask(json!({"guided_choice": "x"}));
    ask(json!({"guided_regex": "a", "guided_choice": ["a"]}));
    cases
}

/// B9, B13: vectors, and what a model cannot do.
fn vectors() -> Vec<Case> {
    let changes = [
        json!({"input": [[96]]}),
        json!({"input": [4_294_967_296_u64]}),
        json!({"input": [-1]}),
        json!({"input": [1.5]}),
        json!({"input": [["x"]]}),
        json!({"input": [[]]}),
        json!({"input": []}),
        json!({"input": ""}),
        json!({"input": [""]}),
        json!({"input": [null]}),
        json!({"input": {"x": 1}}),
        json!({"input": vec!["x"; 33]}),
        json!({"input": "t5 ".repeat(200)}),
        json!({"dimensions": 0}),
        json!({"dimensions": 33}),
        json!({"dimensions": -1}),
        json!({"dimensions": u64::MAX}),
        json!({"encoding_format": "hex"}),
        json!({"encoding_format": ""}),
        json!({"input_type": "magic"}),
        json!({"surprise": 1}),
        json!({"model": "none"}),
    ];
    changes.into_iter().map(|changes| case(EMBEDDINGS, with(&good()[2].1, changes))).collect()
}

/// B10, B14, B15: methods, paths, heads.
fn heads() -> Vec<Case> {
    let body = good()[0].1.to_string();
    let headed =
        |headers: &[(&str, &str)]| (format!("{headers:?}"), request("POST", COMPLETIONS, headers, body.as_bytes()));
    let asked = |method: &str, path: &str| (format!("{method} {path}"), request(method, path, &[], b""));
    vec![
        headed(&[("Host", "evil.example")]),
        headed(&[("Host", "evil.example:8080")]),
        headed(&[("Host", "127.0.0.1.evil.example")]),
        headed(&[("Host", "localhost@evil.example")]),
        headed(&[("Host", "")]),
        headed(&[("Origin", "http://evil.example")]),
        headed(&[("Origin", "null")]),
        headed(&[("Content-Encoding", "gzip")]),
        headed(&[("Content-Length", "99999999999")]),
        asked("GET", COMPLETIONS),
        asked("PUT", CHAT),
        asked("DELETE", "/v1/models/tiny"),
        asked("POST", "/health"),
        asked("TRACE", "/v1/models"),
        asked("OPTIONS", "/v1/models"),
        asked("POST", "/"),
        asked("GET", "/v1"),
        asked("GET", "/v1/../etc/passwd"),
        asked("GET", "/..%2f..%2fetc/passwd"),
        asked("GET", "/v1/models/..%2f..%2fetc"),
        asked("GET", "//v1/models"),
        asked("GET", "/V1/MODELS"),
        asked("GET", "/v1/models/"),
        asked("GET", "/v1/models/%00"),
        asked("GET", "/v1/files"),
        asked("GET", "http://evil.example/v1/models"),
        (
            "a foreign name as the target".into(),
            b"GET http://evil.example/v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".to_vec(),
        ),
    ]
}

fn control(serving: &Serving, wanted: &Value) {
    let answer = serving.post(COMPLETIONS, &good()[0].1).good();
    assert_eq!(&answer["choices"], wanted);
}

/// Q1: the median time of a refusal.
fn every_hostile_request_is_refused() -> Duration {
    let (writer, reader) = (tiny(json!({})), golden_encoder("bert-base"));
    let models = vec![("tiny", loader(writer.path(), None)), ("encoder", loader(reader.path(), None))];
    let serving = Setup::new(models).ready();
    let wanted = serving.post(COMPLETIONS, &good()[0].1).good()["choices"].clone();
    let cases = [bodies(), types(), values(), conversations(), vectors(), heads(), compiled()].concat();
    assert!(cases.len() >= 250, "{} cases", cases.len());
    let mut times = Vec::new();
    for (what, bytes) in &cases {
        let begun = Instant::now();
        let answer: Answer = send(serving.address, bytes);
        times.push(begun.elapsed());
        assert!((400..500).contains(&answer.status), "{what}: {answer:?}");
        if answer.body.is_empty() {
            // HTTP that cannot be read has no dialect to answer in; HEAD has no body.
            panic!("{what}: no words: {answer:?}");
        }
        let error = answer.refused(answer.status);
        let message = error["message"].as_str().expect("words");
        assert!(message.len() < 1000 && !message.contains("/tmp/") && !message.contains('\n'), "{what}: {message}");
        control(&serving, &wanted);
    }
    times.sort();
    let median = times[times.len() / 2];
    println!("{} cases, median {median:?}, longest {:?}", cases.len(), times[times.len() - 1]);
    for line in serving.log.text().lines() {
        let line: Value = serde_json::from_str(line).expect("every line is JSON");
        assert_ne!(line["event"], "INFO forged");
    }
    serving.until_idle();
    assert_eq!(serving.figure("faults_total"), 0.0);
    median
}

#[test]
fn every_hostile_request_is_refused_with_words_and_the_next_is_answered() {
    every_hostile_request_is_refused();
}

/// The gate's figure; others may use the machine, so that the best of three counts.
#[test]
#[ignore = "measures"]
fn q1_hostile_requests() {
    let median = (0..3).map(|_| every_hostile_request_is_refused()).min().expect("three");
    eprintln!("gate Q1: every hostile request refused with words, median {:.1} ms", median.as_secs_f64() * 1e3);
    assert!(median < Duration::from_millis(20), "{median:?}");
}

/// API-12: every pair of optional fields, each with a value that is fine by itself.
#[test]
fn pairs_of_fields_never_fault() {
    let folder = tiny(json!({}));
    let serving = Setup::new(vec![("tiny", loader(folder.path(), None))]).ready();
    let fields = [
        ("temperature", json!(0.7)),
        ("top_p", json!(0.5)),
        ("n", json!(2)),
        ("stream", json!(true)),
        ("stop", json!(["t5"])),
        ("seed", json!(3)),
        ("logit_bias", json!({"5": 1})),
        ("logprobs", json!(2)),
        ("echo", json!(true)),
        ("presence_penalty", json!(0.5)),
        ("frequency_penalty", json!(0.5)),
        ("top_k", json!(5)),
        ("min_p", json!(0.1)),
        ("typical_p", json!(0.9)),
        ("mirostat", json!(2)),
        ("repetition_penalty", json!(1.1)),
        ("dry_multiplier", json!(0.8)),
        ("xtc_probability", json!(0.5)),
        ("num_beams", json!(2)),
        ("min_tokens", json!(2)),
        ("ignore_eos", json!(true)),
        ("prompt_lookup_num_tokens", json!(3)),
        ("no_repeat_ngram_size", json!(2)),
        ("skip_special", json!(false)),
        ("banned_tokens", json!([5])),
    ];
    for (index, (first, value)) in fields.iter().enumerate() {
        for (second, other) in &fields[index + 1..] {
            let changes = json!({*first: value, *second: other, "max_tokens": 4});
            let answer = serving.post(COMPLETIONS, &with(&good()[0].1, changes.clone()));
            assert!(answer.status == 200 || answer.status == 400, "{changes}: {answer:?}");
        }
    }
    let chat = [
        ("tools", json!([{"type": "function", "function": {"name": "f"}}])),
        ("tool_choice", json!("required")),
        ("parallel_tool_calls", json!(false)),
        ("reasoning_effort", json!("low")),
        ("reasoning_format", json!("none")),
        ("stream", json!(true)),
        ("logprobs", json!(true)),
        ("n", json!(2)),
        ("stop", json!(["t5"])),
        ("num_beams", json!(2)),
        ("ignore_eos", json!(true)),
        ("min_tokens", json!(2)),
        ("skip_special", json!(false)),
        ("prompt_lookup_num_tokens", json!(3)),
        ("logit_bias", json!({"5": 1})),
        ("frequency_penalty", json!(0.5)),
        ("chat_template_kwargs", json!({"enable_thinking": true})),
    ];
    for (first, value) in &chat {
        for (second, other) in &chat {
            let mut changes = json!({*first: value, *second: other, "max_tokens": 4});
            // What must be called must be there.
            if *first == "tool_choice" && *second != "tools" {
                changes["tools"] = chat[0].1.clone();
            }
            let answer = serving.post(CHAT, &with(&good()[1].1, changes.clone()));
            assert!(answer.status == 200 || answer.status == 400, "{changes}: {answer:?}");
        }
    }
    serving.until_idle();
}
