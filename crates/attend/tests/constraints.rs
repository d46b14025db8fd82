//! What answers must be, on the command line, with a tiny model that spells.

mod common;

use common::{attend, ran, ran_with, tiny};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// A tiny model whose tokens are the printable characters of ASCII, behind one that ends an answer.
fn spelling(folder: &Path) -> PathBuf {
    let model = tiny(folder, "llama-gqa", json!({"max_position_embeddings": 500, "eos_token_id": 0}));
    let path = model.join("tokenizer.json");
    let mut tokenizer: Value = serde_json::from_slice(&std::fs::read(&path).expect("read")).expect("JSON");
    let count = tokenizer["model"]["vocab"].as_object().expect("words").len();
    assert!(count >= 96, "{count} tokens");
    let character = |id: usize| (char::from(31 + id as u8).to_string(), json!(id));
    let mut words: Map<String, Value> = (1..96).map(character).collect();
    words.insert("</s>".into(), json!(0));
    tokenizer["model"] = json!({"type": "WordLevel", "vocab": words, "unk_token": "?"});
    tokenizer["pre_tokenizer"] =
        json!({"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated", "invert": false});
    tokenizer["decoder"] = json!({"type": "Fuse"});
    tokenizer["added_tokens"] = json!([{
        "id": 0, "content": "</s>", "special": true,
        "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
    }]);
    std::fs::write(&path, tokenizer.to_string()).expect("written");
    model
}

/// A schema of which every answer is short.
fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {"ok": {"type": "boolean"}, "n": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["ok", "n"],
        "additionalProperties": false,
    })
}

#[track_caller]
fn is_of_schema(value: &Value) {
    let object = value.as_object().unwrap_or_else(|| panic!("{value}"));
    assert_eq!(object.keys().collect::<Vec<_>>(), ["ok", "n"], "{value}");
    assert!(value["ok"].is_boolean() && value["n"].as_u64().is_some_and(|n| n < 100), "{value}");
}

#[test]
fn every_answer_of_a_file_is_of_the_schema() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = spelling(folder.path());
    let (texts, wanted) = (folder.path().join("texts.txt"), folder.path().join("schema.json"));
    std::fs::write(&texts, "one\ntwo\nthree\n").expect("written");
    std::fs::write(&wanted, schema().to_string()).expect("written");
    let mut command = attend(folder.path());
    command.args(["run", "--raw", "--temperature", "1", "--seed", "5", "--max-tokens", "200", "-m"]).arg(&model);
    let run = ran(command.arg("--input").arg(&texts).arg("--json-schema").arg(&wanted));
    let answers: Vec<Value> = run.text().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(answers.len(), 3);
    for answer in answers {
        assert_eq!(answer["finish_reason"], "stop", "{answer}");
        is_of_schema(&serde_json::from_str(answer["text"].as_str().expect("a text")).expect("JSON"));
    }
}

#[test]
fn every_answer_of_a_conversation_is_of_the_schema() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = spelling(folder.path());
    let template = folder.path().join("template.jinja");
    std::fs::write(&template, "{% for message in messages %}{{ message.content }} {% endfor %}").expect("written");
    let mut command = attend(folder.path());
    command.args(["chat", "--temperature", "1", "--seed", "5", "--max-tokens", "200", "--chat-template"]);
    command.arg(&template).arg("-m").arg(&model).args(["--json-schema", &schema().to_string()]);
    let run = ran_with(&mut command, "tell me\nand again\n/regenerate\n");
    let answers = serde_json::Deserializer::from_str(run.text()).into_iter::<Value>();
    let answers: Vec<Value> = answers.collect::<Result<_, _>>().unwrap_or_else(|error| panic!("{error}: {run:?}"));
    assert_eq!(answers.len(), 3, "{run:?}");
    answers.iter().for_each(is_of_schema);
}

#[test]
fn a_schema_that_is_none_is_a_usage_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = spelling(folder.path());
    for (subcommand, given) in [("run", "{\"type\": "), ("chat", "{\"type\": "), ("chat", "missing.json")] {
        let run = ran(attend(folder.path()).arg(subcommand).arg("-m").arg(&model).args(["--json-schema", given]));
        assert!(run.error(2).contains("--json-schema"), "{run:?}");
    }
}
