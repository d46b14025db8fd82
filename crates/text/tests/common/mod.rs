//! What the tests share: golden files, and the folder of real tokenizers.
#![allow(dead_code)]

use attend_text::{Origin, Tokenizer};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// The folder of golden files.
pub fn goldens() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens")
}

/// The folder of real models: `ATTEND_TEST_MODELS`, else `models` beside the crates. It need not exist.
pub fn models() -> PathBuf {
    match std::env::var_os("ATTEND_TEST_MODELS") {
        Some(folder) => folder.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models"),
    }
}

pub fn json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

pub fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub fn text(value: &Value) -> String {
    value.as_str().unwrap().to_string()
}

pub fn ids(value: &Value) -> Vec<u32> {
    list(value).iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

/// Every golden tokenizer whose file is here. Says which are not: the large ones are not part of the source tree.
pub fn golden_tokenizers() -> Vec<(String, Value, Tokenizer)> {
    let folder = goldens().join("tokenizers");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.extension().is_some_and(|end| end == "json")) {
        let golden = json(file);
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        let own = folder.join(&name).join("tokenizer.json");
        let sha = golden["sha256"].as_str().unwrap();
        let path = if own.is_file() { Some(own) } else { find_by_hash(&name, sha) };
        match path {
            Some(path) => found.push((name, golden, Tokenizer::open(&path).unwrap())),
            None => eprintln!(
                "skipped: {name}: no tokenizer.json of the right checksum in {} ({})",
                models().display(),
                golden["source"].as_str().unwrap_or_default()
            ),
        }
    }
    found
}

/// `NAME/tokenizer.json` in the models folder, or any other folder's, by its checksum.
fn find_by_hash(name: &str, sha: &str) -> Option<PathBuf> {
    let mut candidates = vec![models().join(name).join("tokenizer.json")];
    for entry in std::fs::read_dir(models()).into_iter().flatten().flatten() {
        candidates.push(entry.path().join("tokenizer.json"));
    }
    candidates
        .into_iter()
        .find(|path| path.is_file() && std::fs::read(path).is_ok_and(|bytes| hex(&Sha256::digest(&bytes)) == sha))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Every special token's id.
pub fn all_specials(tokenizer: &Tokenizer) -> Vec<u32> {
    (0..tokenizer.vocab_size() as u32).filter(|id| tokenizer.is_special(*id)).collect()
}

pub fn added_by_tokenizer(origin: &Option<Origin>) -> bool {
    matches!(origin, Some(Origin::PostProcessor(_)))
}

/// Deterministic pseudo-random numbers (xorshift).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() >> 11) as usize % end.max(1)
    }
}

/// A tokenizer of one word, whose special tokens are the given ones.
pub fn with_special(special: &[&str]) -> Tokenizer {
    let folder = tempfile::tempdir().expect("a folder");
    let added: Vec<Value> = special
        .iter()
        .enumerate()
        .map(|(at, content)| {
            serde_json::json!({"id": at + 1, "content": content, "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false})
        })
        .collect();
    let tokenizer = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": {"x": 0}, "unk_token": "x"},
    });
    std::fs::write(folder.path().join("tokenizer.json"), tokenizer.to_string()).expect("written");
    Tokenizer::open(folder.path()).expect("opens")
}
