//! L7: faults that are put in: only the request that meets one fails, and health tells the truth.
//!
//! A token whose row of the output's norm overflows makes logits that are no numbers; a template with a long loop, and a
//! text of nearly two megabytes, make requests slow to get ready; a queue of one is full at once. Steps that panic are in `server`'s own tests, with a trap in
//! the place of a model.

use crate::client::{Answer, chunk, connect, read_head, request};
use crate::mix::{Client, Exchange, exchanges};
use crate::serving::{Over, SIZE, Serving, alone, decoder_with, report};
use attend_testkit::files::model::tensors_of;
use attend_testkit::files::safetensors::{self, Tensor};
use serde_json::{Value, json};
use std::io::{BufReader, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The token that cannot be answered.
const CURSED: usize = 77;
/// The channel of hidden states that it alone has something in.
const CHANNEL: usize = 5;

/// The decoder's weights with a channel that nothing writes to but the cursed token's row of the table, and that the last
/// norm makes too large for a number.
fn cursed() -> Vec<Tensor> {
    let mut tensors = tensors_of(&SIZE, 11);
    let set = |tensor: &mut Tensor, index: usize, value: f32| {
        tensor.data[index * 4..index * 4 + 4].copy_from_slice(&value.to_le_bytes());
    };
    for tensor in &mut tensors {
        let columns = tensor.shape.last().copied().expect("a shape");
        match tensor.name.as_str() {
            "model.embed_tokens.weight" => {
                for token in 0..SIZE.vocab {
                    set(tensor, token * columns + CHANNEL, if token == CURSED { 5.0 } else { 0.0 });
                }
            }
            name if name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight") => {
                (0..columns).for_each(|column| set(tensor, CHANNEL * columns + column, 0.0));
            }
            "model.norm.weight" => set(tensor, CHANNEL, f32::MAX),
            // It is never chosen, only asked for.
            "lm_head.weight" => (0..columns).for_each(|column| set(tensor, CURSED * columns + column, 0.0)),
            _ => {}
        }
    }
    tensors
}

fn server() -> Serving {
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    let model = decoder_with(folder.path(), &SIZE, json!({}), safetensors::file(&cursed()));
    // As many steps as a template may take, where a message asks for them.
    let template = "{% for m in messages %}{{ m.content }} {% if 'slow' in m.content %}{% for a in range(700) %}\
                    {% for b in range(700) %}{% endfor %}{% endfor %}{% endif %}{% endfor %}t9";
    std::fs::write(model.join("chat_template.jinja"), template).expect("written");
    Serving::over(folder, model, &["--queue", "24"])
}

fn typed(answer: &Answer, status: u16) {
    let error = answer.refused(status);
    let words = error["message"].as_str().expect("words");
    assert!(!words.contains("panicked") && !words.contains("/tmp/"), "{error}");
}

/// A request that meets the curse, whole or streamed.
fn curse(serving: &Serving, stream: bool) {
    let body = json!({"prompt": [5, 6, CURSED], "max_tokens": 5, "stream": stream});
    let answer = serving.post("/v1/completions", &body);
    match answer.status {
        500 => typed(&answer, 500),
        _ => assert!(stream && answer.status == 200 && answer.body.contains("\"server_error\""), "{answer:?}"),
    }
}

/// Fills the queue, and is told so. Refusals meanwhile are the others' luck too.
fn crowd(serving: &Serving) -> usize {
    let refused = AtomicUsize::new(0);
    let body = json!({
        "prompt": vec![5; 600], "n": 16, "max_tokens": 30, "temperature": 1, "ignore_eos": true, "banned_tokens": [CURSED],
    });
    thread::scope(|scope| {
        for _ in 0..40 {
            scope.spawn(|| {
                let answer = serving.post("/v1/completions", &body);
                match answer.status {
                    200 => {}
                    429 => {
                        typed(&answer, 429);
                        refused.fetch_add(1, Ordering::Relaxed);
                    }
                    _ => panic!("{answer:?}"),
                }
            });
        }
    });
    refused.into_inner()
}

