//! A folder of a sentence-embedding model as a GGUF file and back: the same vectors, and what is lost is said.

use crate::common::{attend, ran};
use crate::support::{assert_close, model, modules, vectors, write};
use attend::model::describe;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const TEXTS: [&str; 2] = ["w5 w6 w7 w8", "w9 w10"];

/// The converted model and what was said.
fn convert(from: &Path, name: &str) -> (PathBuf, String) {
    let place = from.parent().expect("a folder");
    let to = place.join(name);
    let said = ran(attend(place).args(["convert", "--dtype", "f32", "--force", "-m"]).arg(from).arg(&to));
    said.text();
    (to, said.err)
}

fn number(gguf: &Path) -> Option<usize> {
    describe(gguf).expect("described").checkpoint.config().usize_opt("pooling_type").expect("a number")
}

const KINDS: [(&str, &str); 3] = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")];

#[test]
fn pooling_goes_into_a_gguf_file_and_comes_back() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let model = model(place.path(), "bert-base", json!({}));
    modules(&model, &KINDS);
    for (config, wanted) in [
        (json!({"pooling_mode_cls_token": true}), 2),
        (json!({"pooling_mode": "mean"}), 1),
        (json!({"pooling_mode": ["lasttoken"]}), 3),
        (json!({"pooling_mode_cls_token": false, "pooling_mode_mean_tokens": true}), 1),
    ] {
        write(&model, "1_Pooling/config.json", &config);
        let (gguf, said) = convert(&model, "there.gguf");
        assert_eq!(number(&gguf), Some(wanted), "{config}");
        assert!(!said.contains("GGUF has no place"), "{config}: {said}");
        // Over what the round before left.
        let (back, _) = convert(&gguf, "back");
        let before = vectors(&model, &TEXTS);
        for other in [&gguf, &back] {
            for (found, wanted) in vectors(other, &TEXTS).iter().zip(&before) {
                assert_close(found, wanted, 1e-6);
            }
        }
    }
    let mut left: Vec<String> = std::fs::read_dir(place.path().join("back"))
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"))
        .collect();
    left.sort();
    assert!(left.iter().all(|name| !name.starts_with('.') && !name.ends_with("partial")), "{left:?}");
    assert!(["1_Pooling", "config.json", "modules.json"].iter().all(|name| left.iter().any(|l| l == name)), "{left:?}");
}

#[test]
fn what_gguf_cannot_say_of_vectors_is_said() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let model = model(place.path(), "bert-base", json!({}));
    // Nothing says how vectors are made: nothing is written and nothing lost.
    let (gguf, said) = convert(&model, "plain.gguf");
    assert_eq!((number(&gguf), said.contains("has no place")), (None, false), "{said}");
    modules(&model, &KINDS[..2]);
    write(&model, "config_sentence_transformers.json", &json!({"prompts": {"query": "w7 "}}));
    let several = json!({"pooling_mode_cls_token": true, "pooling_mode_max_tokens": true, "include_prompt": false});
    let of = |config: &Value, words: &[&str]| {
        write(&model, "1_Pooling/config.json", config);
        let (gguf, said) = convert(&model, "less.gguf");
        for word in words {
            assert!(said.contains(word), "{config}, {word}: {said}");
        }
        number(&gguf)
    };
    assert_eq!(of(&several, &["cls_token, max_tokens", "length 1", "query", "do not count"]), None);
    assert_eq!(of(&json!({"pooling_mode": "weightedmean"}), &["(weightedmean_tokens)"]), None);
    assert_eq!(of(&json!({"pooling_mode": "cls"}), &["length 1", "query"]), Some(2));
    // A module that is not known is no reason to write less without a word.
    modules(&model, &[("Transformer", ""), ("WordWeights", "1_Pooling")]);
    let run = ran(attend(place.path()).args(["convert", "-m"]).arg(&model).arg(place.path().join("none.gguf")));
    assert!(run.error(1).contains("WordWeights"), "{run:?}");
}
