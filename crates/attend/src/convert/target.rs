//! Where a checkpoint is written, and what can be wrong with that place.

use std::path::{Path, PathBuf};

/// Why nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Model(Box<attend_model::Error>),
    #[error(transparent)]
    Format(#[from] attend_format::Error),
    #[error(transparent)]
    Text(#[from] attend_text::Error),
    #[error(transparent)]
    Vectors(#[from] attend_engine::Error),
    #[error("{}: is there already; --force writes over it", path.display())]
    Exists { path: PathBuf },
    #[error("{}: is the model that is read; name another place", path.display())]
    SamePlace { path: PathBuf },
    #[error("{}: is a folder of this kind already; a name that ends in .gguf is wanted for the new file", path.display())]
    SameKind { path: PathBuf },
    #[error("{}: is a model by a description of its own, whose tensors other formats have no names for", path.display())]
    OwnDescription { path: PathBuf },
    #[error("{}: cannot {action}: {source}", path.display())]
    Io { path: PathBuf, action: &'static str, source: std::io::Error },
    #[error("{}: tensor `{tensor}` has the type {dtype}, which cannot be read here", path.display())]
    Unreadable { path: PathBuf, tensor: String, dtype: String },
    #[error("interrupted")]
    Interrupted,
}

impl From<attend_model::Error> for Error {
    fn from(error: attend_model::Error) -> Error {
        Error::Model(Box::new(error))
    }
}

/// The place of the new checkpoint.
#[derive(Debug, Clone)]
pub struct Target {
    path: PathBuf,
    force: bool,
}

impl Target {
    /// Checks that `path` is free, or may be written over, and is not `source` itself.
    pub fn new(path: &Path, force: bool, source: &Path) -> Result<Target, Error> {
        let path = path.to_path_buf();
        let same = |a: &Path, b: &Path| matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b);
        if same(&path, source) {
            return Err(Error::SamePlace { path });
        }
        let target = Target { path, force };
        let there = std::fs::symlink_metadata(&target.path).ok();
        let empty = || std::fs::read_dir(&target.path).is_ok_and(|mut entries| entries.next().is_none());
        let mixed = there.as_ref().is_some_and(|there| there.is_dir() == target.is_gguf());
        if there.is_some() && (mixed || !(force || (!target.is_gguf() && empty()))) {
            return Err(Error::Exists { path: target.path });
        }
        let parent = target.parent();
        if !parent.is_dir() {
            let source = std::io::ErrorKind::NotFound.into();
            return Err(Error::Io { path: parent.to_path_buf(), action: "find the folder for the result", source });
        }
        Ok(target)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn is_gguf(&self) -> bool {
        self.path.extension().is_some_and(|ending| ending == "gguf")
    }

    pub(super) fn force(&self) -> bool {
        self.force
    }

    fn parent(&self) -> &Path {
        self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    /// A hidden name beside the target, for what is not finished.
    pub(super) fn beside(&self, what: &str) -> PathBuf {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.parent().join(format!(".{name}.{}.{what}", std::process::id()))
    }
}

/// A file or folder that is removed when it goes out of sight.
pub(super) struct Scratch(pub PathBuf);

impl Scratch {
    /// An empty folder.
    pub fn folder(path: PathBuf) -> Result<Scratch, Error> {
        let io = |source| Error::Io { path: path.clone(), action: "create", source };
        std::fs::create_dir(&path).map_err(io)?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed bears a name that says what it is.
        let _ = if self.0.is_dir() { std::fs::remove_dir_all(&self.0) } else { std::fs::remove_file(&self.0) };
    }
}
