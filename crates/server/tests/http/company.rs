//! Many clients at once: each gets what it would get alone, and nothing is left of those that go away.

use crate::client::{self, chunk, connect, request};
use crate::openai::{streamed, whole, with};
use crate::support::{BYTES_PER_TOKEN, Setup, golden_encoder, loader, parts, tiny, tiny_server, tiny_setup};
use attend_server::{Bounds, Loader, Parts};
use attend_testkit::files::Random;
use serde_json::{Value, json};
use std::io::{BufReader, Write};
use std::num::NonZeroUsize;
use std::thread;
use std::time::Duration;

/// Requests of every kind.
fn mixed(count: usize) -> Vec<Value> {
    let request = |index: usize| {
        let words: Vec<String> =
            (0..1 + index * 7 % 40).map(|at| format!("t{}", 3 + (index * 13 + at * 5) % 90)).collect();
        let settings = match index % 5 {
            0 => json!({}),
            1 => json!({"temperature": 1.0, "seed": index}),
            2 => json!({"temperature": 1.2, "seed": index, "n": 2}),
            3 => json!({"num_beams": 2}),
            _ => json!({"temperature": 0.8, "seed": index, "logprobs": 2, "stop": ["t9 t"]}),
        };
        with(&json!({"prompt": words.join(" "), "max_tokens": 5 + index * 11 % 50}), settings)
    };
    (0..count).map(request).collect()
}

/// BAT-05, SCH-02: with a memory for keys and values that holds hardly two of them, requests are put back and begun anew.
#[test]
fn neighbours_change_nothing() {
    for (blocks, preempts) in [(4, true), (1 << 20, false)] {
        let serving = tiny_server(json!({}), Some(blocks * 64 * BYTES_PER_TOKEN));
        let requests = mixed(32);
        let alone: Vec<Value> = requests.iter().map(|body| serving.post("/v1/completions", body).good()).collect();
        // How far requests meet is the machine's to say: they are sent again until some had to make room.
        for _ in 0..20 {
            thread::scope(|scope| {
                for offset in 0..16 {
                    let (serving, requests, alone) = (&serving, &requests, &alone);
                    scope.spawn(move || {
                        for index in [offset, 31 - offset, (offset * 5) % 32] {
                            let body = &requests[index];
                            if (index + offset) % 2 == 0 {
                                let answer = serving.post("/v1/completions", body).good();
                                assert_eq!(answer["choices"], alone[index]["choices"], "{body}");
                                assert_eq!(answer["usage"], alone[index]["usage"]);
                            } else {
                                let stream = serving.post("/v1/completions", &with(body, json!({"stream": true})));
                                assert_eq!(streamed(&stream, false), whole(&alone[index], false), "{body}");
                            }
                        }
                    });
                }
            });
            if !preempts || serving.figure("preemptions_total") > 0.0 {
                break;
            }
        }
        assert_eq!(serving.figure("preemptions_total") > 0.0, preempts, "{}", serving.get("/metrics").body);
        serving.until_idle();
    }
}

/// Where at most two answers are made at once a third one waits, and three of one request are refused.
#[test]
fn no_more_at_once_than_is_allowed() {
    let folder = tiny(json!({"max_position_embeddings": 1024}));
    let path = folder.path().to_owned();
    let bounds = Bounds { parallel: NonZeroUsize::new(2), ..Bounds::default() };
    let loader: Loader = Box::new(move || Ok(Parts { bounds, ..parts(&path, None) }));
    let serving = Setup { folder: Some(folder), ..Setup::new(vec![("tiny", loader)]) }.ready();
    let body = json!({"prompt": "t5 t6", "max_tokens": 600, "temperature": 0, "ignore_eos": true});
    let alone = serving.post("/v1/completions", &body).good();
    let most = thread::scope(|scope| {
        let ask = || assert_eq!(serving.post("/v1/completions", &body).good()["choices"], alone["choices"]);
        let clients: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        let mut most = 0.0f64;
        while !clients.iter().all(|client| client.is_finished()) {
            most = most.max(serving.figure("requests_running"));
        }
        most
    });
    assert_eq!(most, 2.0);
    let refused = serving.post("/v1/completions", &with(&body, json!({"n": 3, "temperature": 1}))).refused(400);
    assert!(refused["message"].as_str().is_some_and(|message| message.contains("at most 2 at once")), "{refused}");
}

