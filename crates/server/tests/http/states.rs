//! Loading, failing, stopping: what the server says of itself is true.

use crate::client::{self, chunk, connect, request};
use crate::support::{BYTES_PER_TOKEN, Setup, loader, tiny, tiny_server, tiny_setup, waiting_loader};
use attend_server::{Keys, Limits};
use attend_testkit::files::{model, safetensors};
use attend_testkit::hostile::spellings;
use serde_json::json;
use std::io::{BufReader, Write};
use std::time::{Duration, Instant};

#[test]
fn a_model_that_is_loading_says_so() {
    let folder = tiny(json!({}));
    let (go, slow) = waiting_loader(folder.path());
    let serving = Setup::new(vec![("slow", slow)]).start();
    assert_eq!((serving.get("/health").status, &serving.get("/health").json()["status"]), (503, &json!("loading")));
    let refused = serving.post("/v1/completions", &json!({"prompt": "t5"}));
    assert_eq!(refused.refused(503)["code"], "model_loading");
    assert!(refused.header("retry-after").is_some());
    assert_eq!(serving.get("/v1/models").good()["data"][0]["status"], "it is being loaded");
    go.send(()).expect("waits");
    serving.until("ready", || serving.get("/health").status == 200);
    serving.post("/v1/completions", &json!({"prompt": "t5"})).good();
}

#[test]
fn a_model_that_cannot_be_loaded_ends_the_server() {
    let mut serving = Setup::new(vec![("broken", Box::new(|| Err("no such file".into())))]).start();
    assert_eq!(serving.ended(), Err("no such file".into()));
}

/// SCH-07 and L7: weights that make no numbers fail the request, not the server, and health tells of it.
#[test]
fn a_damaged_model_is_a_typed_fault_and_health_tells() {
    let folder = tiny(json!({}));
    let mut tensors = model::tensors(11);
    let norm = tensors.iter_mut().find(|tensor| tensor.name == "model.norm.weight").expect("there");
    norm.data.chunks_exact_mut(4).for_each(|number| number.copy_from_slice(&f32::MAX.to_le_bytes()));
    std::fs::write(folder.path().join("model.safetensors"), safetensors::file(&tensors)).expect("written");
    let serving = Setup::new(vec![("damaged", loader(folder.path(), None))]).ready();
    for _ in 0..3 {
        assert_eq!(serving.get("/health").status, 200);
        let error = serving.post("/v1/completions", &json!({"prompt": "t5"})).refused(500);
        assert_eq!((&error["type"], &error["code"]), (&json!("server_error"), &json!("internal_error")));
        assert!(!error["message"].as_str().expect("words").contains("logits"), "{error}");
    }
    assert_eq!((serving.get("/health").status, &serving.get("/health").json()["status"]), (503, &json!("failing")));
    serving.until("said in the log what it was", || serving.log.text().contains("non-finite logits"));
    // A stream that has begun ends with an error in it.
    let stream = serving.post("/v1/completions", &json!({"prompt": "t5", "stream": true}));
    assert!(stream.status == 500 || stream.body.contains("\"server_error\""), "{stream:?}");
    serving.post("/v1/embeddings", &json!({"input": "t5"})).refused(500);
    serving.until_idle();
    assert_eq!(serving.figure("faults_total"), 5.0);
}

#[test]
fn running_work_is_finished_before_the_end() {
    let mut serving = tiny_server(json!({"max_position_embeddings": 20_000}), None);
    let mut stream = connect(serving.address);
    let body = json!({"prompt": "t5", "max_tokens": 2000, "ignore_eos": true, "stream": true});
    stream.write_all(&request("POST", "/v1/completions", &[], body.to_string().as_bytes())).expect("sent");
    let mut kept = connect(serving.address);
    kept.write_all(&request("GET", "/health", &[("Connection", "keep-alive")], b"")).expect("sent");
    let mut kept = BufReader::new(kept);
    assert_eq!(client::read(&mut kept).expect("an answer").status, 200);
    let mut reader = BufReader::new(stream);
    let begun = client::read_head(&mut reader);
    assert_eq!(begun, 200);
    let mut text = String::from_utf8(chunk(&mut reader).expect("a token")).expect("UTF-8");
    serving.stop();
    while let Some(bytes) = chunk(&mut reader) {
        text += std::str::from_utf8(&bytes).expect("UTF-8");
    }
    assert!(text.contains("\"finish_reason\":\"length\"") && text.ends_with("data: [DONE]\n\n"), "whole");
    assert_eq!(serving.ended(), Ok(()));
    assert!(client::read(&mut kept).is_none(), "idle connections are closed");
    assert!(std::net::TcpStream::connect(serving.address).is_err(), "nobody listens any more");
}

