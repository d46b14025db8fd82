//! A buffered reader over a part of a file that checks every claimed length against what is left.

use crate::error::shown;
use crate::source::allocate;
use crate::{Error, Source};

const BUFFER: usize = 1 << 16;

pub(crate) struct Stream<'a> {
    pub source: &'a Source,
    /// The file's byte that is read next.
    pub position: u64,
    /// Arrays inside arrays so far.
    pub nested: u64,
    buffer: Vec<u8>,
    /// The file's byte that the buffer starts with.
    start: u64,
    /// The file's byte that may not be read any more.
    end: u64,
}

impl<'a> Stream<'a> {
    pub fn new(source: &'a Source) -> Stream<'a> {
        Stream::part(source, 0, source.length())
    }

    /// The bytes from `position` up to `end`.
    pub fn part(source: &'a Source, position: u64, end: u64) -> Stream<'a> {
        Stream { source, position, nested: 0, buffer: Vec::new(), start: 0, end: end.min(source.length()) }
    }

    /// The bytes that are left.
    pub fn left(&self) -> u64 {
        self.end.saturating_sub(self.position)
    }

    /// Holds a claimed count to a limit and to what the rest of the file can hold of entries of `size` bytes.
    pub fn check_count(&self, what: &str, count: u64, size: u64, limit: u64) -> Result<(), Error> {
        let limit = self.left().checked_div(size).map_or(limit, |fitting| fitting.min(limit));
        if count > limit {
            let file = self.source.path().to_path_buf();
            return Err(Error::BadCount { file, what: shown(what), count, limit });
        }
        Ok(())
    }

    pub fn take<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let mut bytes = [0; N];
        let from = self.window(N)?;
        bytes.copy_from_slice(from);
        self.position += N as u64;
        Ok(bytes)
    }

    /// The next `length` bytes, at most 64 KiB.
    pub fn bytes(&mut self, length: usize) -> Result<Vec<u8>, Error> {
        let bytes = self.window(length)?.to_vec();
        self.position += length as u64;
        Ok(bytes)
    }

    pub fn u32(&mut self) -> Result<u32, Error> {
        self.take().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, Error> {
        self.take().map(u64::from_le_bytes)
    }

    /// `count` numbers; the caller has checked the count against the rest of the file.
    pub fn numbers<T, const N: usize>(&mut self, count: u64, from: fn([u8; N]) -> T) -> Result<Vec<T>, Error> {
        let length = count.saturating_mul(N as u64);
        let mut numbers = Vec::new();
        let wanted = usize::try_from(count).ok().filter(|_| length <= self.left());
        if wanted.is_none_or(|wanted| numbers.try_reserve_exact(wanted).is_err()) {
            return Err(self.cut_at(length));
        }
        for _ in 0..count {
            numbers.push(from(self.take()?));
        }
        Ok(numbers)
    }

    pub fn string(&mut self, what: &str, limit: u64) -> Result<String, Error> {
        let mut owned = String::new();
        self.string_into(what, limit, |text| owned.push_str(text))?;
        Ok(owned)
    }

    /// Reads a string and hands it to `keep`.
    pub fn string_into(&mut self, what: &str, limit: u64, keep: impl FnOnce(&str)) -> Result<(), Error> {
        let length = self.u64()?;
        let file = || self.source.path().to_path_buf();
        let limit = limit.min(self.left());
        if length > limit {
            return Err(Error::BadLength { file: file(), what: shown(what), length, limit });
        }
        let length = usize::try_from(length).map_err(|_| self.cut_at(length))?;
        let not_text = |_| Error::NotUtf8 { file: self.source.path().to_path_buf(), field: shown(what) };
        if length <= BUFFER {
            self.window(length)?;
            let bytes = self.buffered(length).unwrap_or_default();
            keep(std::str::from_utf8(bytes).map_err(not_text)?);
        } else {
            let mut bytes = allocate(self.source, length)?;
            self.source.read_at(self.position, &mut bytes)?;
            keep(std::str::from_utf8(&bytes).map_err(not_text)?);
        }
        self.position += length as u64;
        Ok(())
    }

    /// The next `length` bytes (at most the buffer's size), without moving on.
    fn window(&mut self, length: usize) -> Result<&[u8], Error> {
        if length as u64 > self.left() {
            return Err(self.cut_at(length as u64));
        }
        if self.buffered(length).is_none() {
            let size = self.left().min(BUFFER as u64) as usize;
            if self.buffer.len() != size {
                self.buffer = allocate(self.source, size)?;
            }
            self.start = self.position;
            self.source.read_at(self.start, &mut self.buffer)?;
        }
        Ok(self.buffered(length).unwrap_or_default())
    }

    fn buffered(&self, length: usize) -> Option<&[u8]> {
        let start = usize::try_from(self.position.checked_sub(self.start)?).ok()?;
        self.buffer.get(start..start.checked_add(length)?)
    }

    fn cut_at(&self, length: u64) -> Error {
        let expected = self.position.saturating_add(length);
        Error::Truncated { file: self.source.path().to_path_buf(), expected, actual: self.end }
    }
}
