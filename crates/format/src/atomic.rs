//! A file that appears under its name only when it is whole.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use attend_kernels::DType;

use crate::Error;

/// A tensor to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorSpec {
    pub name: String,
    pub dtype: DType,
    /// Rows first.
    pub shape: Vec<usize>,
}

/// Writes the bytes of the tensor with this index of the list (little endian, in its type). It is called once per
/// tensor, in the order of the file, so that an export needs memory for one tensor only.
pub type Fill<'a> = dyn FnMut(usize, &mut dyn Write) -> Result<(), Box<dyn std::error::Error + Send + Sync>> + 'a;

/// A file under a temporary name in the folder of its target. [`AtomicFile::commit`] makes it durable and gives it
/// its name; dropped before that, it leaves nothing behind.
#[derive(Debug)]
pub struct AtomicFile {
    target: PathBuf,
    temporary: PathBuf,
    writer: Option<BufWriter<File>>,
}

impl AtomicFile {
    pub fn create(target: &Path) -> Result<AtomicFile, Error> {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let io = |source| Error::Io { file: target.to_path_buf(), action: "create", source };
        let name = target.file_name().ok_or_else(|| io(io::ErrorKind::InvalidInput.into()))?;
        let count = COUNTER.fetch_add(1, Ordering::Relaxed);
        let temporary =
            target.with_file_name(format!(".{}.{}-{count}.partial", name.to_string_lossy(), std::process::id()));
        let file = OpenOptions::new().write(true).create_new(true).open(&temporary).map_err(io)?;
        Ok(AtomicFile {
            target: target.to_path_buf(),
            temporary,
            writer: Some(BufWriter::with_capacity(1 << 20, file)),
        })
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.writer().and_then(|writer| writer.write_all(bytes)).map_err(|source| self.failed("write", source))
    }

    /// Writes over what stands at `offset`, and goes on at the end: for a header that counts what follows it.
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let outcome = self.writer().and_then(|writer| {
            writer.seek(SeekFrom::Start(offset))?;
            writer.write_all(bytes)?;
            writer.seek(SeekFrom::End(0)).map(drop)
        });
        outcome.map_err(|source| self.failed("write", source))
    }

    /// Runs `fill` for one tensor and holds it to `expected` bytes.
    pub(crate) fn write_tensor(
        &mut self,
        fill: &mut Fill,
        index: usize,
        name: &str,
        expected: u64,
    ) -> Result<(), Error> {
        let file = self.target.clone();
        let mut counted = match self.writer() {
            Ok(inner) => Counted { inner, written: 0, limit: expected },
            Err(source) => return Err(self.failed("write", source)),
        };
        let outcome = fill(index, &mut counted);
        let actual = counted.written;
        if actual > expected {
            return Err(Error::WrongLength { file, tensor: name.into(), expected, actual });
        }
        outcome.map_err(|source| Error::Fill { file: file.clone(), tensor: name.into(), source })?;
        if actual != expected {
            return Err(Error::WrongLength { file, tensor: name.into(), expected, actual });
        }
        Ok(())
    }

    /// Commits a file of `length` bytes, of which those that were not written are zero and take no room.
    pub fn commit_sparse(mut self, length: u64) -> Result<(), Error> {
        let extended = self.writer().and_then(|writer| {
            writer.flush()?;
            writer.get_ref().set_len(length)
        });
        extended.map_err(|source| self.failed("extend", source))?;
        self.commit()
    }

    pub fn commit(mut self) -> Result<(), Error> {
        let Some(writer) = self.writer.take() else {
            return Err(self.failed("write", io::ErrorKind::InvalidInput.into()));
        };
        let synced = writer.into_inner().map_err(io::IntoInnerError::into_error).and_then(|file| file.sync_all());
        synced.map_err(|source| self.failed("write", source))?;
        std::fs::rename(&self.temporary, &self.target).map_err(|source| self.failed("rename", source))?;
        self.temporary.clear();
        let parent = self.target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        sync_folder(parent).map_err(|source| self.failed("make durable", source))
    }

    fn writer(&mut self) -> io::Result<&mut BufWriter<File>> {
        self.writer.as_mut().ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }

    fn failed(&self, action: &'static str, source: io::Error) -> Error {
        Error::Io { file: self.target.clone(), action, source }
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        drop(self.writer.take());
        if !self.temporary.as_os_str().is_empty() {
            // Nothing better can be done than to leave the file, whose name says what it is.
            let _ = std::fs::remove_file(&self.temporary);
        }
    }
}

/// A rename is durable only when the folder that records it is.
#[cfg(unix)]
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(not(unix))]
fn sync_folder(_folder: &Path) -> io::Result<()> {
    Ok(())
}

/// Counts what a tensor's closure writes, and refuses more than the tensor holds.
struct Counted<'a> {
    inner: &'a mut BufWriter<File>,
    written: u64,
    limit: u64,
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let total = self.written.saturating_add(bytes.len() as u64);
        if total > self.limit {
            self.written = total;
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "more bytes than the tensor holds"));
        }
        let count = self.inner.write(bytes)?;
        self.written += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
