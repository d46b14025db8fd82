//! Real models and what was recorded of them.

use super::skip;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// What `tools/record_real.py` recorded of a model.
pub fn recorded(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/real").join(format!("{name}.json"));
    serde_json::from_slice(&std::fs::read(path).expect("read")).expect("JSON")
}

/// The model's file or folder, where it is present.
pub fn model(name: &str, place: &str) -> Option<PathBuf> {
    let own = std::env::var_os("ATTEND_TEST_MODELS").map(|folder| Path::new(&folder).join(place));
    let pulled = attend::models::Folder::locate().ok().and_then(|folder| {
        let entries = folder.entries().ok()?;
        let file = Path::new(place).file_name()?.to_owned();
        entries.into_iter().map(|entry| entry.path).find(|path| path.file_name() == Some(file.as_os_str()))
    });
    let found = own.into_iter().chain(pulled).find(|path| path.exists());
    if found.is_none() {
        skip(&format!("{name}: {place} is not in ATTEND_TEST_MODELS"));
    }
    found
}
