//! Safetensors files: a JSON header, then the tensors' bytes without a gap.
//!
//! The reader is strict: no hole, no overlap, no bytes after the last tensor, no name twice, and every size follows
//! from its type and shape. Zero-size tensors, scalars and headers padded with spaces are fine. The format is described
//! in the README of its own project.

mod write;

use std::fmt;
use std::path::Path;

use attend_kernels::DType;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};

use crate::error::shown;
use crate::tensors::{Found, FoundType, MAX_RANK, MAX_TENSORS, Place, check_name, check_shape};
use crate::{Error, Source, Tensors, json};

pub(crate) use write::byte_size;
pub use write::{draft, write};

/// The longest header, in bytes.
pub const MAX_HEADER: u64 = 100_000_000;

/// Opens one file and lists its tensors.
pub fn open(path: &Path) -> Result<Tensors, Error> {
    parse(Source::open(path)?)
}

/// Lists the tensors of one file.
pub fn parse(source: Source) -> Result<Tensors, Error> {
    let mut tensors = Tensors::default();
    add(&mut tensors, source)?;
    Ok(tensors)
}

/// Adds the tensors of one file to `tensors`.
pub(crate) fn add(tensors: &mut Tensors, source: Source) -> Result<(), Error> {
    let (found, file) = (header(&source)?, source.shared_path());
    let index = tensors.add_source(source);
    found.into_iter().try_for_each(|tensor| tensors.insert(tensor, index, &file))
}

/// Reads and checks the header.
fn header(source: &Source) -> Result<Vec<Found>, Error> {
    let file = source.path();
    let mut size = [0; 8];
    source.read_at(0, &mut size)?;
    let size = u64::from_le_bytes(size);
    if size > MAX_HEADER {
        return Err(Error::HeaderTooLarge { file: file.to_path_buf(), size, limit: MAX_HEADER });
    }
    let available = source.length().saturating_sub(8);
    if size > available {
        return Err(Error::HeaderBeyondFile { file: file.to_path_buf(), size, available });
    }
    let text = String::from_utf8(source.bytes_at(8, size)?)
        .map_err(|_| Error::NotUtf8 { file: file.to_path_buf(), field: "the header".into() })?;
    let mut entries = parse_header(file, &text)?;
    drop(text);
    refuse_duplicates(file, &mut entries)?;
    entries.sort_by_key(|entry| entry.offsets);
    check_layout(source, &entries, available - size)?;
    entries.into_iter().map(|entry| entry.check(file, 8 + size)).collect()
}

fn parse_header(file: &Path, text: &str) -> Result<Vec<Entry>, Error> {
    // The nesting that a header needs is 3; the parser itself refuses more than 128.
    let Header { entries, excess } = serde_json::from_str(text).map_err(|error| json::syntax(file, &error))?;
    if excess {
        let (size, limit) = (MAX_TENSORS + 1, MAX_TENSORS);
        return Err(Error::TooLarge { file: file.to_path_buf(), what: "number of tensors", size, limit });
    }
    Ok(entries)
}

fn refuse_duplicates(file: &Path, entries: &mut [Entry]) -> Result<(), Error> {
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    for pair in entries.windows(2) {
        if let [a, b] = pair
            && a.name == b.name
        {
            return Err(Error::DuplicateTensor { file: file.to_path_buf(), tensor: shown(&a.name) });
        }
    }
    Ok(())
}

/// The tensors, sorted by position, must cover the data exactly.
fn check_layout(source: &Source, entries: &[Entry], available: u64) -> Result<(), Error> {
    let file = || source.path().to_path_buf();
    let (mut end, mut previous) = (0, "");
    for entry in entries {
        let (start, stop) = entry.offsets;
        if stop < start {
            let problem = format!("it ends at {stop}, before its start at {start}");
            return Err(Error::BadOffset { file: file(), tensor: shown(&entry.name), problem });
        }
        if start < end {
            return Err(Error::Overlap { file: file(), tensor: shown(&entry.name), other: shown(previous) });
        }
        if start > end {
            return Err(Error::Hole { file: file(), tensor: shown(&entry.name), length: start - end });
        }
        (end, previous) = (stop, &entry.name);
    }
    let expected = (source.length() - available).saturating_add(end);
    let actual = source.length();
    if end > available {
        return Err(Error::Truncated { file: file(), expected, actual });
    }
    if end < available {
        return Err(Error::TrailingBytes { file: file(), expected, actual });
    }
    Ok(())
}

/// One tensor as the header writes it.
struct Entry {
    name: String,
    dtype: String,
    shape: Vec<u64>,
    offsets: (u64, u64),
}

