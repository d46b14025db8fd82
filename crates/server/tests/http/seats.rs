//! Models that come and go: on demand, by time, by room; and nothing that is asked is lost on the way.

use crate::client::{self, chunk, connect, request};
use crate::support::{Serving, Setup, loader, parts, tiny, waiting_loader};
use attend_server::{Keep, Limits, Policy};
use serde_json::{Value, json};
use std::io::{BufReader, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

const FOREVER: Policy = Policy { on_demand: true, keep_alive: None, most_models: None, most_bytes: None };

/// A server over tiny models of these names, which are the same but for their sizes.
fn server(names: &[&str], policy: Policy) -> (Serving, TempDir) {
    let folder = tiny(json!({"max_position_embeddings": 20_000}));
    let models = names.iter().map(|name| (*name, loader(folder.path(), Some(1 << 20)))).collect();
    (Setup { policy, ..Setup::new(models) }.start(), folder)
}

fn statuses(serving: &Serving) -> Vec<String> {
    let models = serving.get("/v1/models").good();
    let status = |model: &Value| model["status"].as_str().expect("words").to_owned();
    models["data"].as_array().expect("a list").iter().map(status).collect()
}

fn loaded(serving: &Serving) -> usize {
    serving.get("/api/ps").good()["models"].as_array().expect("a list").len()
}

fn ask(serving: &Serving, model: &str) -> Value {
    let body = json!({"model": model, "prompt": "t5 t6 t7", "max_tokens": 6, "ignore_eos": true});
    serving.post("/v1/completions", &body).good()["choices"][0]["text"].clone()
}

/// Where a model's thread dies, requests that it had fail, and a later one has the model brought anew.
#[test]
fn a_model_whose_thread_has_died_comes_again() {
    let folder = tiny(json!({}));
    let brought = Arc::new(AtomicUsize::new(0));
    let own = Arc::clone(&brought);
    let mut setup = Setup {
        policy: FOREVER,
        ..Setup::new(vec![("a", loader(folder.path(), None)), ("b", loader(folder.path(), None))])
    };
    // What is called on the model's thread when it is loaded.
    setup.tell.loaded = Arc::new(move |model| {
        let dies = model.name == "a" && own.fetch_add(1, Ordering::SeqCst) < 2;
        assert!(!dies, "it dies on purpose");
    });
    let serving = setup.start();
    let said = ask(&serving, "b");
    let body = json!({"model": "a", "prompt": "t5 t6 t7", "max_tokens": 6, "ignore_eos": true});
    let answer = || serving.post("/v1/completions", &body);
    serving.until("well again", || {
        let answer = answer();
        assert!([200, 500].contains(&answer.status), "{answer:?}");
        answer.status == 200
    });
    assert_eq!((answer().good()["choices"][0]["text"].clone(), brought.load(Ordering::SeqCst)), (said, 3));
    assert_eq!(statuses(&serving), ["ready", "ready"]);
    assert_eq!(serving.log.text().matches("\"ended\"").count(), 2, "{}", serving.log.text());
    serving.until_idle();
}

#[test]
fn models_come_when_they_are_asked_for() {
    let (serving, _folder) = server(&["a", "b"], FOREVER);
    assert_eq!(serving.get("/health").good()["models"], json!({"a": "unloaded", "b": "unloaded"}));
    assert_eq!((statuses(&serving), loaded(&serving)), (vec!["unloaded".to_owned(); 2], 0));
    assert_eq!(serving.get("/api/tags").good()["models"].as_array().map(Vec::len), Some(2));
    assert_eq!(serving.figure("model_loaded"), 0.0);
    let said = ask(&serving, "b");
    assert_eq!(statuses(&serving), ["unloaded", "ready"]);
    let there = serving.get("/api/ps").good()["models"].clone();
    assert_eq!((there[0]["name"].as_str(), there.as_array().map(Vec::len)), (Some("b"), Some(1)));
    assert!(there[0]["size"].as_u64().is_some_and(|bytes| bytes > 0), "{there}");
    let described = serving.get("/v1/models/b").good();
    let (weights, most) =
        (described["bytes"].as_u64().expect("bytes"), described["most_bytes"].as_u64().expect("bytes"));
    // Keys and values may take what they were given, and a quarter more is kept of what requests begin with alike.
    assert!(most > weights + (1 << 20) && most < weights + (2 << 20), "{weights} {most}");
    assert_eq!((serving.figure("model_loaded"), serving.figure("model_bytes")), (1.0, most as f64));
    // Nobody who comes while it loads is turned away.
    let all: Vec<Value> = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..12).map(|_| scope.spawn(|| ask(&serving, "a"))).collect();
        asked.into_iter().map(|one| one.join().expect("an answer")).collect()
    });
    assert!(all.iter().all(|one| *one == said), "the models are the same");
    assert_eq!(serving.log.text().matches("\"loaded\"").count(), 2);
    assert_eq!(serving.get("/health").good()["models"], json!({"a": "ready", "b": "ready"}));
}