/// A draft model's keys and values are among those that the memory for them is for.
#[test]
fn a_draft_takes_of_the_memory_for_keys_and_values() {
    let kv_memory = Some(8 * 64 * BYTES_PER_TOKEN);
    let folder = tiny(json!({}));
    let path = folder.path().to_owned();
    let loader: Loader = Box::new(move || {
        let draft = Some(Box::new(parts(&path, None)));
        Ok(Parts { draft, ..parts(&path, kv_memory) })
    });
    let drafted = Setup { folder: Some(folder), ..Setup::new(vec![("tiny", loader)]) }.ready();
    let alone = tiny_server(json!({}), kv_memory);
    assert_eq!((drafted.figure("kv_tokens_limit"), alone.figure("kv_tokens_limit")), (4.0 * 64.0, 8.0 * 64.0));
    let body = json!({"prompt": "t5 t6", "max_tokens": 100, "temperature": 0});
    let [with, without] = [&drafted, &alone].map(|serving| serving.post("/v1/completions", &body).good());
    assert_eq!(with["choices"], without["choices"]);
}

/// SCH-03: whoever goes away is forgotten: queued, while the prompt is read, while the answer is made.
#[test]
fn clients_that_go_away_free_everything() {
    let serving = tiny_server(json!({"max_position_embeddings": 60_000}), Some(200_000 * BYTES_PER_TOKEN));
    let prompt = |tokens: usize| json!(vec![5; tokens]);
    let mut random = Random::new(3);
    let mut open = Vec::new();
    for index in 0..100 {
        let tokens = [3, 300, 3000][index % 3];
        let body = json!({
            "prompt": prompt(tokens), "max_tokens": 40_000, "ignore_eos": true, "stream": index % 2 == 0, "temperature": 1,
        });
        let mut stream = connect(serving.address);
        let bytes = request("POST", "/v1/completions", &[], body.to_string().as_bytes());
        // Some do not even finish asking.
        let end = if index % 10 == 9 { bytes.len() / 2 } else { bytes.len() };
        stream.write_all(&bytes[..end]).expect("sent");
        open.push(stream);
        if random.below(3) == 0 {
            thread::sleep(Duration::from_millis(random.below(20)));
            let at = random.below(open.len() as u64) as usize;
            drop(open.swap_remove(at));
        }
    }
    serving.until("running", || serving.figure("requests_running") > 0.0);
    drop(open);
    let begun = std::time::Instant::now();
    serving.until_idle();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert!(serving.figure("generated_tokens_total") < 100.0 * 40_000.0);
    serving.post("/v1/completions", &json!({"prompt": "t5", "max_tokens": 3})).good();
    serving.until("closed", || serving.get("/metrics").body.contains("attend_http_connections 1\n"));
}

/// L3: the queue has an end, and who is refused knows at once, with when to come again.
#[test]
fn a_full_queue_refuses_the_next() {
    // Room for one request of many tokens at a time.
    let mut setup = tiny_setup(json!({"max_position_embeddings": 60_000}), Some(40_000 * BYTES_PER_TOKEN));
    setup.limits.queue = 3;
    let serving = setup.ready();
    let body = json!({"prompt": vec![5; 20_000], "max_tokens": 15_000, "ignore_eos": true, "stream": true});
    let ask = || {
        let mut stream = connect(serving.address);
        stream.write_all(&request("POST", "/v1/completions", &[], body.to_string().as_bytes())).expect("sent");
        BufReader::new(stream)
    };
    let mut first = ask();
    assert_eq!(client::read_head(&mut first), 200);
    serving.until("running", || serving.figure("requests_running") == 1.0);
    let waiting: Vec<_> = (0..3).map(|_| ask()).collect();
    serving.until("waiting", || serving.figure("requests_waiting") == 3.0);
    for _ in 0..5 {
        let refused = serving.post("/v1/completions", &json!({"prompt": "t5"}));
        assert_eq!(refused.refused(429)["code"], "queue_full");
        assert!(refused.header("retry-after").is_some_and(|seconds| seconds.parse::<u32>().is_ok()));
    }
    drop(first);
    drop(waiting);
    serving.until_idle();
    serving.post("/v1/completions", &json!({"prompt": "t5"})).good();
}

