//! F6: odd but valid files. Whatever among them is a whole model loads, runs, and is the same model.

#[path = "support/through.rs"]
mod through;

use attend::format::Checkpoint;
use attend_testkit::files::{Case, model, odd, write_all};
use std::path::Path;

const SEED: u64 = 7;

/// Whether there is a model's configuration and its last norm.
fn is_model(path: &Path) -> bool {
    let Ok(checkpoint) = Checkpoint::open(path) else { return false };
    let has = |name: &str| checkpoint.tensor(name).is_some();
    checkpoint.config().has("hidden_size") && (has("model.norm.weight") || has("output_norm.weight"))
}

fn ids(path: &Path) -> Result<Vec<u32>, String> {
    through::open(path)?.ran()
}

#[test]
fn odd_files_that_are_models_are_the_model() {
    let plain = tempfile::tempdir().unwrap();
    write_all(plain.path(), &model::folder(SEED)).unwrap();
    let expected = ids(plain.path()).unwrap();
    assert_eq!(expected.len(), 4);
    let (mut models, mut wrong) = (0, Vec::new());
    for case in odd::cases(SEED) {
        let folder = tempfile::tempdir().unwrap();
        case.write(folder.path()).unwrap();
        let path = folder.path().join(&case.open);
        if !is_model(&path) {
            continue;
        }
        models += 1;
        match ids(&path) {
            Ok(ids) if ids == expected => {}
            other => wrong.push(format!("{}: {other:?} for {expected:?}", case.name)),
        }
    }
    assert!(wrong.is_empty(), "{} of {models}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(models >= 25, "only {models} models");
}

/// The odd configurations, in a folder whose weights fit.
#[test]
fn odd_configurations_load() {
    let mut configurations = 0;
    for case in odd::cases(SEED).iter().filter(|case| case.name.starts_with("config ")) {
        // A claim of a longer context than any file can have is refused by the loader; of fp8, scales are wanted.
        if ["config with a huge context", "config of block-scaled fp8"].contains(&&*case.name) {
            continue;
        }
        let (_, config) = case.files.iter().find(|(name, _)| name == "config.json").unwrap();
        let mut files = model::folder(SEED);
        through::put(&mut files, "config.json", config.clone());
        let folder = tempfile::tempdir().unwrap();
        Case { files, ..case.clone() }.write(folder.path()).unwrap();
        configurations += 1;
        match ids(folder.path()) {
            Ok(ids) => assert_eq!(ids.len(), 4, "{}", case.name),
            // The outer type of a wrapper for several media is the user's to know.
            Err(message) => panic!("{}: {message}", case.name),
        }
    }
    assert!(configurations >= 15, "only {configurations}");
}

/// Every block type that a GGUF file may have, in a model whose matrices are all of it.
#[test]
fn every_block_type_runs() {
    for (id, dtype) in model::WIDE_TYPES {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.gguf");
        std::fs::write(&path, model::wide_gguf(id, dtype).bytes()).unwrap();
        assert_eq!(ids(&path).unwrap_or_else(|error| panic!("{dtype}: {error}")).len(), 4, "{dtype}");
    }
}
