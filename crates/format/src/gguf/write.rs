//! Writing GGUF files.

use std::collections::HashSet;
use std::path::Path;

use super::types::type_id;
use super::{Array, DEFAULT_ALIGNMENT, Value};
use crate::atomic::AtomicFile;
use crate::safetensors::byte_size;
use crate::{Error, Fill, TensorSpec};

/// Writes a GGUF file of version 3: under a temporary name in the same folder, made durable, then renamed, so that
/// no half-written file ever bears the name.
///
/// `metadata` is written in the order given (`general.architecture` belongs first); a `general.alignment` among it is
/// obeyed. Shapes are rows first, as everywhere in this crate. `fill` is called once per tensor in the given order.
pub fn write(path: &Path, metadata: &[(String, Value)], tensors: &[TensorSpec], fill: &mut Fill) -> Result<(), Error> {
    let file = write_first(path, metadata, tensors, tensors.len(), fill)?;
    file.commit()
}

/// As [`write`], with the data of the first `filled` tensors only; the others read as zeros. The file has its full
/// length and takes little room, so that what it would say of itself can be read before the work is done.
pub fn draft(
    path: &Path,
    metadata: &[(String, Value)],
    tensors: &[TensorSpec],
    filled: usize,
    fill: &mut Fill,
) -> Result<(), Error> {
    let file = write_first(path, metadata, tensors, filled, fill)?;
    let alignment = alignment(path, metadata)?;
    let (head, sizes) = head(path, metadata, tensors, alignment)?;
    let padded = |length: u64| length.next_multiple_of(alignment);
    let data = sizes.iter().fold(0u64, |sum, &size| sum.saturating_add(padded(size)));
    file.commit_sparse(padded(head.len() as u64).saturating_add(data))
}

fn write_first(
    path: &Path,
    metadata: &[(String, Value)],
    tensors: &[TensorSpec],
    filled: usize,
    fill: &mut Fill,
) -> Result<AtomicFile, Error> {
    let alignment = alignment(path, metadata)?;
    let (mut head, sizes) = head(path, metadata, tensors, alignment)?;
    pad(&mut head, alignment);
    let mut file = AtomicFile::create(path)?;
    file.write(&head)?;
    for (index, (tensor, size)) in tensors.iter().zip(sizes).take(filled).enumerate() {
        file.write_tensor(fill, index, &tensor.name, size)?;
        let padding = size.next_multiple_of(alignment) - size;
        file.write(&vec![0; padding as usize])?;
    }
    Ok(file)
}

fn alignment(path: &Path, metadata: &[(String, Value)]) -> Result<u64, Error> {
    match metadata.iter().find(|(key, _)| key == "general.alignment") {
        None => Ok(DEFAULT_ALIGNMENT),
        Some((_, Value::U32(value))) if value.is_power_of_two() && *value <= 1 << 20 => Ok(u64::from(*value)),
        Some(_) => {
            let problem = "must be a power of two up to 1 MiB, as u32".into();
            Err(Error::BadAlignment { file: path.to_path_buf(), problem })
        }
    }
}