#[test]
fn ollamas_clients_load_and_unload() {
    let (serving, _folder) = server(&["a"], FOREVER);
    let post = |path: &str, body: Value| serving.post(path, &body).good();
    // Unloading what is not there loads nothing.
    assert_eq!(post("/api/generate", json!({"model": "a", "keep_alive": 0}))["done_reason"], "unload");
    assert_eq!(loaded(&serving), 0);
    assert_eq!(post("/api/generate", json!({"model": "a:latest"}))["done_reason"], "load");
    assert_eq!(loaded(&serving), 1);
    assert_eq!(post("/api/chat", json!({"model": "a", "messages": [], "keep_alive": "0s"}))["done_reason"], "unload");
    serving.until("put out", || loaded(&serving) == 0 && serving.figure("kv_tokens_limit") == 0.0);
    let body = json!({"model": "a", "prompt": "t5", "stream": false, "options": {"num_predict": 3}});
    let kept = |keep: Value| {
        let mut body = body.clone();
        body["keep_alive"] = keep;
        post("/api/generate", body);
    };
    kept(json!(0));
    serving.until("put out behind the answer", || loaded(&serving) == 0);
    kept(json!("300ms"));
    assert_eq!(loaded(&serving), 1);
    serving.until("put out when its time was over", || loaded(&serving) == 0);
    kept(json!("10m"));
    let expires = serving.get("/api/ps").good()["models"][0]["expires_at"].as_str().expect("a time").to_owned();
    kept(json!(-1));
    let later = serving.get("/api/ps").good()["models"][0]["expires_at"].as_str().expect("a time").to_owned();
    assert!(expires < later, "{expires} {later}");
    for wrong in [json!("soon"), json!([1]), json!(true), json!("5 m")] {
        let mut body = body.clone();
        body["keep_alive"] = wrong.clone();
        let answer = serving.post("/api/generate", &body);
        assert!(answer.status == 400 && answer.body.contains("keep_alive"), "{wrong}: {answer:?}");
    }
    // Where models stay, requests cannot put them out.
    let (folder, plain) = (tiny(json!({})), |folder: &TempDir| Setup::new(vec![("a", loader(folder.path(), None))]));
    let serving = plain(&folder).ready();
    serving.post("/api/generate", &json!({"model": "a", "keep_alive": 0})).good();
    assert_eq!((loaded(&serving), serving.get("/health").status), (1, 200));
}

/// Begins a stream of so many tokens, of which the first has come.
fn stream(serving: &Serving, model: &str, tokens: usize) -> BufReader<std::net::TcpStream> {
    let mut connection = connect(serving.address);
    let body = json!({"model": model, "prompt": "t5", "max_tokens": tokens, "ignore_eos": true, "stream": true});
    connection.write_all(&request("POST", "/v1/completions", &[], body.to_string().as_bytes())).expect("sent");
    let mut reader = BufReader::new(connection);
    assert_eq!(client::read_head(&mut reader), 200);
    assert!(chunk(&mut reader).is_some());
    reader
}

