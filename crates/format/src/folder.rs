//! A model's folder, out of which no name and no link may lead.

use std::io;
use std::path::{Component, Path, PathBuf};

use crate::error::shown;
use crate::{Error, modules};

/// A folder and the place its links must stay in.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    /// The folder itself, or the repository folder of a hub cache, whose snapshots are links into its `blobs`.
    root: PathBuf,
}

impl Folder {
    pub fn open(path: &Path) -> Result<Folder, Error> {
        let real = std::fs::canonicalize(path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => Error::NotFound { path: path.to_path_buf() },
            _ => Error::Io { file: path.to_path_buf(), action: "open", source },
        })?;
        let root = hub_repository(&real).unwrap_or(real);
        Ok(Folder { path: path.to_path_buf(), root })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder inside that `modules.json` names for the transformer, else this one.
    pub fn with_transformer(self) -> Result<Folder, Error> {
        Ok(match modules::transformer(&self)? {
            Some(path) => Folder { path, root: self.root },
            None => self,
        })
    }

    /// The path of a file in the folder, `None` when it is not there; a name or link that leads outside is an error.
    pub fn find(&self, name: &str) -> Result<Option<PathBuf>, Error> {
        if !is_plain(name) {
            return Err(Error::UnsafePath { file: self.path.clone(), name: shown(name) });
        }
        let path = self.path.join(name);
        if let Ok(real) = std::fs::canonicalize(&path) {
            // The same words whether what lies outside exists or not, so that nothing is told about it.
            return if real.starts_with(&self.root) { Ok(Some(path)) } else { Err(Error::LinkLeaves { file: path }) };
        }
        match std::fs::symlink_metadata(&path) {
            Ok(_) => Err(Error::LinkLeaves { file: path }),
            Err(_) => Ok(None),
        }
    }

    /// The names of the folder's files with this ending, sorted.
    pub fn names_ending(&self, ending: &str) -> Result<Vec<String>, Error> {
        let io = |source| Error::Io { file: self.path.clone(), action: "list", source };
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.path).map_err(io)? {
            if let Ok(name) = entry.map_err(io)?.file_name().into_string()
                && name.ends_with(ending)
                && !name.starts_with('.')
            {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }
}

/// The path of a file or folder below `folder`, `None` when it is not there; a name or link that leads outside is an error.
pub fn beside(folder: &Path, name: &str) -> Result<Option<PathBuf>, Error> {
    Folder::open(folder)?.find(name)
}

/// Whether a name from an index is a relative path that goes nowhere but down.
pub(crate) fn is_plain(name: &str) -> bool {
    let path = Path::new(name);
    // A backslash or a colon separates on other systems, and a file is carried from one to another.
    !name.is_empty()
        && name.len() <= 1024
        && !name.contains(['\\', ':', '\0'])
        && !name.ends_with('/')
        && path.components().all(|part| matches!(part, Component::Normal(_)))
}

/// `models--owner--name` of `models--owner--name/snapshots/revision`, and of folders in it.
fn hub_repository(folder: &Path) -> Option<PathBuf> {
    let snapshots =
        folder.ancestors().skip(1).find(|above| above.file_name().is_some_and(|name| name == "snapshots"))?;
    let repository = snapshots.parent()?;
    let name = repository.file_name()?.to_str()?;
    name.starts_with("models--").then(|| repository.to_path_buf())
}
