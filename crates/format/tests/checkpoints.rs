//! Whole checkpoints: every golden folder, both kinds of container, and what the readers say about them.

use std::path::{Path, PathBuf};

use attend_format::{Checkpoint, Kind};

fn goldens() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens")
}

#[test]
fn every_golden_checkpoint_opens() {
    let mut opened = 0;
    for entry in std::fs::read_dir(goldens()).unwrap() {
        let path = entry.unwrap().path();
        if !path.join("config.json").exists() {
            continue;
        }
        let checkpoint = Checkpoint::open(&path).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(checkpoint.kind(), Kind::HuggingFace);
        assert!(!checkpoint.tensors().is_empty() && checkpoint.unreadable().is_empty(), "{}", path.display());
        for (name, info) in checkpoint.tensors() {
            let mut bytes = vec![0; info.bytes as usize];
            checkpoint.read_at(name, 0, &mut bytes).unwrap();
            let elements: usize = info.shape.iter().product();
            assert_eq!(info.dtype.bytes(elements), Some(bytes.len()), "{name}");
        }
        checkpoint.config().str("model_type").unwrap();
        checkpoint.config().rope(None).ok();
        opened += 1;
    }
    assert!(opened > 60, "only {opened} folders");
}
