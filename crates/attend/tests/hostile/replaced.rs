//! A21 and A12: files that are cut or replaced between one look and the next.

use super::Wanted;
use crate::through::golden;
use attend::model::{LoadOptions, Weights, describe, load};
use attend::nn::Model;
use attend_testkit::files::{Files, model, write_all};
use attend_testkit::memory::alone;
use std::path::{Path, PathBuf};

fn models() -> Vec<(&'static str, Files, &'static str, &'static str)> {
    vec![
        ("llama", golden("llama-gqa"), "", "model.safetensors"),
        ("bert", golden("bert-mlm"), "", "model.safetensors"),
        ("t5", golden("t5-v1.1"), "", "model.safetensors"),
        ("shards", model::sharded(1), "", "model-00002-of-00002.safetensors"),
        ("pickle", model::pickled(1, false), "", "pytorch_model.bin"),
        ("gguf", vec![("m.gguf".into(), model::gguf(1).bytes())], "m.gguf", "m.gguf"),
    ]
}

type Spoiler = fn(&Path);

/// Ways to spoil a file. Only lengths can be noticed; other contents of the same length are other weights.
fn spoilers() -> Vec<(&'static str, Spoiler)> {
    vec![
        ("emptied", |path| std::fs::write(path, b"").unwrap()),
        ("cut by a byte", |path| cut(path, 1)),
        ("cut by half", |path| cut(path, std::fs::metadata(path).unwrap().len() / 2)),
        ("deleted", |path| std::fs::remove_file(path).unwrap()),
        ("replaced by a page", |path| {
            std::fs::remove_file(path).unwrap();
            std::fs::write(path, b"<html>").unwrap();
        }),
        ("replaced by a folder", |path| {
            std::fs::remove_file(path).unwrap();
            std::fs::create_dir(path).unwrap();
        }),
    ]
}

fn cut(path: &Path, bytes: u64) {
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    let length = file.metadata().unwrap().len();
    file.set_len(length - bytes).unwrap();
}

/// Whether a loader that saw this happen may still succeed: where it holds the file it opened, the name does not matter.
fn may_succeed(how: &str) -> Wanted {
    match how {
        "deleted" | "replaced by a page" | "replaced by a folder" => Wanted::Either(Vec::new()),
        _ => Wanted::Refused(Vec::new()),
    }
}

fn judge(name: &str, outcome: Result<(), String>, file: &str, wanted: &Wanted) {
    match (outcome, wanted) {
        (Ok(()), Wanted::Either(_)) => {}
        (Err(message), _) => assert!(message.contains(file), "{name}: {message}"),
        (Ok(()), _) => panic!("{name}: loaded"),
    }
}

#[test]
fn files_that_change_between_the_description_and_the_weights() {
    let _alone = alone();
    for (name, files, open, spoilt) in models() {
        for (how, spoil) in spoilers() {
            let folder = tempfile::tempdir().unwrap();
            write_all(folder.path(), &files).unwrap();
            let described = describe(&folder.path().join(open)).unwrap();
            spoil(&folder.path().join(spoilt));
            let options = LoadOptions::default();
            let mut silent = |_: u64, _: u64| {};
            let mut weights = Weights::new(&described, &options, &mut silent);
            let outcome = Model::assemble(described.spec.clone(), &mut weights);
            // The last bytes of an archive are its directory, which has been read.
            let wanted =
                if (name, how) == ("pickle", "cut by a byte") { Wanted::Either(Vec::new()) } else { may_succeed(how) };
            judge(&format!("{name} {how}"), outcome.map(drop).map_err(|e| e.to_string()), spoilt, &wanted);
        }
    }
}

#[test]
fn files_that_change_while_weights_are_read() {
    let _alone = alone();
    for (name, files, open, spoilt) in models() {
        for (how, spoil) in spoilers() {
            let folder = tempfile::tempdir().unwrap();
            write_all(folder.path(), &files).unwrap();
            let path: PathBuf = folder.path().join(spoilt);
            let mut spoil = Some(spoil);
            let mut progress = |_: u64, _: u64| {
                if let Some(spoil) = spoil.take() {
                    spoil(&path);
                }
            };
            let outcome = load(&folder.path().join(open), &LoadOptions::default(), &mut progress);
            // What was read before is right, and a tail that is not read any more is not missed.
            let wanted = if how == "cut by a byte" || how == "cut by half" {
                Wanted::Either(Vec::new())
            } else {
                may_succeed(how)
            };
            judge(&format!("{name} {how}"), outcome.map(drop).map_err(|e| e.to_string()), spoilt, &wanted);
        }
    }
}
