//! `pytorch_model.bin`: a pickle that rebuilds tensors, and the storages they view.
//!
//! A pickle is a program. The reader here runs a small part of its language ([`pickle`]) in which nothing can be done
//! but name storages and describe tensors over them; everything else is refused by name, with the advice to convert
//! the file. Two containers are read: the zip archive of current files, whose entries must be stored uncompressed, and
//! the older sequence of pickles followed by raw storages.

mod legacy;
mod pickle;
mod strided;
mod zip;

use std::collections::HashMap;
use std::sync::Arc;

use attend_kernels::DType;

use crate::error::{shown, shown_shape};
use crate::tensors::{Found, FoundType, Place, check_name, check_shape};
use crate::{Error, Source, Tensors};
use pickle::{StateDict, TensorView};

pub(crate) use strided::Strided;

/// Adds the tensors of one file to `tensors`.
pub(crate) fn add(tensors: &mut Tensors, source: Source) -> Result<(), Error> {
    let mut magic = [0; 4];
    source.read_at(0, &mut magic)?;
    let found = if &magic == b"PK\x03\x04" {
        zip_file(&source)?
    } else if legacy::is_legacy(&source) {
        legacy::read(&source)?
    } else {
        let found = format!("the bytes {magic:02x?}");
        return Err(Error::BadMagic { file: source.path().to_path_buf(), expected: "PyTorch", found });
    };
    let file = source.shared_path();
    let index = tensors.add_source(source);
    found.into_iter().try_for_each(|tensor| tensors.insert(tensor, index, &file))
}

fn zip_file(source: &Source) -> Result<Vec<Found>, Error> {
    let archive = zip::Archive::open(source)?;
    let damaged = |problem: &str| Error::BadArchive { file: source.path().to_path_buf(), problem: problem.into() };
    let mut pickles = archive.names().filter_map(|name| name.strip_suffix("data.pkl"));
    let root = pickles.next().ok_or_else(|| damaged("it has no data.pkl, so it is no PyTorch file"))?.to_owned();
    if pickles.next().is_some() || !(root.is_empty() || root.ends_with('/')) {
        return Err(damaged("it must have one data.pkl"));
    }
    if let Some(order) = archive.find(&format!("{root}byteorder"))? {
        let order = source.bytes_at(order.start, order.length.min(16))?;
        if order.trim_ascii() != b"little" {
            return Err(damaged("its numbers are not little-endian"));
        }
    }
    let entry = archive.find(&format!("{root}data.pkl"))?.ok_or_else(|| damaged("data.pkl cannot be found"))?;
    let state = pickle::read_state_dict(source, entry.start, entry.start.saturating_add(entry.length))?;
    let mut places = HashMap::new();
    for storage in &state.storages {
        if !places.contains_key(&storage.key) {
            let name = format!("{root}data/{}", storage.key);
            let entry = archive.find(&name)?;
            let entry = entry.ok_or_else(|| damaged(&format!("the storage {} is missing", shown(&name))))?;
            places.insert(storage.key.clone(), (entry.start, entry.length));
        }
    }
    resolve(source, state, &places)
}

/// Gives every tensor of the state its place in the file. `places` holds the start and length of each storage.
fn resolve(source: &Source, state: StateDict, places: &HashMap<String, (u64, u64)>) -> Result<Vec<Found>, Error> {
    let file = source.path();
    let mut found = Vec::new();
    for (name, view) in state.tensors {
        check_name(file, &name)?;
        let storage = state.storages.get(view.storage);
        let place = storage.and_then(|storage| places.get(&storage.key));
        let Some(&(start, length)) = place else {
            let problem = format!("the storage of tensor {} is missing", shown(&name));
            return Err(Error::BadArchive { file: file.to_path_buf(), problem });
        };
        found.push(tensor(source, name, &view, start, length)?);
    }
    Ok(found)
}

/// Checks one view against its storage of `length` bytes at `start`.
fn tensor(source: &Source, name: String, view: &TensorView, start: u64, length: u64) -> Result<Found, Error> {
    let file = source.path();
    let (shape, elements) = check_shape(file, &name, &view.shape)?;
    let bad = |problem| Error::BadShape {
        file: file.to_path_buf(),
        tensor: shown(&name),
        shape: shown_shape(&view.shape),
        problem,
    };
    let size = view.dtype.block_bytes() as u64;
    if view.shape.len() != view.strides.len() {
        return Err(bad("it has another number of strides than of axes"));
    }
    // Also bounds what a view that repeats elements (stride 0) would expand to.
    let bytes = elements.checked_mul(size).ok_or_else(|| bad("its size is beyond 64 bits"))?;
    if bytes > length {
        return Err(Error::SizeMismatch {
            file: file.to_path_buf(),
            tensor: shown(&name),
            expected: bytes,
            actual: length,
        });
    }
    let last = last_element(view, elements).ok_or_else(|| bad("its strides are beyond 64 bits"))?;
    let end = last.checked_mul(size).filter(|&end| end <= length);
    let end = end.ok_or_else(|| bad("it reaches beyond the end of its storage"))?;
    let first = view.offset.saturating_mul(size);
    let place = if view.is_contiguous() {
        Place::At(start.saturating_add(first))
    } else {
        let strides: Result<Vec<usize>, _> = view.strides.iter().map(|&stride| usize::try_from(stride)).collect();
        let strides = strides.map_err(|_| bad("a stride is beyond this machine's address width"))?;
        Place::Strided(Arc::new(Strided::new(start.saturating_add(first), end - first, size, shape.clone(), strides)))
    };
    Ok(Found { name, dtype: FoundType::Known(view.dtype), shape, bytes, place })
}

/// One past the last element that a view reads; `None` on overflow.
fn last_element(view: &TensorView, elements: u64) -> Option<u64> {
    if elements == 0 {
        return Some(view.offset);
    }
    let axes = view.shape.iter().zip(&view.strides);
    let reach = axes.map(|(&dim, &stride)| dim.checked_sub(1)?.checked_mul(stride));
    reach.into_iter().try_fold(view.offset, |sum, reach| sum.checked_add(reach?))?.checked_add(1)
}

/// The types that storages and tensors name, after `torch.`; a storage's name ends in `Storage`.
fn parse_dtype(name: &str) -> Option<DType> {
    Some(match name {
        "DoubleStorage" | "float64" | "double" => DType::F64,
        "FloatStorage" | "float32" | "float" => DType::F32,
        "HalfStorage" | "float16" | "half" => DType::F16,
        "BFloat16Storage" | "bfloat16" => DType::BF16,
        "Float8_e4m3fnStorage" | "float8_e4m3fn" => DType::F8E4M3,
        "Float8_e5m2Storage" | "float8_e5m2" => DType::F8E5M2,
        "LongStorage" | "int64" | "long" => DType::I64,
        "IntStorage" | "int32" | "int" => DType::I32,
        "ShortStorage" | "int16" | "short" => DType::I16,
        "CharStorage" | "int8" => DType::I8,
        "uint64" => DType::U64,
        "uint32" => DType::U32,
        "uint16" => DType::U16,
        "ByteStorage" | "uint8" => DType::U8,
        "BoolStorage" | "bool" => DType::Bool,
        _ => return None,
    })
}