/// SCH-01, SCH-05, SCH-06: what could never fit is refused at once, with figures, and holds nobody up.
#[test]
fn what_cannot_fit_is_refused_at_once() {
    let serving = tiny_server(json!({"max_position_embeddings": 1024}), Some(4 * 64 * BYTES_PER_TOKEN));
    let error = serving.post("/v1/completions", &json!({"prompt": vec![5; 300]})).refused(400);
    assert_eq!(error["code"], "context_length_exceeded");
    let words = error["message"].as_str().expect("words");
    assert!(words.contains("300 tokens") && words.contains("255"), "{words}");
    let many = json!({"prompt": "t5", "n": 8, "max_tokens": 60, "temperature": 1});
    let error = serving.post("/v1/completions", &many).refused(400);
    assert!(error["message"].as_str().expect("words").contains("there is room for 256"), "{error}");
    serving.post("/v1/completions", &with(&many, json!({"n": 2}))).good();
    let messages = json!([{"role": "user", "content": vec!["t5"; 10_000].join(" ")}]);
    assert_eq!(
        serving.post("/v1/chat/completions", &json!({"messages": messages})).refused(400)["code"],
        "context_length_exceeded"
    );
    // More is asked for than there is room: the answer says that its length was the reason.
    let answer =
        serving.post("/v1/completions", &json!({"prompt": "t5", "max_tokens": 1000, "ignore_eos": true})).good();
    assert_eq!(
        (&answer["choices"][0]["finish_reason"], &answer["usage"]["total_tokens"]),
        (&json!("length"), &json!(255))
    );
}

/// Vectors are computed between the steps of a stream, for as many clients as ask, and are nobody else's.
#[test]
fn vectors_and_streams_share_a_model() {
    let serving = tiny_server(json!({"max_position_embeddings": 60_000}), None);
    let texts: Vec<String> = (0..40).map(|index| format!("t{} t{} t{}", 3 + index, 4 + index, 50 - index)).collect();
    let alone: Vec<Value> = texts
        .iter()
        .map(|text| serving.post("/v1/embeddings", &json!({"input": text})).good()["data"][0].clone())
        .collect();
    let mut stream = connect(serving.address);
    let body = json!({"prompt": "t5", "max_tokens": 50_000, "ignore_eos": true, "stream": true});
    stream.write_all(&request("POST", "/v1/completions", &[], body.to_string().as_bytes())).expect("sent");
    let mut reader = BufReader::new(stream);
    assert_eq!(client::read_head(&mut reader), 200);
    chunk(&mut reader).expect("a token");
    thread::scope(|scope| {
        for offset in 0..8 {
            let (serving, texts, alone) = (&serving, &texts, &alone);
            scope.spawn(move || {
                for at in 0..10 {
                    let index = (offset * 5 + at) % texts.len();
                    let body = json!({"input": [texts[index], texts[(index + 1) % 40]]});
                    let answer = serving.post("/v1/embeddings", &body).good();
                    assert_eq!(answer["data"][0]["embedding"], alone[index]["embedding"]);
                    assert_eq!(answer["data"][1]["embedding"], alone[(index + 1) % 40]["embedding"]);
                }
            });
        }
    });
    assert!(serving.figure("requests_running") == 1.0, "the stream goes on");
    chunk(&mut reader).expect("more tokens");
    drop(reader);
    serving.until_idle();
}

