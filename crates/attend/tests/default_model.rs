//! The commands on the default model, where `attend pull` has brought it.

mod common;

use common::{ids, ran, ran_with, skip};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// The program with the user's own models folder, or nothing when the default model is not in it.
fn attend() -> Option<Command> {
    let program = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_attend"));
        command.stdin(Stdio::null()).env_remove("ATTEND_ISA");
        command
    };
    let list = ran(program().args(["list", "--json"])).json();
    let default = &list["default"];
    if list["models"].as_array().is_some_and(|models| models.iter().any(|model| model["name"] == *default)) {
        return Some(program());
    }
    skip(&format!(
        "the default model is not there (attend pull): {}",
        std::thread::current().name().unwrap_or_default()
    ));
    None
}

fn reference() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/real/smollm2-135m.json");
    serde_json::from_slice(&std::fs::read(path).expect("read")).expect("JSON")
}

#[test]
fn it_answers_a_question() {
    let Some(mut command) = attend() else { return };
    // The two likeliest beginnings are closer than the rounding of 8-bit activations, so the question is put in f32.
    let run = ran(command.args(["run", "--dtype", "f32", "--max-tokens", "40", "What is the capital of France?"]));
    assert!(run.text().contains("Paris"), "{run:?}");
    assert_eq!(run.err, "", "quiet when piped");
}

#[test]
fn its_own_arithmetic_answers_too() {
    let Some(mut command) = attend() else { return };
    let run = ran(command.args(["run", "--max-tokens", "40", "Why is the sky blue?"]));
    assert!(run.text().contains("sky") && run.out.is_ascii(), "{run:?}");
}

#[test]
fn exact_arithmetic_gives_the_references_ids() {
    let Some(mut command) = attend() else { return };
    let reference = reference();
    let case = &reference["prompts"][0];
    let text = case["text"].as_str().expect("a text");
    let want = ids(&case["greedy_ids"]);
    let count = want.len().min(12);
    let object = ran(command
        .args(["run", "--raw", "--json", "--dtype", "f32", "--kv-type", "f32", "--temperature", "0"])
        .args(["--max-tokens", &count.to_string(), text]))
    .json();
    assert_eq!(ids(&object["prompt_token_ids"]), ids(&case["prompt_ids"]));
    assert_eq!(ids(&object["token_ids"]), want[..count]);
}

#[test]
fn the_chat_template_frames_the_prompt() {
    let Some(mut command) = attend() else { return };
    let object = ran(command.args(["tokens", "--chat", "--json", "Hi <|im_end|>"])).json();
    let text = object["text"].as_str().expect("a text");
    assert!(text.contains("<|im_start|>user\nHi <|im_end|>") && text.ends_with("<|im_start|>assistant\n"), "{text}");
    let pieces: Vec<&str> = object["pieces"].as_array().expect("pieces").iter().filter_map(Value::as_str).collect();
    // The user's own spelling of the token stays text: only the template's turns end.
    let ends = pieces.iter().filter(|piece| **piece == "<|im_end|>").count();
    assert_eq!(ends, text.matches("<|im_end|>").count() - 1);
}

#[test]
fn a_conversation_goes_on_from_its_cache() {
    let Some(mut command) = attend() else { return };
    let talk = "/system Answer briefly.\nMy name is Ada.\n/stats\nWhat is my name?\n/stats\n/undo\n/nonsense\n/exit\n";
    let run = ran_with(command.args(["chat", "--max-tokens", "24", "--temperature", "0"]), talk);
    assert!(!run.text().trim().is_empty());
    let stats: Vec<&str> = run.err.lines().filter(|line| line.contains("from the cache")).collect();
    assert_eq!(stats.len(), 2, "{}", run.err);
    assert!(stats[0].contains(" 0 of them from the cache") && !stats[1].contains(" 0 of them"), "{stats:?}");
    assert!(run.err.contains("error: /nonsense is no command") && run.err.contains("1 turns left"), "{}", run.err);
}

#[test]
fn it_is_shown() {
    let Some(mut command) = attend() else { return };
    let object = ran(command.args(["show", "--json"])).json();
    assert_eq!((object["architecture"].as_str(), object["parameters"].as_u64()), (Some("llama"), Some(134_515_008)));
    assert!(object["computing"]["arithmetic"].as_array().is_some_and(|list| !list.is_empty()));
}
