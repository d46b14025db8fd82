//! Running the built program, and tiny models for it to run.
#![allow(dead_code, reason = "each test program uses a part")]

pub mod real;

pub use attend_testkit::skip;
use serde_json::{Map, Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The folder of golden cases.
pub fn goldens() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens")
}

/// The program with an empty models folder, no network and no terminal.
pub fn attend(models: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_attend"));
    command
        .env("ATTEND_MODELS", models)
        .env("HF_HUB_OFFLINE", "1")
        .env("HF_HUB_CACHE", models.join("no-cache"))
        .env_remove("HF_TOKEN")
        .env_remove("ATTEND_ISA")
        .stdin(Stdio::null());
    command
}

/// What came of a run.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8 output");
        Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}

pub fn ran(command: &mut Command) -> Ran {
    command.output().expect("the program starts").into()
}

/// Runs with a text on standard input.
pub fn ran_with(command: &mut Command, input: &str) -> Ran {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("the program reads");
    child.wait_with_output().expect("the program ends").into()
}

impl Ran {
    /// The standard output of a success.
    #[track_caller]
    pub fn text(&self) -> &str {
        assert_eq!(self.code, Some(0), "{self:?}");
        &self.out
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(self.text()).expect("one JSON object")
    }

    /// One line that starts with `error:`, nothing on standard output, this exit code; returns the line.
    #[track_caller]
    pub fn error(&self, code: i32) -> &str {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert_eq!(self.out, "", "{self:?}");
        let line = self.err.lines().last().unwrap_or_default();
        assert!(line.starts_with("error: "), "{self:?}");
        let errors = self.err.lines().filter(|line| line.starts_with("error:")).count();
        assert_eq!(errors, 1, "{self:?}");
        assert!(!self.err.contains("panicked"), "{self:?}");
        line
    }
}

/// A copy of a golden checkpoint with a tokenizer whose tokens are `t0`, `t1`, ..., and changes to its config.json.
pub fn tiny(folder: &Path, case: &str, changes: Value) -> PathBuf {
    let (from, to) = (goldens().join(case), folder.join(case));
    std::fs::create_dir_all(&to).expect("made");
    for name in ["config.json", "model.safetensors", "generation_config.json"] {
        if from.join(name).exists() {
            std::fs::copy(from.join(name), to.join(name)).expect("copied");
        }
    }
    let path = to.join("config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).expect("read")).expect("JSON");
    for (key, value) in changes.as_object().expect("an object") {
        config[key] = value.clone();
    }
    std::fs::write(&path, config.to_string()).expect("written");
    let vocab = config["vocab_size"].as_u64().expect("a vocabulary");
    std::fs::write(to.join("tokenizer.json"), tokenizer(vocab).to_string()).expect("written");
    to
}

fn tokenizer(vocab: u64) -> Value {
    let words: Map<String, Value> = (0..vocab).map(|id| (format!("t{id}"), json!(id))).collect();
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [],
        "normalizer": null,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": null,
        "decoder": null,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "t0"},
    })
}

/// Token ids as the text that such a tokenizer reads.
pub fn words(ids: &[u32]) -> String {
    ids.iter().map(|id| format!("t{id}")).collect::<Vec<_>>().join(" ")
}

/// The ids in a JSON list.
#[track_caller]
pub fn ids(value: &Value) -> Vec<u32> {
    value.as_array().expect("a list").iter().map(|id| id.as_u64().expect("an id") as u32).collect()
}
