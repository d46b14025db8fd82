//! The directory of a zip archive, as far as stored entries need it.

use std::collections::BTreeMap;

use crate::error::shown;
use crate::stream::Stream;
use crate::{Error, Source};

const MAX_ENTRIES: u64 = 1 << 18;
const MAX_DIRECTORY: u64 = 64 << 20;
/// The end record with the longest comment that may follow it.
const END_SEARCH: u64 = 22 + 65_535;

pub(super) struct Archive<'a> {
    source: &'a Source,
    entries: BTreeMap<String, Entry>,
    /// Where the directory starts: entries end before it.
    directory: u64,
}

#[derive(Clone, Copy)]
struct Entry {
    method: u16,
    flags: u16,
    compressed: u64,
    length: u64,
    header: u64,
}

/// Where an entry's bytes are in the file.
pub(super) struct Place {
    pub start: u64,
    pub length: u64,
}

impl<'a> Archive<'a> {
    pub fn open(source: &'a Source) -> Result<Archive<'a>, Error> {
        let (directory, size, count) = end_record(source)?;
        let end = directory.checked_add(size).filter(|&end| end <= source.length());
        let end = end.ok_or_else(|| damaged(source, "its directory reaches beyond the end; it may be cut short"))?;
        if count > MAX_ENTRIES || size > MAX_DIRECTORY || count.saturating_mul(46) > size {
            return Err(damaged(source, "its directory's size does not fit its number of entries"));
        }
        let mut stream = Stream::part(source, directory, end);
        let mut entries = BTreeMap::new();
        for _ in 0..count {
            let (name, entry) = directory_entry(&mut stream)?;
            if entries.insert(name, entry).is_some() {
                return Err(damaged(source, "two entries have one name"));
            }
        }
        Ok(Archive { source, entries, directory })
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// The place of a stored entry; an entry that is packed otherwise is an error.
    pub fn find(&self, name: &str) -> Result<Option<Place>, Error> {
        let Some(entry) = self.entries.get(name) else { return Ok(None) };
        if entry.method != 0 || entry.compressed != entry.length {
            let problem = format!("{} is compressed; PyTorch stores its entries plainly", shown(name));
            return Err(damaged(self.source, &problem));
        }
        if entry.flags & 1 != 0 {
            return Err(damaged(self.source, &format!("{} is encrypted", shown(name))));
        }
        let mut header = Stream::part(self.source, entry.header, self.directory);
        let fixed: [u8; 30] = header.take().unwrap_or([0; 30]);
        if !fixed.starts_with(b"PK\x03\x04") {
            return Err(damaged(self.source, &format!("{} has no header where one should be", shown(name))));
        }
        let skip = u64::from(u16_at(&fixed, 26)) + u64::from(u16_at(&fixed, 28));
        let start = header.position.saturating_add(skip);
        if start.checked_add(entry.length).is_none_or(|end| end > self.directory) {
            return Err(damaged(self.source, &format!("{} reaches into the directory", shown(name))));
        }
        Ok(Some(Place { start, length: entry.length }))
    }
}

fn damaged(source: &Source, problem: &str) -> Error {
    Error::BadArchive { file: source.path().to_path_buf(), problem: problem.into() }
}

/// Start, size and number of entries of the directory.
fn end_record(source: &Source) -> Result<(u64, u64, u64), Error> {
    let from = source.length().saturating_sub(END_SEARCH);
    let tail = source.bytes_at(from, source.length() - from)?;
    let at = (0..=tail.len().saturating_sub(22)).rev().find(|&at| {
        let record = tail.get(at..).unwrap_or_default();
        record.starts_with(b"PK\x05\x06") && record.len() == 22 + usize::from(u16_at(record, 20))
    });
    let no_end = || damaged(source, "its end record is missing; the file is probably cut short");
    let at = at.filter(|_| tail.len() >= 22).ok_or_else(no_end)?;
    let record = tail.get(at..).unwrap_or_default();
    let (count, size, start) = (u16_at(record, 10), u32_at(record, 12), u32_at(record, 16));
    if count != u16::MAX && size != u32::MAX && start != u32::MAX {
        return Ok((start.into(), size.into(), count.into()));
    }
    // The large form of the record, found through a locator just before the small one.
    let end = from + at as u64;
    let mut locator = [0; 20];
    source.read_at(end.checked_sub(20).ok_or_else(no_end)?, &mut locator)?;
    if !locator.starts_with(b"PK\x06\x07") {
        return Ok((start.into(), size.into(), count.into()));
    }
    let mut large = [0; 56];
    let place = u64::from_le_bytes(field(&locator, 8));
    if place.checked_add(56).is_none_or(|end| end > source.length()) {
        return Err(no_end());
    }
    source.read_at(place, &mut large)?;
    if !large.starts_with(b"PK\x06\x06") {
        return Err(no_end());
    }
    let number = |at| u64::from_le_bytes(field(&large, at));
    Ok((number(48), number(40), number(32)))
}

fn directory_entry(stream: &mut Stream) -> Result<(String, Entry), Error> {
    let source = stream.source;
    let cut = |_| damaged(source, "its directory ends within an entry");
    let fixed: [u8; 46] = stream.take().map_err(cut)?;
    if !fixed.starts_with(b"PK\x01\x02") {
        return Err(damaged(source, "its directory holds something that is no entry"));
    }
    let name = stream.bytes(u16_at(&fixed, 28).into()).map_err(cut)?;
    let extra = stream.bytes(u16_at(&fixed, 30).into()).map_err(cut)?;
    stream.bytes(u16_at(&fixed, 32).into()).map_err(cut)?;
    let name = String::from_utf8(name).map_err(|_| damaged(source, "an entry's name is not UTF-8"))?;
    let mut large = large_fields(&extra).into_iter();
    // Each 32-bit field that is full stands in the extra part as 64 bits, in this order.
    let mut wide = |narrow: u32| match narrow {
        u32::MAX => large.next().ok_or_else(|| damaged(source, "an entry lacks its 64-bit size")),
        narrow => Ok(narrow.into()),
    };
    let length = wide(u32_at(&fixed, 24))?;
    let compressed = wide(u32_at(&fixed, 20))?;
    let header = wide(u32_at(&fixed, 42))?;
    let (flags, method) = (u16_at(&fixed, 8), u16_at(&fixed, 10));
    Ok((name, Entry { method, flags, compressed, length, header }))
}

/// The 64-bit fields of an entry's extra part.
fn large_fields(mut extra: &[u8]) -> Vec<u64> {
    while extra.len() >= 4 {
        let (id, length) = (u16_at(extra, 0), usize::from(u16_at(extra, 2)));
        let body = extra.get(4..4 + length).unwrap_or_default();
        if id == 1 {
            return body.chunks_exact(8).map(|chunk| u64::from_le_bytes(field(chunk, 0))).collect();
        }
        extra = extra.get(4 + length..).unwrap_or_default();
    }
    Vec::new()
}

/// `N` bytes at `at`; zeros where the slice is too short, which the callers' length checks exclude.
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..at + N).and_then(|part| part.try_into().ok()).unwrap_or([0; N])
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(field(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(field(bytes, at))
}
