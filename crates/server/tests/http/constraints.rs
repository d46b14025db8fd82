//! Answers that must be something: in every dialect, and against requests that mean harm.

use crate::client::Answer;
use crate::openai::with;
use crate::support::{Serving, Setup, decoder, loader};
use attend_testkit::files::model;
use serde_json::{Map, Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use tempfile::TempDir;

/// A tiny decoder with random weights whose tokens are the printable characters of ASCII, behind one that ends.
fn spelling() -> TempDir {
    let mut config = model::config();
    config.extend([("eos_token_id".into(), json!(0)), ("max_position_embeddings".into(), json!(1024))]);
    let character = |id: usize| (char::from(31 + id as u8).to_string(), json!(id));
    let mut words: Map<String, Value> = (1..model::VOCAB.min(96)).map(character).collect();
    words.insert("</s>".into(), json!(0));
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
        "added_tokens": [{
            "id": 0, "content": "</s>", "special": true,
            "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
        }],
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated", "invert": false},
        "decoder": {"type": "Fuse"},
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "?"},
    });
    let template = "{% for m in messages %}{{ m.content }}{% endfor %}";
    decoder(config, &tokenizer, template)
}

fn server() -> Serving {
    let folder = spelling();
    let loader = loader(folder.path(), None);
    Setup { folder: Some(folder), ..Setup::new(vec![("tiny", loader)]) }.ready()
}

/// A schema of which every answer is short.
fn schema() -> Value {
    json!({
        "type": "object",
        "properties": { "ok": { "type": "boolean" }, "kind": { "enum": ["a", "bc"] }, "n": { "type": "integer", "maximum": 99, "minimum": 0 } },
        "required": ["ok", "kind", "n"],
        "additionalProperties": false,
    })
}

#[track_caller]
fn is_of_schema(text: &str) {
    let value: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
    let object = value.as_object().expect("an object");
    assert_eq!(object.len(), 3, "{text}");
    assert!(value["ok"].is_boolean() && value["n"].as_u64().is_some_and(|n| n < 100), "{text}");
    assert!(["a", "bc"].iter().any(|kind| value["kind"] == *kind), "{text}");
}

#[test]
fn every_dialect_has_its_words() {
    let serving = server();
    let messages = json!([{"role": "user", "content": "tell"}]);
    let chat = json!({"messages": messages, "max_tokens": 200, "temperature": 1.0, "seed": 3});
    let text = |answer: &Value| answer["choices"][0]["message"]["content"].as_str().expect("a text").to_owned();
    let strict = json!({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "strict": true, "schema": schema()}}});
    let answer = serving.post("/v1/chat/completions", &with(&chat, strict.clone())).good();
    is_of_schema(&text(&answer));
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    let expected = text(&answer);
    for same in [
        json!({"guided_json": schema()}),
        json!({"json_schema": schema()}),
        json!({"structured_outputs": {"json": schema()}}),
    ] {
        assert_eq!(text(&serving.post("/v1/chat/completions", &with(&chat, same)).good()), expected);
    }
    // A stream says the same.
    let stream = serving.post("/v1/chat/completions", &with(&with(&chat, strict), json!({"stream": true})));
    let streamed: String =
        stream.events().iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(streamed, expected);
    // Several answers, each on its own way.
    let several = with(&chat, json!({"guided_json": schema(), "n": 4}));
    let several = serving.post("/v1/chat/completions", &several).good();
    for index in 0..4 {
        is_of_schema(several["choices"][index]["message"]["content"].as_str().expect("a text"));
    }
    for (wanted, holds) in [
        (
            json!({"guided_regex": "[0-9]{3}-x"}),
            (|text: &str| text.len() == 5 && text.ends_with("-x")) as fn(&str) -> bool,
        ),
        (json!({"guided_choice": ["yes", "no"]}), |text| text == "yes" || text == "no"),
        (json!({"guided_grammar": "start: \"ab\" \"c\""}), |text| text == "abc"),
        (json!({"grammar": "root ::= \"x\" [yz]"}), |text| text == "xy" || text == "xz"),
    ] {
        let body = with(&json!({"prompt": "tell", "max_tokens": 60}), wanted);
        let answer = serving.post("/v1/completions", &body).good();
        let text = answer["choices"][0]["text"].as_str().expect("a text");
        assert!(holds(text) && answer["choices"][0]["finish_reason"] == "stop", "{body}: {text:?}");
    }
    for format in [
        json!({"output_config": {"format": {"type": "json_schema", "schema": schema()}}}),
        json!({"output_format": {"type": "json_schema", "schema": schema()}}),
    ] {
        let body = with(&json!({"model": "tiny", "max_tokens": 200, "messages": messages}), format);
        let answer = serving.post("/v1/messages", &body).good();
        is_of_schema(answer["content"][0]["text"].as_str().expect("a text"));
        assert_eq!(answer["stop_reason"], "end_turn");
    }
    for (path, body, place) in [
        ("/api/chat", json!({"messages": messages}), "/message/content"),
        ("/api/generate", json!({"prompt": "tell"}), "/response"),
    ] {
        let body =
            with(&body, json!({"model": "tiny", "stream": false, "format": schema(), "options": {"num_predict": 200}}));
        let answer = serving.post(path, &body).good();
        is_of_schema(answer.pointer(place).and_then(Value::as_str).expect("a text"));
        let any = serving.post(path, &with(&body, json!({"format": "json", "options": {"num_predict": 30}}))).good();
        assert!(any.pointer(place).and_then(Value::as_str).expect("a text").starts_with('{'));
    }
}

