//! A file that is read at positions, without a map and without a shared cursor.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::Error;

/// An open file (or bytes in memory under a file's name) of a known length.
#[derive(Debug)]
pub struct Source {
    path: Arc<Path>,
    length: u64,
    data: Data,
}

#[derive(Debug)]
enum Data {
    File(File),
    Memory(Vec<u8>),
}

impl Source {
    /// Opens a regular file; a Git LFS pointer or a web page in its place is refused.
    pub fn open(path: &Path) -> Result<Source, Error> {
        let io = |action| move |source| Error::Io { file: path.to_path_buf(), action, source };
        // Looked at before it is opened: to open a named pipe would wait for a writer for ever.
        let metadata = std::fs::metadata(path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => Error::NotFound { path: path.to_path_buf() },
            _ => io("open")(source),
        })?;
        if !metadata.is_file() {
            return Err(Error::NotAFile { path: path.to_path_buf() });
        }
        let file = File::open(path).map_err(io("open"))?;
        let length = file.metadata().map_err(io("read the size"))?.len();
        let source = Source { path: path.into(), length, data: Data::File(file) };
        source.refuse_stand_ins()?;
        Ok(source)
    }

    /// Bytes in memory that errors call `path`.
    pub fn memory(path: &Path, bytes: Vec<u8>) -> Result<Source, Error> {
        let source = Source { path: path.into(), length: bytes.len() as u64, data: Data::Memory(bytes) };
        source.refuse_stand_ins()?;
        Ok(source)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn shared_path(&self) -> Arc<Path> {
        self.path.clone()
    }

    /// The file's length in bytes when it was opened.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Fills `buffer` from byte `offset` on; a file that ends earlier, now or since it was opened, is
    /// [`Error::Truncated`].
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
        let end = offset.saturating_add(buffer.len() as u64);
        let truncated = |actual| Error::Truncated { file: self.path.to_path_buf(), expected: end, actual };
        let mut done = 0;
        while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.read_some(offset.saturating_add(done as u64), rest) {
                Ok(0) => return Err(truncated(offset.saturating_add(done as u64).min(self.length_now()))),
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(Error::Io { file: self.path.to_path_buf(), action: "read", source }),
            }
        }
        Ok(())
    }

    /// A newly allocated copy of `length` bytes from `offset` on. The claim is checked against the file first.
    pub(crate) fn bytes_at(&self, offset: u64, length: u64) -> Result<Vec<u8>, Error> {
        let end = offset.checked_add(length).filter(|&end| end <= self.length);
        let (Some(_), Ok(length)) = (end, usize::try_from(length)) else {
            let expected = offset.saturating_add(length);
            return Err(Error::Truncated { file: self.path.to_path_buf(), expected, actual: self.length });
        };
        let mut bytes = allocate(self, length)?;
        self.read_at(offset, &mut bytes)?;
        Ok(bytes)
    }

    fn read_some(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.data {
            Data::File(file) => read_file_at(file, buffer, offset),
            Data::Memory(bytes) => {
                let rest = usize::try_from(offset).ok().and_then(|start| bytes.get(start..)).unwrap_or(&[]);
                let count = rest.len().min(buffer.len());
                for (to, from) in buffer.iter_mut().zip(rest) {
                    *to = *from;
                }
                Ok(count)
            }
        }
    }

    fn length_now(&self) -> u64 {
        match &self.data {
            Data::File(file) => file.metadata().map(|metadata| metadata.len()).unwrap_or(self.length),
            Data::Memory(bytes) => bytes.len() as u64,
        }
    }

    /// Recognises what commonly lies in a model file's place.
    fn refuse_stand_ins(&self) -> Result<(), Error> {
        let mut start = vec![0; self.length.min(512) as usize];
        self.read_at(0, &mut start)?;
        let text = String::from_utf8_lossy(&start);
        let text = text.trim_start_matches(['\u{feff}', ' ', '\t', '\r', '\n']);
        if text.starts_with("version https://git-lfs.github.com/spec/") {
            let size = text.lines().find_map(|line| line.strip_prefix("size ")?.trim().parse().ok());
            return Err(Error::GitLfsPointer { file: self.path.to_path_buf(), size });
        }
        let lower: String = text.chars().take(16).collect::<String>().to_ascii_lowercase();
        if lower.starts_with("<!doctype html") || lower.starts_with("<html") {
            return Err(Error::HtmlPage { file: self.path.to_path_buf() });
        }
        Ok(())
    }
}

/// Zeroed memory; a refusal of the system is an error, not an abort.
pub(crate) fn allocate(source: &Source, length: usize) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).map_err(|_| Error::Io {
        file: source.path.to_path_buf(),
        action: "find the memory to read it",
        source: io::ErrorKind::OutOfMemory.into(),
    })?;
    bytes.resize(length, 0);
    Ok(bytes)
}

#[cfg(unix)]
fn read_file_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, buffer, offset)
}

#[cfg(windows)]
fn read_file_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, buffer, offset)
}
