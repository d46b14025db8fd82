//! Reading a file's head: a stream of claims, each held to the bytes that are left before it is believed.

use super::DEFAULT_ALIGNMENT;
use super::metadata::Metadata;
use super::types::{Type, parse_type};
use super::value::{Array, Strings, Value};
use crate::error::{shown, shown_shape};
use crate::stream::Stream;
use crate::tensors::{Found, MAX_NAME, MAX_TENSORS, Place, check_name, check_shape};
use crate::{Error, Source};

const MAX_KEYS: u64 = 1 << 16;
/// Bytes of all metadata together; the largest vocabularies take some 20 MiB.
const MAX_METADATA: u64 = 512 << 20;
const MAX_KEY_LENGTH: u64 = 65_535;
const MAX_ARRAY_DEPTH: usize = 4;
const MAX_NESTED_ARRAYS: u64 = 1 << 16;
const MAX_AXES: u32 = 4;
const MAX_ALIGNMENT: u64 = 1 << 20;

/// Reads metadata and tensor descriptions, and checks that the data they describe is there.
pub(super) fn read(source: &Source) -> Result<(Metadata, Vec<Found>), Error> {
    let mut stream = Stream::new(source);
    let version = magic(&mut stream)?;
    let tensors = stream.u64()?;
    let keys = stream.u64()?;
    // The smallest tensor description has 25 bytes, the smallest metadata entry 13.
    stream.check_count("the tensor list", tensors, 25, MAX_TENSORS)?;
    stream.check_count("the metadata", keys, 13, MAX_KEYS)?;
    let mut metadata = Metadata::new(source.shared_path(), version);
    for _ in 0..keys {
        entry(&mut stream, &mut metadata)?;
    }
    let alignment = alignment(&metadata)?;
    let mut found = Vec::new();
    let mut end = 0;
    for _ in 0..tensors {
        found.push(tensor(&mut stream, alignment, &mut end)?);
    }
    let data = stream.position.checked_next_multiple_of(alignment);
    let expected = data.and_then(|data| data.checked_add(end)).unwrap_or(u64::MAX);
    // The padding after the last tensor may be missing, and where there are no tensors that before the data too.
    if tensors > 0 && expected > source.length() {
        let (file, actual) = (source.path().to_path_buf(), source.length());
        return Err(Error::Truncated { file, expected, actual });
    }
    for tensor in &mut found {
        if let Place::At(offset) = &mut tensor.place {
            *offset = offset.saturating_add(data.unwrap_or(u64::MAX));
        }
    }
    Ok((metadata, found))
}

fn magic(stream: &mut Stream) -> Result<u32, Error> {
    let file = || stream.source.path().to_path_buf();
    let mut head = [0; 8];
    stream.source.read_at(0, &mut head)?;
    let [a, b, c, d, version @ ..] = head;
    if &[a, b, c, d] != b"GGUF" {
        let old = [*b"lmgg", *b"fmgg", *b"tjgg", *b"algg"].contains(&[a, b, c, d]);
        if old {
            let hint = "it predates GGUF; convert it again from the original weights";
            return Err(Error::UnsupportedVersion { file: file(), format: "ggml", version: 0, hint });
        }
        let found = shown(&String::from_utf8_lossy(&[a, b, c, d]));
        return Err(Error::BadMagic { file: file(), expected: "GGUF", found: format!("{found:?}") });
    }
    stream.position = 8;
    match u32::from_le_bytes(version) {
        version @ (2 | 3) => Ok(version),
        // A small number whose bytes are reversed.
        version if version != 0 && version & 0xffff == 0 => Err(Error::BigEndian { file: file() }),
        version => {
            let hint = "versions 2 and 3 are; convert it again with current tools";
            Err(Error::UnsupportedVersion { file: file(), format: "GGUF", version: version.into(), hint })
        }
    }
}

