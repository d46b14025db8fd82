//! Tiny models of every head with a tokenizer that has the usual special tokens.

use crate::common::{attend, goldens, ran};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// What `tools/record_tasks.py` wrote: the tokenizer of these tests, which has the usual special tokens, a word `w5`,
/// `w6`, ... for every other id, and `##s`, which continues a word; and what others say of the same models.
fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tasks")
}

pub fn recorded() -> Value {
    serde_json::from_slice(&std::fs::read(data().join("tasks.json")).expect("read")).expect("JSON")
}

/// A copy of a golden checkpoint with such a tokenizer, and changes to its config.json.
pub fn model(folder: &Path, case: &str, changes: Value) -> PathBuf {
    let (from, to) = (goldens().join(case), folder.join(case));
    std::fs::create_dir_all(&to).expect("made");
    std::fs::copy(from.join("model.safetensors"), to.join("model.safetensors")).expect("copied");
    let mut config: Value =
        serde_json::from_slice(&std::fs::read(from.join("config.json")).expect("read")).expect("JSON");
    for (key, value) in changes.as_object().expect("an object") {
        config[key] = value.clone();
    }
    write(&to, "config.json", &config);
    std::fs::copy(data().join("tokenizer.json"), to.join("tokenizer.json")).expect("copied");
    let names = json!({"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"});
    write(&to, "tokenizer_config.json", &names);
    to
}

/// Writes a JSON file, and its folder where that is missing.
pub fn write(folder: &Path, name: &str, value: &Value) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    std::fs::write(path, value.to_string()).expect("written");
}

/// Writes `modules.json` with these kinds of modules and their folders.
pub fn modules(model: &Path, kinds: &[(&str, &str)]) {
    let list: Vec<Value> = kinds
        .iter()
        .enumerate()
        .map(|(index, (kind, path))| json!({"idx": index, "name": index.to_string(), "path": path, "type": format!("sentence_transformers.models.{kind}")}))
        .collect();
    write(model, "modules.json", &Value::Array(list));
}

/// What a task says about a text, as JSON lines, computed in f32.
pub fn lines(task: &str, model: &Path, arguments: &[&str]) -> Vec<Value> {
    let mut command = attend(model.parent().expect("a folder"));
    command.arg(task).arg("-m").arg(model).args(["--dtype", "f32", "--json"]).args(arguments);
    let run = ran(&mut command);
    run.text().lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

/// The numbers of a JSON list.
pub fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().expect("a list").iter().map(|number| number.as_f64().expect("a number")).collect()
}

/// The vector of each text.
pub fn vectors(model: &Path, arguments: &[&str]) -> Vec<Vec<f64>> {
    lines("embed", model, arguments).iter().map(|line| numbers(&line["embedding"])).collect()
}

#[track_caller]
pub fn assert_close(found: &[f64], wanted: &[f64], most: f64) {
    assert_eq!(found.len(), wanted.len());
    for (found, wanted) in found.iter().zip(wanted) {
        assert!((found - wanted).abs() <= most, "{found} is not {wanted}");
    }
}

/// A text of this many words.
pub fn text(words: usize, seed: usize) -> String {
    (0..words).map(|index| format!("w{}", 5 + (7 * index + 13 * seed) % 90)).collect::<Vec<_>>().join(" ")
}