/// Values that no server should compile, and the fields that hold them.
fn hostile() -> Vec<(Value, &'static str)> {
    let nested = |depth: usize| (0..depth).fold(json!({}), |inner, _| json!({"items": inner}));
    let of = |schema: Value| json!({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "strict": true, "schema": schema}}});
    let place = "response_format.json_schema.schema";
    let names: Vec<String> = (0..60_000).map(|index| format!("v{index}")).collect();
    vec![
        (of(nested(80)), place),
        (of(json!({"$ref": "http://127.0.0.1:1/schema"})), place),
        (of(json!({"$ref": "file:///etc/hostname"})), place),
        (of(json!({"enum": names})), place),
        (of(json!({"type": "array", "uniqueItems": true})), place),
        (of(json!({"type": "nothing"})), place),
        (of(json!({"pattern": "(", "type": "string"})), place),
        (
            of(
                json!({"allOf": (0..30).map(|i| json!({"type": "string", "pattern": format!(".*a.{{{i}}}b")})).collect::<Vec<_>>()}),
            ),
            place,
        ),
        (json!({"guided_json": nested(80)}), "guided_json"),
        (json!({"guided_regex": "("}), "guided_regex"),
        (json!({"guided_regex": "(?<=a)b"}), "guided_regex"),
        (json!({"guided_regex": "(".repeat(60_000)}), "guided_regex"),
        (json!({"guided_regex": "a?".repeat(100_000)}), "guided_regex"),
        (json!({"guided_choice": []}), "guided_choice"),
        (json!({"guided_grammar": "start: other"}), "guided_grammar"),
        (json!({"grammar": format!("root ::= {}", "(".repeat(60_000))}), "grammar"),
        (json!({"grammar": (0..5000).map(|i| format!("r{i} ::= r{}\n", i + 1)).collect::<String>()}), "grammar"),
    ]
}

/// Those that are followed, as far as they go.
fn costly() -> Vec<Value> {
    vec![
        json!({"guided_regex": "(a{1,5000}){1,5000}"}),
        json!({"guided_regex": "a{1000000}"}),
        json!({"guided_regex": "(a+)+b"}),
        json!({"guided_regex": ".*a.{30}"}),
        json!({"guided_json": {"$ref": "#"}}),
        json!({"guided_json": {"type": "array", "minItems": 1_000_000_000u64}}),
        json!({"guided_grammar": "start: start \"a\" | start start | \"a\""}),
        json!({"guided_choice": ["é", "日本", "\u{1F600}"]}),
    ]
}

/// API-06..09: each is refused by its field or answered, and the others' answers go on and are what they were.
#[test]
fn hostile_constraints_hurt_nobody_else() {
    let serving = server();
    let stream = json!({"prompt": "a stream", "max_tokens": 60, "seed": 1, "temperature": 1.0, "stream": true});
    let said = |answer: &Answer| -> String {
        answer.events().iter().filter_map(|event| event["choices"][0]["text"].as_str()).collect()
    };
    let expected = said(&serving.post("/v1/completions", &stream));
    /// Ends the others' work, also where this test fails.
    struct Over<'o>(&'o AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let others: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut answers = 0;
                    while !over.load(Ordering::SeqCst) || answers == 0 {
                        assert_eq!(said(&serving.post("/v1/completions", &stream)), expected);
                        answers += 1;
                    }
                    answers
                })
            })
            .collect();
        let end = Over(&over);
        for (wanted, place) in hostile() {
            let body = with(&json!({"prompt": "t", "max_tokens": 20}), wanted);
            let refused = serving.post("/v1/completions", &body).refused(400);
            assert_eq!(refused["param"], place, "{refused}");
            assert!(refused["message"].as_str().is_some_and(|words| words.len() < 600), "{refused}");
        }
        for wanted in costly() {
            let body = with(&json!({"prompt": "t", "max_tokens": 40, "temperature": 1.0}), wanted);
            let answer = serving.post("/v1/completions", &body);
            assert!([200, 400].contains(&answer.status), "{body}: {answer:?}");
        }
        drop(end);
        others.into_iter().for_each(|other| assert!(other.join().expect("no panic") > 0));
    });
    assert_eq!(serving.get("/health").status, 200);
    serving.until_idle();
}
