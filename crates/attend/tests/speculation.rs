//! Guessing ahead as users ask for it: the same answers, and clear words where a draft model does not fit.

mod common;

use common::{Ran, attend, ran, ran_with, tiny};
use serde_json::{Value, json};
use std::path::Path;

const PROMPT: &str = "t5 t9 t11 t5 t9 t12 t7 t5 t9";

fn run(model: &Path, arguments: &[&str]) -> Ran {
    let mut command = attend(model);
    command.args(["run", "--raw", "--json", "--max-tokens", "40", "--ignore-eos", "-m"]).arg(model).args(arguments);
    ran(command.arg(PROMPT))
}

#[test]
fn answers_are_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = tiny(folder.path(), "llama-gqa", json!({"max_position_embeddings": 200}));
    let draft = model.to_str().expect("text");
    for settings in
        [&[][..], &["--temperature", "1.1", "--seed", "3"], &["--n", "2", "--seed", "4", "--temperature", "1"]]
    {
        let ask = |arguments: &[&str]| run(&model, &[settings, arguments].concat()).json();
        let plain = ask(&["--lookup", "0"]);
        assert_eq!(plain["guesses"], json!({"offered": 0, "right": 0}));
        let single = !settings.contains(&"--n");
        for (arguments, guesses) in [
            (&["--lookup", "6"][..], Some(true)),
            (&["--draft", draft, "--draft-tokens", "8"], Some(single)),
            (&["--draft", draft, "--draft-tokens", "3", "--lookup", "2"], Some(true)),
            (&["--draft", draft, "--draft-tokens", "0"], Some(false)),
            // As long as it pays, which the clock says.
            (&[], None),
            (&["--draft", draft], None),
        ] {
            let found = ask(arguments);
            for field in ["token_ids", "text", "choices", "finish_reason", "usage"] {
                assert_eq!(found[field], plain[field], "{settings:?} {arguments:?}");
            }
            let offered = found["guesses"]["offered"].as_u64().expect("a count");
            assert_eq!(offered > 0, guesses.unwrap_or(offered > 0), "{settings:?} {arguments:?}: {}", found["guesses"]);
        }
    }
}

#[test]
fn conversations_are_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = tiny(folder.path(), "llama-gqa", json!({"max_position_embeddings": 300}));
    let template = folder.path().join("template.jinja");
    std::fs::write(&template, "{% for message in messages %}{{ message.content }} {% endfor %}").expect("written");
    let talk = |arguments: &[&str]| {
        let mut command = attend(folder.path());
        command.args(["chat", "--max-tokens", "20", "--ignore-eos", "--chat-template"]).arg(&template);
        command.arg("-m").arg(&model).args(arguments);
        ran_with(&mut command, "t5 t9 t5\nt9 t5 t9\n/regenerate\n/undo\nt3\n").text().to_owned()
    };
    let plain = talk(&["--lookup", "0"]);
    assert_eq!(talk(&[]), plain);
    assert!(plain.lines().count() >= 4, "{plain}");
    assert_eq!(talk(&["--lookup", "5"]), plain);
    assert_eq!(talk(&["--draft", model.to_str().expect("text")]), plain);
}

#[test]
fn drafts_that_do_not_fit_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = tiny(folder.path(), "llama-gqa", json!({}));
    let refused = |draft: &Path| run(&model, &["--draft", draft.to_str().expect("text")]);

    let other = tiny(folder.path(), "llama-mha", json!({}));
    let path = other.join("tokenizer.json");
    let mut tokenizer: Value = serde_json::from_slice(&std::fs::read(&path).expect("read")).expect("JSON");
    let vocab = tokenizer["model"]["vocab"].as_object_mut().expect("words");
    let id = vocab.remove("t7").expect("a word");
    vocab.insert("seven".into(), id);
    std::fs::write(&path, tokenizer.to_string()).expect("written");
    let error = refused(&other);
    let line = error.error(1);
    assert!(line.contains("another vocabulary") && line.contains("\"seven\"") && line.contains("\"t7\""), "{line}");

    let encoder = tiny(folder.path(), "bert-mlm", json!({}));
    assert!(refused(&encoder).error(1).contains("--draft"));
    let translator = tiny(folder.path(), "t5-v1.1", json!({}));
    assert!(refused(&translator).error(1).contains("encoder-decoder"));
    assert!(refused(&folder.path().join("nothing")).error(1).contains("nothing"));

    run(&model, &["--draft-tokens", "3"]).error(2);
    let error = run(&model, &["--lookup", "65"]);
    assert!(error.error(2).contains("--lookup"), "{error:?}");
}
