//! L10: what one client says is in nobody else's answer, whatever the cache shares.

use crate::mix::{Client, Exchange, exchanges};
use crate::serving::{Serving, alone, report};
use attend_testkit::files::{scripted, write_all};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

const CLIENTS: usize = 16;

/// A model that repeats the last word of its prompt for ever, which here is a secret: one for each client.
fn parrot() -> Serving {
    let words: Vec<String> = std::iter::once("?".to_owned())
        .chain((0..CLIENTS).map(|client| format!("<secret{client}>")))
        .chain((0..47).map(|word| format!("w{word} ")))
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let follows: Vec<u32> = (0..words.len() as u32).collect();
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    let model = folder.path().join("parrot");
    write_all(&model, &scripted::folder(&words, &follows, &[0])).expect("written");
    Serving::over(folder, model, &["--no-log"])
}

/// Each client asks with its secret behind what all say alike; how many requests there were.
fn secrets(serving: &Serving, count: usize) -> usize {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let next = &next;
            scope.spawn(move || {
                let own = format!("<secret{client}>");
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        return;
                    }
                    // Behind whole blocks that all share, some of them with the secret already in them.
                    let mut prompt: Vec<usize> = (0..70 + index % 60).map(|at| 17 + at % 47).collect();
                    if index.is_multiple_of(2) {
                        prompt[3] = 1 + client;
                    }
                    prompt.push(1 + client);
                    let body =
                        json!({"prompt": prompt, "max_tokens": 5 + index % 20, "stream": index.is_multiple_of(3)});
                    let answer = serving.post("/v1/completions", &body);
                    assert_eq!(answer.status, 200, "{answer:?}");
                    let others = (0..CLIENTS).filter(|other| *other != client);
                    for other in others {
                        assert!(!answer.body.contains(&format!("<secret{other}>")), "{client} reads {other}'s secret");
                    }
                    assert!(answer.body.matches(&own).count() >= 5, "{answer:?}");
                    assert!(!answer.body.contains('w'), "nothing but the secret: {answer:?}");
                }
            });
        }
    });
    count
}

/// Each client has requests of its own, whose answers and vectors are those that it gets alone.
fn answers(serving: &Serving, all: &[Exchange], count: usize) -> usize {
    let vector = |exchange: &Exchange| -> Value {
        let answer = serving.post("/v1/embeddings", &json!({"input": exchange.prompt})).good();
        answer["data"][0]["embedding"].clone()
    };
    let vectors: Vec<Value> = all.iter().map(vector).collect();
    for own in &vectors {
        let numbers = own.as_array().expect("numbers");
        assert!(
            numbers.iter().all(Value::is_f64) && numbers.iter().any(|number| number.as_f64() != Some(0.0)),
            "{own}"
        );
    }
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (next, vectors) = (&next, &vectors);
            scope.spawn(move || {
                let mut connection = Client::new(serving.address);
                let own: Vec<usize> = (0..all.len()).filter(|index| index % CLIENTS == client).collect();
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        return;
                    }
                    let at = own[index / CLIENTS % own.len()];
                    match index % 4 {
                        0 => assert_eq!(vector(&all[at]), vectors[at], "vectors are one's own"),
                        1 => assert_eq!(connection.whole(&all[at]), 200),
                        _ => assert_eq!(connection.stream(&all[at]).status, 200),
                    }
                }
            });
        }
    });
    count
}

fn l10(count: usize, said: bool) {
    let _alone = alone();
    let (told, hits) = {
        let serving = parrot();
        (secrets(&serving, count), serving.figure("prefix_hits_total"))
    };
    // Little room, so that some are put back.
    let serving = Serving::start(&["--no-log", "--kv-memory", "512KB", "--prefix-cache", "512KB"]);
    let all = exchanges(&serving.model, 64, 5..40);
    let asked = answers(&serving, &all, count);
    serving.until_idle();
    let (more, put_back) = (serving.figure("prefix_hits_total"), serving.figure("preemptions_total"));
    assert!(hits > 0.0 && more > 0.0, "nothing was shared");
    if said {
        let figures = format!(
            "{told} requests with the secrets of {CLIENTS} clients and {asked} answers and vectors beside one another: no leak, \
             every answer and vector as alone; {:.0} began in the cache, {put_back:.0} were put back",
            hits + more
        );
        report("L10", &figures);
    }
}

#[test]
fn l10_cross_talk_in_small() {
    l10(200, false);
}

#[test]
#[ignore = "takes longer"]
fn l10_cross_talk() {
    l10(5000, true);
}