#[test]
fn what_takes_too_long_is_cut_with_its_end() {
    let mut setup = tiny_setup(json!({"max_position_embeddings": 60_000}), None);
    setup.limits = Limits { grace: Duration::from_millis(300), ..Limits::default() };
    let mut serving = setup.ready();
    let ask = |stream: bool| {
        let mut connection = connect(serving.address);
        let body = json!({"prompt": "t5", "max_tokens": 59_000, "ignore_eos": true, "stream": stream, "n": 2});
        connection.write_all(&request("POST", "/v1/completions", &[], body.to_string().as_bytes())).expect("sent");
        BufReader::new(connection)
    };
    let (mut whole, mut stream) = (ask(false), ask(true));
    assert_eq!(client::read_head(&mut stream), 200);
    serving.until("running", || serving.figure("requests_running") == 2.0);
    let begun = Instant::now();
    serving.stop();
    let mut text = String::new();
    while let Some(bytes) = chunk(&mut stream) {
        text += std::str::from_utf8(&bytes).expect("UTF-8");
    }
    assert_eq!(text.matches("\"finish_reason\":\"abort\"").count(), 2);
    assert!(text.ends_with("data: [DONE]\n\n"));
    let answer = client::read(&mut whole).expect("an answer").good();
    assert_eq!(answer["choices"][1]["finish_reason"], "abort");
    assert!(answer["choices"][0]["text"].as_str().is_some_and(|text| !text.is_empty()), "what was made is given");
    assert_eq!(serving.ended(), Ok(()));
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[test]
fn who_still_waits_at_the_end_is_told_so() {
    let mut setup = tiny_setup(json!({"max_position_embeddings": 60_000}), Some(60_000 * BYTES_PER_TOKEN));
    setup.limits = Limits { grace: Duration::from_millis(300), ..Limits::default() };
    let mut serving = setup.ready();
    let body = json!({"prompt": vec![5; 40_000], "max_tokens": 19_000, "ignore_eos": true});
    let ask = || {
        let mut connection = connect(serving.address);
        let bytes = request("POST", "/v1/completions", &[], body.to_string().as_bytes());
        connection.write_all(&bytes).expect("sent");
        BufReader::new(connection)
    };
    let mut first = ask();
    serving.until("running", || serving.figure("requests_running") == 1.0);
    let mut second = ask();
    serving.until("waiting", || serving.figure("requests_waiting") == 1.0);
    serving.stop();
    assert_eq!(client::read(&mut second).expect("an answer").refused(503)["code"], "stopping");
    assert_eq!(client::read(&mut first).expect("an answer").good()["choices"][0]["finish_reason"], "abort");
    assert_eq!(serving.ended(), Ok(()));
}

/// API-16: without a key nothing is answered but health and the page's shell, however the path is spelled.
#[test]
fn keys_guard_every_route() {
    let mut setup = tiny_setup(json!({}), None);
    setup.keys = Keys::parse("secret-one\nsecret-two\n").expect("keys");
    let serving = setup.ready();
    let routes = [
        "/",
        "/health",
        "/metrics",
        "/v1/models",
        "/v1/models/tiny",
        "/v1/completions",
        "/v1/chat/completions",
        "/v1/embeddings",
        "/v1/rerank",
        "/v1/classify",
        "/v1/translate",
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/api/tags",
        "/api/chat",
        "/api/generate",
        "/api/show",
        "/embed",
        "/rerank",
        "/tokenize",
        "/nothing",
    ];
    for route in routes {
        for path in spellings(route, "secret-one") {
            for method in ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"] {
                let answer = client::send(serving.address, &request(method, &path, &[], b""));
                let at = |open: &str| path == open || path.starts_with(&format!("{open}?"));
                // The page's shell holds nothing; its test says how it is served.
                let open = at("/health") || at("/");
                assert_eq!(answer.status == 401, !open, "{method} {path}: {}", answer.status);
            }
        }
    }
    for (header, value, good) in [
        ("Authorization", "Bearer secret-one", true),
        ("authorization", "bearer secret-two", true),
        ("X-Api-Key", "secret-two", true),
        ("Authorization", "Bearer secret-thre", false),
        ("Authorization", "Bearer ", false),
        ("Authorization", "Basic secret-one", false),
        ("X-Api-Key", "", false),
    ] {
        let answer = client::send(serving.address, &request("GET", "/v1/models", &[(header, value)], b""));
        assert_eq!(answer.status, if good { 200 } else { 401 }, "{header}: {value}");
    }
    let told = serving.get("/health").json();
    assert!(told.get("models").is_none(), "without a key nobody learns the models' names");
    assert!(!serving.log.text().contains("secret"), "keys are not logged");
}