/// Everything before the data, without the padding, and the tensors' sizes.
fn head(
    path: &Path,
    metadata: &[(String, Value)],
    tensors: &[TensorSpec],
    alignment: u64,
) -> Result<(Vec<u8>, Vec<u64>), Error> {
    let mut out = b"GGUF".to_vec();
    out.extend(3u32.to_le_bytes());
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend((metadata.len() as u64).to_le_bytes());
    let mut keys = HashSet::new();
    for (key, value) in metadata {
        if !keys.insert(key) {
            return Err(Error::DuplicateField { file: path.to_path_buf(), field: key.clone() });
        }
        put_string(&mut out, key);
        put_value(&mut out, value);
    }
    let (mut names, mut sizes, mut offset) = (HashSet::new(), Vec::new(), 0u64);
    for tensor in tensors {
        let file = path.to_path_buf();
        if !names.insert(&tensor.name) {
            return Err(Error::DuplicateTensor { file, tensor: tensor.name.clone() });
        }
        let Some(id) = type_id(tensor.dtype) else {
            return Err(Error::UnsupportedType { file, tensor: tensor.name.clone(), dtype: tensor.dtype.to_string() });
        };
        let size = byte_size(path, tensor)?;
        put_string(&mut out, &tensor.name);
        // A scalar is a vector of one: the format has no tensor without axes.
        let dims = if tensor.shape.is_empty() { &[1][..] } else { &tensor.shape };
        if dims.len() > 4 || dims.contains(&0) {
            let (tensor, shape) = (tensor.name.clone(), format!("{dims:?}"));
            return Err(Error::BadShape { file, tensor, shape, problem: "1 to 4 axes, none empty, can be written" });
        }
        out.extend((dims.len() as u32).to_le_bytes());
        dims.iter().rev().for_each(|&dim| out.extend((dim as u64).to_le_bytes()));
        out.extend(id.to_le_bytes());
        out.extend(offset.to_le_bytes());
        sizes.push(size);
        offset = offset.saturating_add(size).next_multiple_of(alignment);
    }
    Ok((out, sizes))
}

fn pad(out: &mut Vec<u8>, alignment: u64) {
    out.resize(out.len().next_multiple_of(alignment as usize), 0);
}

fn put_string(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    let mut put = |id: u32, bytes: &[u8]| {
        out.extend(id.to_le_bytes());
        out.extend(bytes);
    };
    match value {
        Value::U8(v) => put(0, &v.to_le_bytes()),
        Value::I8(v) => put(1, &v.to_le_bytes()),
        Value::U16(v) => put(2, &v.to_le_bytes()),
        Value::I16(v) => put(3, &v.to_le_bytes()),
        Value::U32(v) => put(4, &v.to_le_bytes()),
        Value::I32(v) => put(5, &v.to_le_bytes()),
        Value::F32(v) => put(6, &v.to_le_bytes()),
        Value::Bool(v) => put(7, &[u8::from(*v)]),
        Value::String(text) => {
            put(8, &[]);
            put_string(out, text);
        }
        Value::Array(array) => {
            put(9, &[]);
            put_array(out, array);
        }
        Value::U64(v) => put(10, &v.to_le_bytes()),
        Value::I64(v) => put(11, &v.to_le_bytes()),
        Value::F64(v) => put(12, &v.to_le_bytes()),
    }
}

fn put_array(out: &mut Vec<u8>, array: &Array) {
    let mut put = |id: u32, bytes: &mut dyn Iterator<Item = u8>| {
        out.extend(id.to_le_bytes());
        out.extend((array.len() as u64).to_le_bytes());
        out.extend(bytes);
    };
    match array {
        Array::U8(v) => put(0, &mut v.iter().copied()),
        Array::I8(v) => put(1, &mut v.iter().flat_map(|v| v.to_le_bytes())),
        Array::U16(v) => put(2, &mut v.iter().flat_map(|v| v.to_le_bytes())),
        Array::I16(v) => put(3, &mut v.iter().flat_map(|v| v.to_le_bytes())),
        Array::U32(v) => put(4, &mut v.iter().flat_map(|v| v.to_le_bytes())),
        Array::I32(v) => put(5, &mut v.iter().flat_map(|v| v.to_le_bytes())),
        Array::F32(v) => put(6, &mut v.iter().flat_map(|v| v.to_le_bytes())),
        Array::Bool(v) => put(7, &mut v.iter().map(|&v| u8::from(v))),
        Array::String(strings) => {
            put(8, &mut std::iter::empty());
            strings.iter().for_each(|text| put_string(out, text));
        }
        Array::Array(arrays) => {
            put(9, &mut std::iter::empty());
            arrays.iter().for_each(|array| put_array(out, array));
        }
        Array::U64(v) => put(10, &mut v.iter().flat_map(|v| v.to_le_bytes())),
        Array::I64(v) => put(11, &mut v.iter().flat_map(|v| v.to_le_bytes())),
        Array::F64(v) => put(12, &mut v.iter().flat_map(|v| v.to_le_bytes())),
    }
}