#[test]
fn a_model_with_requests_is_not_put_out() {
    let (serving, _folder) = server(&["a", "b"], Policy { most_models: Some(1), ..FOREVER });
    let said = ask(&serving, "a");
    let mut running = stream(&serving, "a", 12_000);
    let order = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(ask(&serving, "b"), said);
            order.lock().expect("whole").push("b");
        });
        serving.until("waiting", || serving.figure("requests_waiting") == 1.0);
        // One that comes later for the model that is there does not push in.
        scope.spawn(|| {
            assert_eq!(ask(&serving, "a"), said);
            order.lock().expect("whole").push("a");
        });
        serving.until("waiting too", || serving.figure("requests_waiting") == 2.0);
        assert_eq!((statuses(&serving)[1].as_str(), order.lock().expect("whole").len()), ("unloaded", 0));
        let mut text = String::new();
        while let Some(bytes) = chunk(&mut running) {
            text += std::str::from_utf8(&bytes).expect("UTF-8");
        }
        assert!(text.contains("\"finish_reason\":\"length\"") && text.ends_with("data: [DONE]\n\n"), "whole");
    });
    assert_eq!(*order.lock().expect("whole"), ["b", "a"]);
    assert_eq!(loaded(&serving), 1);
    // One that goes away while it waits leaves everything as it was.
    let running = stream(&serving, "a", 15_000);
    let mut gone = connect(serving.address);
    gone.write_all(&request("POST", "/v1/completions", &[], br#"{"model": "b", "prompt": "t5"}"#)).expect("sent");
    serving.until("waiting", || serving.figure("requests_waiting") == 1.0);
    drop(gone);
    serving.until("forgotten", || serving.figure("requests_waiting") == 0.0);
    assert_eq!(ask(&serving, "a"), said);
    drop(running);
    serving.until_idle();
}

#[test]
fn memory_bounds_what_is_there() {
    let (serving, _folder) = server(&["a"], FOREVER);
    ask(&serving, "a");
    let one = serving.figure("model_bytes") as u64;
    let (serving, _folder) = server(&["a", "b", "c"], Policy { most_bytes: Some(2 * one + 1), ..FOREVER });
    for name in ["a", "b", "a", "c"] {
        ask(&serving, name);
    }
    // The one that was not used for longest has gone, at the latest when it was known what the last one takes.
    assert_eq!(statuses(&serving), ["ready", "unloaded", "ready"]);
    let (serving, _folder) = server(&["a", "b"], Policy { most_bytes: Some(one - 1), ..FOREVER });
    ask(&serving, "a");
    serving.post("/api/generate", &json!({"model": "a", "keep_alive": 0})).good();
    serving.until("put out", || loaded(&serving) == 0);
    // What it takes is known now.
    let refused = serving.post("/v1/completions", &json!({"model": "a", "prompt": "t5"})).refused(503);
    assert_eq!(refused["code"], "no_room");
    assert!(refused["message"].as_str().is_some_and(|words| words.contains(&one.to_string())), "{refused}");
}

#[test]
fn names_are_several_and_loading_may_fail() {
    let folder = tiny(json!({}));
    let tries = Arc::new(AtomicUsize::new(0));
    let (path, count) = (folder.path().to_owned(), Arc::clone(&tries));
    let flaky = Box::new(move || match count.fetch_add(1, Ordering::SeqCst) {
        0 => Err("the disk is away".to_owned()),
        1 => panic!("the disk is on fire"),
        _ => Ok(parts(&path, None)),
    });
    let mut setup = Setup::new(vec![("good", loader(folder.path(), None)), ("flaky", flaky)]);
    setup.models[0].aliases = vec!["gpt-4o".into(), "default".into()];
    let serving = Setup { policy: FOREVER, ..setup }.start();
    let said = ask(&serving, "gpt-4o");
    assert_eq!((ask(&serving, "default"), ask(&serving, "good")), (said.clone(), said));
    assert_eq!(serving.get("/v1/models/gpt-4o").good()["aliases"], json!(["gpt-4o", "default"]));
    assert_eq!(serving.get("/v1/models").good()["data"].as_array().map(Vec::len), Some(2));
    let body = json!({"model": "flaky", "prompt": "t5"});
    for words in ["the disk is away", "panicked"] {
        let error = serving.post("/v1/completions", &body).refused(500);
        assert!(!error["message"].as_str().is_some_and(|words| words.contains("disk")), "{error}");
        serving.until("said in the log", || serving.log.text().contains(words));
        assert_eq!((serving.get("/health").status, &serving.get("/health").json()["status"]), (503, &json!("failing")));
        ask(&serving, "good");
    }
    serving.post("/v1/completions", &body).good();
    assert_eq!((serving.get("/health").status, tries.load(Ordering::SeqCst)), (200, 3));
}

#[test]
fn those_that_wait_for_a_model_are_bounded_and_told_of_the_end() {
    let folder = tiny(json!({}));
    let (go, slow) = waiting_loader(folder.path());
    let mut setup = Setup { policy: FOREVER, ..Setup::new(vec![("slow", slow)]) };
    setup.limits = Limits { queue: 2, grace: Duration::from_millis(200), ..Limits::default() };
    let mut serving = setup.start();
    let ask = || {
        let mut connection = connect(serving.address);
        connection.write_all(&request("POST", "/v1/completions", &[], br#"{"prompt": "t5"}"#)).expect("sent");
        BufReader::new(connection)
    };
    let mut waiting = [ask(), ask()];
    serving.until("waiting", || serving.figure("requests_waiting") == 2.0);
    assert_eq!(serving.get("/health").good()["models"], json!({"slow": "it is being loaded"}));
    assert_eq!(serving.post("/v1/completions", &json!({"prompt": "t5"})).refused(429)["code"], "queue_full");
    serving.stop();
    for one in &mut waiting {
        assert_eq!(client::read(one).expect("an answer").refused(503)["code"], "stopping");
    }
    go.send(()).expect("it loads");
    assert_eq!(serving.ended(), Ok(()));
}

/// Whatever comes and goes at once: every request is answered as if it were alone, and nothing stays behind.
#[test]
fn loading_and_unloading_lose_nothing() {
    let names = ["a", "b", "c"];
    let policy = Policy { most_models: Some(2), keep_alive: Some(Keep::For(Duration::from_millis(20))), ..FOREVER };
    let (serving, _folder) = server(&names, policy);
    let said = ask(&serving, "a");
    std::thread::scope(|scope| {
        for thread in 0..6u64 {
            let (serving, said) = (&serving, &said);
            scope.spawn(move || {
                let mut random = thread.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
                for _ in 0..25 {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let name = names[(random >> 33) as usize % names.len()];
                    match (random >> 40) % 6 {
                        0 => drop(serving.post("/api/generate", &json!({"model": name, "keep_alive": 0})).good()),
                        1 => {
                            let body = json!({
                                "model": name, "prompt": "t5 t6 t7", "stream": false, "raw": true, "keep_alive": 0,
                                "options": {"num_predict": 6, "temperature": 0}
                            });
                            serving.post("/api/generate", &body).good();
                        }
                        2 => {
                            let mut gone = connect(serving.address);
                            let body = json!({"model": name, "prompt": "t5", "max_tokens": 900, "ignore_eos": true});
                            let bytes = request("POST", "/v1/completions", &[], body.to_string().as_bytes());
                            gone.write_all(&bytes).expect("sent");
                        }
                        _ => assert_eq!(ask(serving, name), *said),
                    }
                }
            });
        }
    });
    serving.until("all gone", || loaded(&serving) == 0 && serving.figure("model_loaded") == 0.0);
    for figure in ["requests_running", "requests_waiting", "kv_tokens", "kv_bytes_limit", "prefix_bytes", "model_bytes"]
    {
        assert_eq!(serving.figure(figure), 0.0, "{figure}");
    }
    assert_eq!(serving.get("/health").status, 200);
    assert_eq!(ask(&serving, "c"), said);
}
