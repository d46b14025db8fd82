//! Where models are kept, what is kept there, and how a user's word for a model becomes files.
//!
//! The folder holds one folder per model. A `model.json` beside the files says where they came from and what they
//! should be; a folder or GGUF file that the user put there by hand needs none.

mod download;
mod fetch;
mod hub;
mod hub_cache;
mod needed;
mod package;
mod resolve;

pub use fetch::{Progress, fetch};
pub use hub::Hub;
pub use hub_cache::cached_snapshot;
pub use package::{DEFAULT_MODEL, DefaultModel, Installer, installers};
pub use resolve::{Found, Wanted, find, parse};

use serde::{Deserialize, Serialize, Serializer};
use std::path::{Path, PathBuf};

/// What can go wrong in keeping and fetching models.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("{}: {message}", path.display())]
    Damaged { path: PathBuf, message: String },
    #[error("{name}: no such model: neither a file or folder, nor one of `attend list`, nor a hub id (owner/name)")]
    Unknown { name: String },
    #[error("{path}: no such file or folder")]
    NoFile { path: String },
    #[error("{name}: a model's name may hold letters, digits and . _ - only, and one / between owner and name")]
    BadName { name: String },
    #[error("no folder for models: the home directory is unknown; set ATTEND_MODELS")]
    NoHome,
    #[error("{what}: {message}")]
    Network { what: String, message: String },
    #[error("{name} is not here and HF_HUB_OFFLINE forbids fetching it")]
    Offline { name: String },
    #[error(
        "{file}: its checksum is {found}, not {expected}; the download is damaged or not the file that was asked for"
    )]
    Checksum { file: String, expected: String, found: String },
    #[error("{name} holds {}: name one, as in {name}:{}", choices.join(", "), choices.first().map_or("", String::as_str))]
    Choose { name: String, choices: Vec<String> },
    #[error("{name} holds no weights that Attend reads (safetensors, pytorch_model.bin or GGUF{})", wanted.as_ref().map(|w| format!(" matching {w}")).unwrap_or_default())]
    NoWeights { name: String, wanted: Option<String> },
    #[error("another attend is fetching {name} already (its lock is {})", lock.display())]
    Busy { name: String, lock: PathBuf },
    #[error("{0}")]
    Installer(String),
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.to_owned();
        move |source| Error::File { path, source }
    }
}

/// What `model.json` says about a fetched model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub name: String,
    /// Where the files came from, in words.
    pub source: String,
    pub files: Vec<FileRecord>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    pub name: String,
    pub bytes: u64,
    /// Lower-case hexadecimal.
    pub sha256: String,
}

/// One model of the folder.
#[derive(Debug, Clone, Serialize)]
pub struct Entry {
    pub name: String,
    /// What a loader opens: a folder, or a GGUF file.
    #[serde(serialize_with = "shown")]
    pub path: PathBuf,
    pub bytes: u64,
    pub source: Option<String>,
    /// Of the largest file, where it was recorded.
    pub sha256: Option<String>,
    /// What `rm` removes: the model's folder, or the file.
    #[serde(skip)]
    pub place: PathBuf,
}

/// A path need not be text; what is shown of it is.
fn shown<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

/// The models folder.
#[derive(Debug, Clone)]
pub struct Folder {
    pub path: PathBuf,
}

const MANIFEST: &str = "model.json";

impl Folder {
    /// `ATTEND_MODELS`, else `attend/models` in the platform's data folder.
    pub fn locate() -> Result<Folder, Error> {
        use etcetera::BaseStrategy;
        if let Some(path) = std::env::var_os("ATTEND_MODELS").filter(|value| !value.is_empty()) {
            return Ok(Folder { path: path.into() });
        }
        let strategy = etcetera::choose_base_strategy().map_err(|_| Error::NoHome)?;
        Ok(Folder { path: strategy.data_dir().join("attend").join("models") })
    }