fn entry(stream: &mut Stream, metadata: &mut Metadata) -> Result<(), Error> {
    let key = stream.string("a metadata key", MAX_KEY_LENGTH)?;
    let file = || stream.source.path().to_path_buf();
    if key.is_empty() || key.chars().any(char::is_control) {
        return Err(Error::BadField { file: file(), field: shown(&key), problem: "is no metadata key".into() });
    }
    if metadata.has(&key) {
        return Err(Error::DuplicateField { file: file(), field: shown(&key) });
    }
    let value_type = stream.u32()?;
    let value = value(stream, &key, value_type)?;
    metadata.values.insert(key, value);
    if stream.position > MAX_METADATA {
        let (size, limit) = (stream.position, MAX_METADATA);
        return Err(Error::TooLarge { file: stream.source.path().to_path_buf(), what: "metadata", size, limit });
    }
    Ok(())
}

fn value(stream: &mut Stream, key: &str, value_type: u32) -> Result<Value, Error> {
    Ok(match value_type {
        0 => Value::U8(u8::from_le_bytes(stream.take()?)),
        1 => Value::I8(i8::from_le_bytes(stream.take()?)),
        2 => Value::U16(u16::from_le_bytes(stream.take()?)),
        3 => Value::I16(i16::from_le_bytes(stream.take()?)),
        4 => Value::U32(stream.u32()?),
        5 => Value::I32(i32::from_le_bytes(stream.take()?)),
        6 => Value::F32(f32::from_le_bytes(stream.take()?)),
        7 => {
            let [byte] = stream.take()?;
            Value::Bool(flag(stream, key, byte)?)
        }
        8 => Value::String(stream.string(key, MAX_METADATA)?),
        9 => Value::Array(array(stream, key, 1)?),
        10 => Value::U64(stream.u64()?),
        11 => Value::I64(i64::from_le_bytes(stream.take()?)),
        12 => Value::F64(f64::from_le_bytes(stream.take()?)),
        _ => return Err(unknown_type(stream, key, value_type)),
    })
}

fn unknown_type(stream: &Stream, key: &str, value_type: u32) -> Error {
    Error::BadValueType { file: stream.source.path().to_path_buf(), field: shown(key), value_type }
}

fn array(stream: &mut Stream, key: &str, depth: usize) -> Result<Array, Error> {
    if depth > MAX_ARRAY_DEPTH {
        let file = stream.source.path().to_path_buf();
        return Err(Error::TooDeep { file, field: shown(key), limit: MAX_ARRAY_DEPTH });
    }
    let (element, count) = (stream.u32()?, stream.u64()?);
    let size = match element {
        0 | 1 | 7 => 1,
        2 | 3 => 2,
        4..=6 => 4,
        8 | 10..=12 => 8,
        9 => 12,
        _ => return Err(unknown_type(stream, key, element)),
    };
    stream.check_count(key, count, size, MAX_METADATA / size)?;
    Ok(match element {
        0 => Array::U8(stream.numbers(count, u8::from_le_bytes)?),
        1 => Array::I8(stream.numbers(count, i8::from_le_bytes)?),
        2 => Array::U16(stream.numbers(count, u16::from_le_bytes)?),
        3 => Array::I16(stream.numbers(count, i16::from_le_bytes)?),
        4 => Array::U32(stream.numbers(count, u32::from_le_bytes)?),
        5 => Array::I32(stream.numbers(count, i32::from_le_bytes)?),
        6 => Array::F32(stream.numbers(count, f32::from_le_bytes)?),
        7 => {
            let bytes: Vec<u8> = stream.numbers(count, u8::from_le_bytes)?;
            Array::Bool(bytes.into_iter().map(|byte| flag(stream, key, byte)).collect::<Result<_, _>>()?)
        }
        8 => {
            let mut strings = Strings::default();
            for _ in 0..count {
                stream.string_into(key, MAX_METADATA, |text| strings.push(text))?;
            }
            Array::String(strings)
        }
        10 => Array::U64(stream.numbers(count, u64::from_le_bytes)?),
        11 => Array::I64(stream.numbers(count, i64::from_le_bytes)?),
        12 => Array::F64(stream.numbers(count, f64::from_le_bytes)?),
        _ => {
            let mut arrays = Vec::new();
            for _ in 0..count {
                stream.nested += 1;
                stream.check_count(key, stream.nested, 0, MAX_NESTED_ARRAYS)?;
                arrays.push(array(stream, key, depth + 1)?);
            }
            Array::Array(arrays)
        }
    })
}