/// SCH-08: inputs of any length against the size of a step.
#[test]
fn vectors_of_any_length() {
    let folder = tiny(json!({"max_position_embeddings": 4096}));
    let serving = Setup::new(vec![("tiny", loader(folder.path(), None))]).ready();
    for tokens in [1, 2, 511, 512, 513, 2048] {
        let input = vec!["t7"; tokens].join(" ");
        let answer = serving.post("/v1/embeddings", &json!({"input": [input, "t8"]})).good();
        assert_eq!(answer["usage"]["prompt_tokens"], tokens + 1);
    }
}

/// Two models have threads of their own.
#[test]
fn models_do_not_wait_for_one_another() {
    let (writer, reader) = (tiny(json!({"max_position_embeddings": 60_000})), golden_encoder("bert-base"));
    let models = vec![("writer", loader(writer.path(), None)), ("reader", loader(reader.path(), None))];
    let serving = Setup::new(models).ready();
    let mut stream = connect(serving.address);
    let body = json!({"prompt": "t5", "max_tokens": 50_000, "ignore_eos": true, "stream": true});
    stream.write_all(&request("POST", "/v1/completions", &[], body.to_string().as_bytes())).expect("sent");
    let mut lines = BufReader::new(stream);
    assert_eq!(client::read_head(&mut lines), 200);
    for index in 0..20 {
        serving.post("/v1/embeddings", &json!({"model": "reader", "input": format!("t{}", 5 + index)})).good();
    }
    assert_eq!(serving.figure("requests_running"), 1.0);
    drop(lines);
    serving.until_idle();
}

/// BAT-05: the second request, and the fiftieth, on one connection.
#[test]
fn one_connection_asks_many_times() {
    let serving = tiny_server(json!({}), None);
    let stream = connect(serving.address);
    let mut writer = stream.try_clone().expect("cloned");
    let mut reader = BufReader::new(stream);
    let wanted = serving.post("/v1/completions", &json!({"prompt": "t5 t6", "max_tokens": 8})).good();
    for index in 0..50 {
        let body = json!({"prompt": "t5 t6", "max_tokens": 8, "stream": index % 3 == 0});
        let bytes = request("POST", "/v1/completions", &[("Connection", "keep-alive")], body.to_string().as_bytes());
        writer.write_all(&bytes).expect("sent");
        let answer = client::read(&mut reader).expect("an answer");
        match index % 3 {
            0 => assert_eq!(streamed(&answer, false), whole(&wanted, false)),
            _ => assert_eq!(answer.good()["choices"], wanted["choices"]),
        }
    }
}

/// L2: many at once: each is answered as it would be alone, or told at once to come again.
#[test]
fn a_burst_is_answered_or_refused() {
    let mut setup = tiny_setup(json!({}), Some(8 * 64 * BYTES_PER_TOKEN));
    setup.limits.queue = 40;
    let serving = setup.ready();
    let body = |index: usize| json!({"prompt": format!("t{} t{}", 3 + index % 50, 5 + index % 7), "max_tokens": 60});
    let alone: Vec<Value> = (0..50 * 7).map(|index| serving.post("/v1/completions", &body(index)).good()).collect();
    let counts = thread::scope(|scope| {
        let ask = |index: usize| {
            let (serving, alone) = (&serving, &alone);
            move || {
                let answer = serving.post("/v1/completions", &body(index));
                match answer.status {
                    200 => assert_eq!(answer.json()["choices"], alone[index]["choices"]),
                    _ => drop(answer.refused(429)),
                }
                answer.status
            }
        };
        let clients: Vec<_> = (0..256).map(|index| scope.spawn(ask(index))).collect();
        let statuses: Vec<u16> = clients.into_iter().map(|client| client.join().expect("an answer")).collect();
        (
            statuses.iter().filter(|status| **status == 200).count(),
            statuses.iter().filter(|status| **status == 429).count(),
        )
    });
    assert!(counts.0 >= 40 && counts.0 + counts.1 == 256, "{counts:?}");
    serving.until_idle();
    serving.post("/v1/completions", &body(0)).good();
}
