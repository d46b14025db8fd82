//! Adapters at the command line.

mod common;

use common::{attend, goldens, ran, tiny, words};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const TEXT: [u32; 6] = [5, 17, 3, 40, 22, 9];

/// The golden base with a tokenizer, and the golden adapter.
fn case(folder: &Path) -> (PathBuf, PathBuf) {
    (tiny(folder, "lora-llama/base", json!({})), goldens().join("lora-llama/adapter"))
}

fn score(folder: &Path, base: &Path, adapters: &[String]) -> Vec<f64> {
    let mut command = attend(folder);
    command.arg("score").arg("-m").arg(base).args(["--json", "--dtype", "f32", &words(&TEXT)]);
    adapters.iter().for_each(|adapter| {
        command.arg("--lora").arg(adapter);
    });
    let list = ran(&mut command).json();
    let logprobs = list["logprobs"].as_array().expect("a list");
    logprobs.iter().filter_map(Value::as_f64).collect()
}

#[test]
fn an_adapter_counts_as_strongly_as_it_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let (base, adapter) = case(folder.path());
    let with = |scale: &str| score(folder.path(), &base, &[format!("{}{scale}", adapter.display())]);
    let plain = score(folder.path(), &base, &[]);
    assert_eq!(with("=0"), plain);
    let (one, two) = (with(""), with("=2"));
    assert_eq!(with("=1.0"), one);
    let difference = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(difference(&one, &plain) > 1e-3 && difference(&two, &one) > 1e-3);
    // The same adapter twice is one of twice the strength.
    let twice = [adapter.display().to_string(), adapter.display().to_string()];
    assert!(difference(&score(folder.path(), &base, &twice), &two) < 1e-5);
}

#[test]
fn a_wrong_adapter_is_an_error_that_names_what_is_wrong() {
    let folder = tempfile::tempdir().expect("a folder");
    let (base, adapter) = case(folder.path());
    let run = |base: &Path, adapter: &str| {
        ran(attend(folder.path()).arg("run").arg("-m").arg(base).args([
            "--raw",
            "--max-tokens",
            "1",
            "--lora",
            adapter,
            "t5",
        ]))
    };
    let other = tiny(folder.path(), "llama-mha", json!({}));
    let fault = run(&other, &adapter.display().to_string());
    let line = fault.error(1);
    assert!(line.contains("lora_A") || line.contains("lora_B"), "{line}");
    let absent = run(&base, "no-such-folder");
    assert!(absent.error(1).contains("no-such-folder"), "{absent:?}");
    assert!(run(&base, &format!("{}=much", adapter.display())).error(2).contains("--lora"));
}