fn flag(stream: &Stream, key: &str, byte: u8) -> Result<bool, Error> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        _ => {
            let problem = format!("is a bool stored as {byte}");
            Err(Error::BadField { file: stream.source.path().to_path_buf(), field: shown(key), problem })
        }
    }
}

fn alignment(metadata: &Metadata) -> Result<u64, Error> {
    let bad = |problem: String| Err(Error::BadAlignment { file: metadata.file().to_path_buf(), problem });
    match metadata.get("general.alignment") {
        None => Ok(DEFAULT_ALIGNMENT),
        Some(Value::U32(alignment)) => match u64::from(*alignment) {
            fine if fine.is_power_of_two() && fine <= MAX_ALIGNMENT => Ok(fine),
            other => bad(format!("must be a power of two from 1 to {MAX_ALIGNMENT}, found {other}")),
        },
        Some(other) => bad(format!("must be stored as u32, found {}", other.type_name())),
    }
}

/// Reads one description; `end` is where the tensors before it end, relative to the data's start.
fn tensor(stream: &mut Stream, alignment: u64, end: &mut u64) -> Result<Found, Error> {
    let name = stream.string("a tensor name", MAX_NAME as u64)?;
    let file = || stream.source.path().to_path_buf();
    check_name(stream.source.path(), &name)?;
    let axes = stream.u32()?;
    if axes == 0 || axes > MAX_AXES {
        let (tensor, shape) = (shown(&name), format!("of {axes} axes"));
        return Err(Error::BadShape { file: file(), tensor, shape, problem: "1 to 4 axes are possible" });
    }
    let mut dims: Vec<u64> = stream.numbers(axes.into(), u64::from_le_bytes)?;
    dims.reverse();
    let id = stream.u32()?;
    let file = || stream.source.path().to_path_buf();
    let Type { dtype, block_len, block_bytes } = parse_type(id).map_err(|name_of_type| Error::UnknownType {
        file: file(),
        tensor: shown(&name),
        dtype: name_of_type.map_or_else(|| format!("number {id}"), str::to_owned),
    })?;
    let bad = |problem| Error::BadShape { file: file(), tensor: shown(&name), shape: shown_shape(&dims), problem };
    if dims.contains(&0) {
        return Err(bad("no axis may be empty"));
    }
    let (shape, elements) = check_shape(stream.source.path(), &name, &dims)?;
    if !dims.last().copied().unwrap_or(1).is_multiple_of(block_len) {
        return Err(bad("its rows do not fill whole blocks of its type"));
    }
    let bytes = (elements / block_len).checked_mul(block_bytes).filter(|&bytes| bytes <= i64::MAX as u64);
    let bytes = bytes.ok_or_else(|| bad("its size is beyond 63 bits"))?;
    let offset = stream.u64()?;
    let expected = end.checked_next_multiple_of(alignment).unwrap_or(u64::MAX);
    if offset != expected {
        let problem = format!("the tensors before it end at {expected}, but it is placed at {offset}");
        let (file, tensor) = (stream.source.path().to_path_buf(), shown(&name));
        return Err(Error::BadOffset { file, tensor, problem });
    }
    *end = offset.checked_add(bytes).ok_or_else(|| bad("its end is beyond 64 bits"))?;
    Ok(Found { name, dtype, shape, bytes, place: Place::At(offset) })
}
