//! Writing safetensors files.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use serde_json::{Map, Value, json};

use super::{MAX_HEADER, dtype_name};
use crate::atomic::AtomicFile;
use crate::error::shown_shape;
use crate::{Error, Fill, TensorSpec};

/// Writes a safetensors file: under a temporary name in the same folder, made durable, then renamed, so that no
/// half-written file ever bears the name. `metadata` is the header's free-form part.
///
/// Tensors are laid out by falling size of their elements and then by name, which keeps every tensor aligned to its
/// element; `fill` is called in that order.
pub fn write(
    path: &Path,
    tensors: &[TensorSpec],
    metadata: &BTreeMap<String, String>,
    fill: &mut Fill,
) -> Result<(), Error> {
    let mut order: Vec<(usize, &TensorSpec)> = tensors.iter().enumerate().collect();
    order.sort_by(|(_, a), (_, b)| b.dtype.block_bytes().cmp(&a.dtype.block_bytes()).then_with(|| a.name.cmp(&b.name)));
    let (header, sizes) = header(path, &order, metadata)?;
    let mut file = AtomicFile::create(path)?;
    file.write(&(header.len() as u64).to_le_bytes())?;
    file.write(&header)?;
    for ((index, tensor), size) in order.into_iter().zip(sizes) {
        file.write_tensor(fill, index, &tensor.name, size)?;
    }
    file.commit()
}

/// As [`write`], without the data, which reads as zeros. The file has its full length and takes little room, so that
/// what it would say of itself can be read before the work is done.
pub fn draft(path: &Path, tensors: &[TensorSpec], metadata: &BTreeMap<String, String>) -> Result<(), Error> {
    let order: Vec<(usize, &TensorSpec)> = tensors.iter().enumerate().collect();
    let (header, sizes) = header(path, &order, metadata)?;
    let mut file = AtomicFile::create(path)?;
    file.write(&(header.len() as u64).to_le_bytes())?;
    file.write(&header)?;
    file.commit_sparse(sizes.iter().fold(8 + header.len() as u64, |sum, &size| sum.saturating_add(size)))
}

/// The header, padded with spaces to 8 bytes, and the tensors' sizes in order.
fn header(
    path: &Path,
    order: &[(usize, &TensorSpec)],
    metadata: &BTreeMap<String, String>,
) -> Result<(Vec<u8>, Vec<u64>), Error> {
    let (mut map, mut sizes, mut offset) = (Map::new(), Vec::new(), 0u64);
    if !metadata.is_empty() {
        map.insert("__metadata__".into(), json!(metadata));
    }
    let mut names = HashSet::new();
    for (_, tensor) in order {
        if !names.insert(&tensor.name) || tensor.name == "__metadata__" {
            return Err(Error::DuplicateTensor { file: path.to_path_buf(), tensor: tensor.name.clone() });
        }
        let Some(dtype) = dtype_name(tensor.dtype) else {
            let (tensor, dtype) = (tensor.name.clone(), tensor.dtype.to_string());
            return Err(Error::UnsupportedType { file: path.to_path_buf(), tensor, dtype });
        };
        let size = byte_size(path, tensor)?;
        let end = offset.saturating_add(size);
        map.insert(
            tensor.name.clone(),
            json!({ "dtype": dtype, "shape": tensor.shape, "data_offsets": [offset, end] }),
        );
        sizes.push(size);
        offset = end;
    }
    let mut header = Value::Object(map).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    let size = header.len() as u64;
    if size > MAX_HEADER {
        return Err(Error::HeaderTooLarge { file: path.to_path_buf(), size, limit: MAX_HEADER });
    }
    Ok((header, sizes))
}

/// A tensor's size in bytes.
pub(crate) fn byte_size(path: &Path, tensor: &TensorSpec) -> Result<u64, Error> {
    let bad = |problem| {
        let shape: Vec<u64> = tensor.shape.iter().map(|&dim| dim as u64).collect();
        Error::BadShape { file: path.to_path_buf(), tensor: tensor.name.clone(), shape: shown_shape(&shape), problem }
    };
    let elements = tensor.shape.iter().try_fold(1usize, |product, &dim| product.checked_mul(dim));
    let elements = elements.ok_or_else(|| bad("its product overflows"))?;
    // Blocks never span rows, so that a row can be read by itself.
    if !tensor.shape.last().copied().unwrap_or(1).is_multiple_of(tensor.dtype.block_len()) {
        return Err(bad("its rows do not fill whole blocks of the type"));
    }
    tensor.dtype.bytes(elements).map(|bytes| bytes as u64).ok_or_else(|| bad("its size overflows"))
}