/// What is slow to be made ready; how long it took.
fn slow(serving: &Serving) -> Duration {
    let begun = Instant::now();
    let body =
        json!({"messages": [{"role": "user", "content": format!("slow {}", "t5 ".repeat(600_000))}], "max_tokens": 2});
    let answer = serving.post("/v1/chat/completions", &body);
    assert!([200, 400, 429].contains(&answer.status), "{answer:?}");
    begun.elapsed()
}

fn healthy(serving: &Serving) -> bool {
    serving.get("/health").status == 200
}

fn l7(rounds: usize, said: bool) {
    let _alone = alone();
    let serving = server();
    let all: Vec<Exchange> =
        exchanges(&serving.model, 80, 5..40).into_iter().filter(|one| !one.prompt.contains(&(CURSED as u32))).collect();
    let (over, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (mut refused, mut slowest) = (0, Duration::ZERO);
    thread::scope(|scope| {
        for offset in 0..3 {
            let (serving, all, over, answered) = (&serving, &all, &over, &answered);
            scope.spawn(move || {
                let mut client = Client::new(serving.address);
                let mut index = offset;
                while !over.load(Ordering::Relaxed) {
                    index += 1;
                    // Whoever comes while the queue is full is told so.
                    let seen = client.stream(&all[index % all.len()]);
                    assert!([200, 429].contains(&seen.status), "{seen:?}");
                    answered.fetch_add(usize::from(seen.status == 200), Ordering::Relaxed);
                    if seen.status != 200 {
                        thread::sleep(Duration::from_millis(20));
                    }
                }
            });
        }
        let _end = Over(&over);
        for round in 0..rounds {
            curse(&serving, round.is_multiple_of(2));
            if round.is_multiple_of(10) {
                refused += crowd(&serving);
            }
            if round.is_multiple_of(5) {
                slowest = slowest.max(slow(&serving));
            }
        }
    });
    serving.until_idle();
    let faults = serving.figure("faults_total");
    assert_eq!(faults, rounds as f64, "only the cursed ones failed");
    // Three faults one after the other are trouble, and an answer ends it.
    let mut client = Client::new(serving.address);
    assert_eq!(client.stream(&all[0]).status, 200);
    assert!(healthy(&serving));
    for _ in 0..3 {
        curse(&serving, false);
    }
    assert!(!healthy(&serving), "three faults in a row are said");
    assert_eq!(client.stream(&all[0]).status, 200);
    assert!(healthy(&serving), "it answers again");
    // A stream that has begun beside a fault ends as it would have.
    let mut reader = BufReader::new(connect(serving.address));
    let body = json!({"prompt": [5, 6], "max_tokens": 300, "ignore_eos": true, "stream": true}).to_string();
    reader.get_mut().write_all(&request("POST", "/v1/completions", &[], body.as_bytes())).expect("sent");
    assert_eq!(read_head(&mut reader), 200);
    chunk(&mut reader).expect("a token");
    curse(&serving, false);
    let mut rest = String::new();
    while let Some(bytes) = chunk(&mut reader) {
        rest += std::str::from_utf8(&bytes).expect("text");
    }
    assert!(rest.contains("\"finish_reason\":\"length\"") && !rest.contains("server_error"), "{rest}");
    let log = serving.log();
    let told = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    assert!(told.filter(|line| line.to_string().contains("non-finite logits")).count() >= 3, "the log says why");
    if said {
        report(
            "L7",
            &format!(
                "{rounds} rounds of logits that are no numbers, full queues ({refused} refused with 429) and requests slow to \
                 make ready ({:.2} s): {faults:.0} typed faults, {} answers beside them all as alone",
                slowest.as_secs_f64(),
                answered.into_inner()
            ),
        );
    }
}

#[test]
fn l7_injected_faults_in_small() {
    l7(6, false);
}

#[test]
#[ignore = "takes longer"]
fn l7_injected_faults() {
    l7(100, true);
}
