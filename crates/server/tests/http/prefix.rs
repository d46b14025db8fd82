//! Requests that begin alike: the same answer, computed once, and counted.

use crate::client::{request, send};
use crate::support::{BYTES_PER_TOKEN, tiny_server, tiny_setup};
use attend_server::Keys;
use serde_json::{Value, json};

fn cached(answer: &Value) -> u64 {
    answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().expect("a number")
}

/// CCH-04: answers from a kept prefix are the ones without, also after requests that ended by a stop string or were cut.
#[test]
fn an_answer_from_a_kept_prefix_is_the_one_without() {
    let serving = tiny_server(json!({}), Some(1 << 24));
    let prompt = |last: u32| -> Vec<u32> { (0..99).map(|at| 3 + at * 7 % 90).chain([last]).collect() };
    let ask = |last: u32, changes: Value| {
        let mut body = json!({"prompt": prompt(last), "max_tokens": 12, "temperature": 1.0, "seed": last});
        body.as_object_mut().expect("an object").extend(changes.as_object().cloned().expect("an object"));
        serving.post("/v1/completions", &body).good()
    };
    // The prompt's own log-probabilities need every row, so that nothing is taken from what is kept.
    let cold: Vec<Value> = (3..23).map(|last| ask(last, json!({"echo": true, "logprobs": 0}))).collect();
    assert!(cold.iter().all(|answer| cached(answer) == 0));
    assert_eq!(serving.figure("prefix_hits_total"), 0.0);
    let changes = [json!({}), json!({"stop": ["t9", "t1"]}), json!({"max_tokens": 1}), json!({"n": 3})];
    for round in 0..4 {
        for (index, cold) in cold.iter().enumerate() {
            ask(3 + index as u32, changes[(round + index) % 4].clone());
            let warm = ask(3 + index as u32, json!({}));
            assert_eq!(cached(&warm), 64);
            let text = |answer: &Value| answer["choices"][0]["text"].as_str().expect("a text").to_owned();
            assert!(text(cold).ends_with(&text(&warm)), "{cold} {warm}");
            assert_eq!(cold["choices"][0]["finish_reason"], warm["choices"][0]["finish_reason"]);
        }
    }
    assert_eq!(serving.figure("prefix_hits_total"), 160.0);
    assert_eq!(serving.figure("prefix_tokens_total"), 160.0 * 64.0);
    assert!(serving.figure("prefix_bytes") >= (64 * BYTES_PER_TOKEN) as f64);
    serving.until_idle();
}

/// CCH-07: nobody can tell from how soon an answer begins what was asked with another key, or under another salt.
#[test]
fn keys_and_salts_keep_what_they_left_to_themselves() {
    let mut setup = tiny_setup(json!({}), Some(1 << 24));
    setup.keys = Keys::parse("secret-one\nsecret-two\n").expect("keys");
    let serving = setup.ready();
    let ask = |key: &str, salt: Option<&str>| {
        let mut body = json!({"prompt": (0..99).map(|at| 3 + at * 7 % 90).collect::<Vec<u32>>(), "max_tokens": 2});
        if let Some(salt) = salt {
            body["cache_salt"] = salt.into();
        }
        let bytes = serde_json::to_vec(&body).expect("plain data");
        send(serving.address, &request("POST", "/v1/completions", &[("x-api-key", key)], &bytes)).good()
    };
    let texts: Vec<Value> = ["secret-one", "secret-two"]
        .into_iter()
        .flat_map(|key| [None, Some("a"), Some("b")].map(|salt| (key, salt)))
        .map(|(key, salt)| {
            let first = ask(key, salt);
            assert_eq!(cached(&first), 0, "{key} {salt:?}");
            assert_eq!(cached(&ask(key, salt)), 64, "{key} {salt:?}");
            first["choices"][0]["text"].clone()
        })
        .collect();
    assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
    let body = json!({"prompt": "x", "cache_salt": ""}).to_string();
    let refused =
        send(serving.address, &request("POST", "/v1/completions", &[("x-api-key", "secret-one")], body.as_bytes()));
    assert_eq!(refused.refused(400)["param"], "cache_salt");
}
