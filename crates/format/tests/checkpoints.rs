//! Whole checkpoints: every golden folder, both kinds of container, and what the readers say about them.

use std::path::{Path, PathBuf};

use attend_format::{Checkpoint, Error, Kind, home, unsupported_quantization};
use attend_testkit::files::{self, model};

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

/// A12, A21: a file that is cut short while it is open is an error, one that is replaced keeps its old contents.
#[test]
fn files_that_change_while_open() {
    let folder = tempfile::tempdir().unwrap();
    files::write_all(folder.path(), &model::folder(1)).unwrap();
    let weights = folder.path().join("model.safetensors");
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    let last = "lm_head.weight";
    let mut before = vec![0; checkpoint.require(last).unwrap().bytes as usize];
    checkpoint.read_at(last, 0, &mut before).unwrap();

    let other = folder.path().join("other");
    std::fs::write(&other, vec![0; 1000]).unwrap();
    std::fs::rename(&other, &weights).unwrap();
    let mut after = vec![0; before.len()];
    checkpoint.read_at(last, 0, &mut after).unwrap();
    assert_eq!(before, after);

    files::write_all(folder.path(), &model::folder(1)).unwrap();
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&weights).unwrap();
    let length = file.metadata().unwrap().len();
    file.set_len(length - 1).unwrap();
    match checkpoint.read_at(last, 0, &mut after) {
        Err(Error::Truncated { expected, actual, .. }) => assert_eq!((expected, actual), (length, length - 1)),
        other => panic!("{other:?}"),
    }
    checkpoint.read_at(last, 0, &mut after[..16]).unwrap();
}

#[test]
fn reads_stay_within_their_tensor() {
    let folder = tempfile::tempdir().unwrap();
    files::write_all(folder.path(), &model::folder(1)).unwrap();
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    let name = "model.norm.weight";
    let size = checkpoint.require(name).unwrap().bytes;
    let mut one = [0];
    checkpoint.read_at(name, size - 1, &mut one).unwrap();
    checkpoint.read_at(name, size, &mut []).unwrap();
    for offset in [size, u64::MAX] {
        assert!(matches!(checkpoint.read_at(name, offset, &mut one), Err(Error::OutOfRange { .. })));
    }
    assert!(matches!(checkpoint.read_at("absent", 0, &mut one), Err(Error::NoTensor { .. })));
}

/// The same model in every container has the same tensors.
#[test]
fn containers_agree() {
    let open = |files: &files::Files| {
        let folder = tempfile::tempdir().unwrap();
        files::write_all(folder.path(), files).unwrap();
        let checkpoint = Checkpoint::open(folder.path()).unwrap();
        let read = |name: &String| {
            let info = checkpoint.require(name).unwrap();
            let mut bytes = vec![0; info.bytes as usize];
            checkpoint.read_at(name, 0, &mut bytes).unwrap();
            (name.clone(), info.shape.clone(), bytes)
        };
        checkpoint.tensors().keys().map(read).collect::<Vec<_>>()
    };
    let whole = open(&model::folder(3));
    assert_eq!(whole.len(), model::tensors(3).len());
    for files in [model::sharded(3), model::pickled(3, false), model::pickled(3, true)] {
        assert!(open(&files) == whole);
    }
}

/// `modules.json` may say that the model lies in a folder inside; links may then lead to the whole repository's files.
#[test]
fn a_transformer_in_a_folder_inside_is_found() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("models--o--m/snapshots/abc");
    let inside = folder.join("0_Transformer");
    std::fs::create_dir_all(&inside).unwrap();
    files::write_all(&inside, &model::folder(1)).unwrap();
    let list = |path: &str, kind: &str| {
        let text = format!(r#"[{{"idx": 0, "path": "{path}", "type": "sentence_transformers.models.{kind}"}}]"#);
        std::fs::write(folder.join("modules.json"), text).unwrap();
    };
    for path in ["0_Transformer", "0_Transformer/"] {
        list(path, "Transformer");
        let checkpoint = Checkpoint::open(&folder).unwrap();
        assert_eq!(checkpoint.tensors().len(), model::tensors(1).len());
        assert_eq!(checkpoint.path(), folder);
        assert_eq!(home(&folder).unwrap(), inside);
        assert_eq!(Checkpoint::open_weightless(&folder).unwrap().config().map(), checkpoint.config().map());
    }
    for path in ["0_Absent", "../abc", "0_Transformer/config.json", "/"] {
        list(path, "Transformer");
        assert!(Checkpoint::open(&folder).is_err(), "{path}");
    }
    // Of another kind of first module nothing is known here.
    list("0_Transformer", "WordEmbeddings");
    assert!(matches!(Checkpoint::open(&folder), Err(Error::MissingFile { .. })));
    std::fs::write(folder.join("modules.json"), "[").unwrap();
    assert!(Checkpoint::open(&folder).unwrap_err().to_string().contains("modules.json"));
    list("0_Transformer", "Transformer");
    #[cfg(unix)]
    {
        let blob = place.path().join("models--o--m/blob");
        std::fs::rename(inside.join("model.safetensors"), &blob).unwrap();
        std::os::unix::fs::symlink("../../../blob", inside.join("model.safetensors")).unwrap();
        assert_eq!(Checkpoint::open(&folder).unwrap().tensors().len(), model::tensors(1).len());
        // A folder of the repository by itself, as a module's weights are opened.
        assert!(Checkpoint::open(&inside).is_ok());
        std::fs::rename(&blob, place.path().join("outside")).unwrap();
        std::fs::remove_file(inside.join("model.safetensors")).unwrap();
        std::os::unix::fs::symlink("../../../../outside", inside.join("model.safetensors")).unwrap();
        assert!(matches!(Checkpoint::open(&folder), Err(Error::LinkLeaves { .. })));
    }
}

/// Early quantised folders name their scheme in a file of its own.
#[test]
fn old_quantised_folders_are_named() {
    for (file, name) in [("quantize_config.json", "gptq"), ("quant_config.json", "awq")] {
        let folder = tempfile::tempdir().unwrap();
        let mut files = model::folder(1);
        files.push((file.into(), b"{\"bits\":4}".to_vec()));
        files::write_all(folder.path(), &files).unwrap();
        let checkpoint = Checkpoint::open(folder.path()).unwrap();
        assert_eq!(unsupported_quantization(checkpoint.config()).as_deref(), Some(name));
    }
}