impl Entry {
    fn check(self, file: &Path, data: u64) -> Result<Found, Error> {
        check_name(file, &self.name)?;
        let (shape, elements) = check_shape(file, &self.name, &self.shape)?;
        let Some((dtype, bits)) = parse_dtype(&self.dtype) else {
            let (tensor, dtype) = (shown(&self.name), shown(&self.dtype));
            return Err(Error::UnknownType { file: file.to_path_buf(), tensor, dtype });
        };
        let (start, stop) = self.offsets;
        let (expected, actual) = (u128::from(elements) * u128::from(bits), u128::from(stop - start) * 8);
        if expected != actual {
            let (tensor, expected) = (shown(&self.name), u64::try_from(expected.div_ceil(8)).unwrap_or(u64::MAX));
            return Err(Error::SizeMismatch { file: file.to_path_buf(), tensor, expected, actual: stop - start });
        }
        let place = Place::At(data.saturating_add(start));
        Ok(Found { name: self.name, dtype, shape, bytes: stop - start, place })
    }
}

/// The type and the bits of one element.
fn parse_dtype(name: &str) -> Option<(FoundType, u32)> {
    use FoundType::{Known, Named};
    Some(match name {
        "F64" => (Known(DType::F64), 64),
        "F32" => (Known(DType::F32), 32),
        "F16" => (Known(DType::F16), 16),
        "BF16" => (Known(DType::BF16), 16),
        "F8_E4M3" => (Known(DType::F8E4M3), 8),
        "F8_E5M2" => (Known(DType::F8E5M2), 8),
        "I64" => (Known(DType::I64), 64),
        "I32" => (Known(DType::I32), 32),
        "I16" => (Known(DType::I16), 16),
        "I8" => (Known(DType::I8), 8),
        "U64" => (Known(DType::U64), 64),
        "U32" => (Known(DType::U32), 32),
        "U16" => (Known(DType::U16), 16),
        "U8" => (Known(DType::U8), 8),
        "BOOL" => (Known(DType::Bool), 8),
        "C64" => (Named("C64"), 64),
        "F8_E8M0" => (Named("F8_E8M0"), 8),
        "F8_E4M3FNUZ" => (Named("F8_E4M3FNUZ"), 8),
        "F8_E5M2FNUZ" => (Named("F8_E5M2FNUZ"), 8),
        "F6_E2M3" => (Named("F6_E2M3"), 6),
        "F6_E3M2" => (Named("F6_E3M2"), 6),
        "F4" => (Named("F4"), 4),
        _ => return None,
    })
}

/// The name that the header gives to a type; `None` for types the format does not have.
pub(crate) fn dtype_name(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::F64 => "F64",
        DType::F32 => "F32",
        DType::F16 => "F16",
        DType::BF16 => "BF16",
        DType::F8E4M3 => "F8_E4M3",
        DType::F8E5M2 => "F8_E5M2",
        DType::I64 => "I64",
        DType::I32 => "I32",
        DType::I16 => "I16",
        DType::I8 => "I8",
        DType::U64 => "U64",
        DType::U32 => "U32",
        DType::U16 => "U16",
        DType::U8 => "U8",
        DType::Bool => "BOOL",
        _ => return None,
    })
}

/// The header's entries in file order, read without building a tree, and with names that appear twice kept apart.
struct Header {
    entries: Vec<Entry>,
    excess: bool,
}

#[derive(Deserialize)]
struct Fields {
    dtype: String,
    #[serde(deserialize_with = "shape")]
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Header, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Header;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an object of tensors")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut header = Header { entries: Vec::new(), excess: false };
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        map.next_value::<Strings>()?;
                        continue;
                    }
                    let Fields { dtype, shape, data_offsets: offsets } = map.next_value()?;
                    if header.entries.len() as u64 >= MAX_TENSORS {
                        header.excess = true;
                    } else {
                        header.entries.push(Entry { name, dtype, shape, offsets });
                    }
                }
                Ok(header)
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

fn shape<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u64>, D::Error> {
    struct Dims;
    impl<'de> Visitor<'de> for Dims {
        type Value = Vec<u64>;
        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str("a list of sizes")
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<u64>, A::Error> {
            let mut dims = Vec::new();
            while let Some(dim) = list.next_element()? {
                // One more than allowed is kept, so that the check of shapes names the tensor.
                if dims.len() <= MAX_RANK {
                    dims.push(dim);
                }
            }
            Ok(dims)
        }
    }
    deserializer.deserialize_seq(Dims)
}

/// The free-form metadata: strings under string keys, checked and dropped.
struct Strings;

impl<'de> Deserialize<'de> for Strings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Strings, D::Error> {
        deserializer.deserialize_map(Strings)
    }
}

impl<'de> Visitor<'de> for Strings {
    type Value = Strings;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object of strings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Strings, A::Error> {
        while map.next_entry::<String, String>()?.is_some() {}
        Ok(Strings)
    }
}