    /// The models that are there, by name. A folder that does not exist yet holds none.
    pub fn entries(&self) -> Result<Vec<Entry>, Error> {
        let read = match std::fs::read_dir(&self.path) {
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Error::file(&self.path)(error)),
        };
        let mut entries = Vec::new();
        for item in read {
            let path = item.map_err(Error::file(&self.path))?.path();
            entries.extend(self.entry(&path)?);
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    /// The model of this name (as `list` shows it; the default model answers to any case).
    pub fn entry_named(&self, name: &str) -> Result<Option<Entry>, Error> {
        Ok(self.entries()?.into_iter().find(|entry| entry.name.eq_ignore_ascii_case(name)))
    }

    fn entry(&self, path: &Path) -> Result<Option<Entry>, Error> {
        let Some(file_name) = path.file_name().and_then(|name| name.to_str()) else { return Ok(None) };
        // Downloads under way live in folders that start with a dot.
        if file_name.starts_with('.') {
            return Ok(None);
        }
        if path.is_dir() {
            return self.folder_entry(path, file_name);
        }
        let Some(stem) = file_name.strip_suffix(".gguf") else { return Ok(None) };
        let bytes = path.metadata().map_err(Error::file(path))?.len();
        let place = path.to_owned();
        Ok(Some(Entry { name: stem.into(), path: place.clone(), bytes, source: None, sha256: None, place }))
    }

    fn folder_entry(&self, path: &Path, file_name: &str) -> Result<Option<Entry>, Error> {
        let manifest = read_manifest(path)?;
        let files = files_below(path)?;
        if !files.iter().any(|(file, _)| is_weights(file)) {
            return Ok(None);
        }
        let largest = manifest.as_ref().and_then(|m| m.files.iter().max_by_key(|file| file.bytes));
        Ok(Some(Entry {
            name: manifest.as_ref().map_or_else(|| file_name.to_owned(), |m| m.name.clone()),
            path: model_path(path, &files),
            bytes: files.iter().map(|(_, bytes)| bytes).sum(),
            source: manifest.as_ref().map(|m| m.source.clone()),
            sha256: largest.map(|file| file.sha256.clone()),
            place: path.to_owned(),
        }))
    }

    /// Removes a model's files.
    pub fn remove(&self, entry: &Entry) -> Result<(), Error> {
        // The entry came from `entries`, so it lies directly below the folder; a link is removed, not followed.
        let link = entry.place.symlink_metadata().map_err(Error::file(&entry.place))?;
        if link.is_dir() {
            std::fs::remove_dir_all(&entry.place).map_err(Error::file(&entry.place))
        } else {
            std::fs::remove_file(&entry.place).map_err(Error::file(&entry.place))
        }
    }

    /// Where a model of this name is put.
    fn place_for(&self, name: &str) -> PathBuf {
        self.path.join(name.replace(['/', ':'], "--"))
    }
}

fn read_manifest(folder: &Path) -> Result<Option<Manifest>, Error> {
    let path = folder.join(MANIFEST);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::file(&path)(error)),
    };
    serde_json::from_str(&text).map(Some).map_err(|error| Error::Damaged { path, message: error.to_string() })
}

/// The regular files of a folder and of its folders one level down (pooling configurations live there), relative.
fn files_below(folder: &Path) -> Result<Vec<(PathBuf, u64)>, Error> {
    let mut files = Vec::new();
    let mut folders = vec![(folder.to_owned(), 0)];
    while let Some((next, depth)) = folders.pop() {
        for item in std::fs::read_dir(&next).map_err(Error::file(&next))? {
            let path = item.map_err(Error::file(&next))?.path();
            let data = path.metadata().map_err(Error::file(&path))?;
            if data.is_dir() && depth == 0 {
                folders.push((path, 1));
            } else if data.is_file() {
                let relative = path.strip_prefix(folder).unwrap_or(&path).to_owned();
                files.push((relative, data.len()));
            }
        }
    }
    files.sort();
    Ok(files)
}

fn is_weights(file: &Path) -> bool {
    matches!(file.extension().and_then(|e| e.to_str()), Some("gguf" | "safetensors" | "bin"))
}

/// A folder of Hugging Face files is opened as a folder, one with a GGUF file by its (first) file.
fn model_path(folder: &Path, files: &[(PathBuf, u64)]) -> PathBuf {
    let has_config = files.iter().any(|(file, _)| file == Path::new("config.json"));
    let gguf = files.iter().find(|(file, _)| file.extension().is_some_and(|e| e == "gguf"));
    match gguf {
        Some((file, _)) if !has_config => folder.join(file),
        _ => folder.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_what_lies_in_the_folder() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("below the folder")).expect("made");
            std::fs::write(path, text).expect("written");
        };
        write("by-hand.gguf", "1234");
        write("kept/model.gguf", "12345");
        write(
            "kept/model.json",
            r#"{"name":"owner/kept","source":"here","files":[{"name":"model.gguf","bytes":5,"sha256":"ab"}]}"#,
        );
        write("hf/config.json", "{}");
        write("hf/model.safetensors", "1");
        write("hf/1_Pooling/config.json", "{}");
        write(".pulling-x/model.gguf", "1");
        write("notes/readme.txt", "no weights");
        let models = Folder { path: folder.path().to_owned() };
        let entries = models.entries().expect("readable");
        let names: Vec<&str> = entries.iter().map(|e| e.name.as_str()).collect();
        assert_eq!(names, ["by-hand", "hf", "owner/kept"]);
        assert_eq!(entries[1].path, folder.path().join("hf"));
        assert_eq!(entries[2].path, folder.path().join("kept/model.gguf"));
        assert_eq!(entries[2].sha256.as_deref(), Some("ab"));
        models.remove(&entries[2]).expect("removed");
        assert!(models.entry_named("OWNER/KEPT").expect("readable").is_none());
        assert!(models.entry_named("HF").expect("readable").is_some());
    }

    #[test]
    fn a_damaged_manifest_is_named() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir(folder.path().join("m")).expect("made");
        std::fs::write(folder.path().join("m/model.json"), "{").expect("written");
        let error = Folder { path: folder.path().to_owned() }.entries().expect_err("not JSON").to_string();
        assert!(error.contains("model.json"), "{error}");
    }
}
