//! The tensors of one or several files under their names, and reading them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use attend_kernels::DType;

use crate::error::{shown, shown_shape};
use crate::torch::Strided;
use crate::{Error, Source};

/// The most tensors one model may have.
pub(crate) const MAX_TENSORS: u64 = 1 << 20;
/// The longest name of a tensor, in bytes.
pub(crate) const MAX_NAME: usize = 4096;
/// The most axes of a tensor.
pub(crate) const MAX_RANK: usize = 16;

/// Where a tensor is and what it is.
#[derive(Debug, Clone)]
pub struct TensorInfo {
    pub name: String,
    pub dtype: DType,
    /// Rows first, the last axis contiguous (GGUF's order reversed).
    pub shape: Vec<usize>,
    /// Size in bytes.
    pub bytes: u64,
    /// The file that holds it.
    pub file: Arc<Path>,
    pub(crate) source: usize,
    pub(crate) place: Place,
}

/// How a tensor's bytes lie in its file.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// Contiguous, from this byte of the file on.
    At(u64),
    /// A transposed or otherwise strided view of a storage.
    Strided(Arc<Strided>),
}

/// A tensor of a known type that this program does not read.
#[derive(Debug, Clone)]
pub struct Unreadable {
    /// The type's name as its format writes it.
    pub dtype: String,
    pub shape: Vec<usize>,
    pub file: Arc<Path>,
}

/// All tensors of a checkpoint, sorted by name.
#[derive(Debug, Default)]
pub struct Tensors {
    sources: Vec<Source>,
    infos: BTreeMap<String, TensorInfo>,
    unreadable: BTreeMap<String, Unreadable>,
}

impl Tensors {
    /// The tensors that can be read.
    pub fn infos(&self) -> &BTreeMap<String, TensorInfo> {
        &self.infos
    }

    /// The tensors whose type is known but not read here.
    pub fn unreadable(&self) -> &BTreeMap<String, Unreadable> {
        &self.unreadable
    }

    /// The files they come from.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.sources.iter().map(Source::path)
    }

    /// The tensor `name`, or an error that says whether it is absent or of a type that is not read here.
    pub fn require(&self, name: &str) -> Result<&TensorInfo, Error> {
        if let Some(info) = self.infos.get(name) {
            return Ok(info);
        }
        Err(match self.unreadable.get(name) {
            Some(found) => Error::UnsupportedType {
                file: found.file.to_path_buf(),
                tensor: shown(name),
                dtype: found.dtype.clone(),
            },
            None => {
                let file = self.sources.first().map(|source| source.path().to_path_buf()).unwrap_or_default();
                Error::NoTensor { file, tensor: shown(name) }
            }
        })
    }

    /// Fills `buffer` with the bytes of tensor `name` (little endian, the file's own type) from `offset` on.
    pub fn read_at(&self, name: &str, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
        let info = self.require(name)?;
        let length = buffer.len() as u64;
        if offset.checked_add(length).is_none_or(|end| end > info.bytes) {
            let (file, tensor) = (info.file.to_path_buf(), shown(name));
            return Err(Error::OutOfRange { file, tensor, offset, length, size: info.bytes });
        }
        let Some(source) = self.sources.get(info.source) else {
            return Err(Error::NoTensor { file: info.file.to_path_buf(), tensor: shown(name) });
        };
        match &info.place {
            Place::At(start) => source.read_at(start.saturating_add(offset), buffer),
            Place::Strided(view) => view.read_at(source, offset, buffer),
        }
    }

    pub(crate) fn add_source(&mut self, source: Source) -> usize {
        self.sources.push(source);
        self.sources.len() - 1
    }

    pub(crate) fn insert(&mut self, tensor: Found, source: usize, file: &Arc<Path>) -> Result<(), Error> {
        let duplicate = || Error::DuplicateTensor { file: file.to_path_buf(), tensor: shown(&tensor.name) };
        if self.infos.contains_key(&tensor.name) || self.unreadable.contains_key(&tensor.name) {
            return Err(duplicate());
        }
        if (self.infos.len() + self.unreadable.len()) as u64 >= MAX_TENSORS {
            let file = file.to_path_buf();
            return Err(Error::TooLarge { file, what: "number of tensors", size: MAX_TENSORS + 1, limit: MAX_TENSORS });
        }
        let Found { name, dtype, shape, bytes, place } = tensor;
        match dtype {
            FoundType::Known(dtype) => {
                let info = TensorInfo { name: name.clone(), dtype, shape, bytes, file: file.clone(), source, place };
                self.infos.insert(name, info);
            }
            FoundType::Named(dtype) => {
                self.unreadable.insert(name, Unreadable { dtype: dtype.into(), shape, file: file.clone() });
            }
        }
        Ok(())
    }
}

/// A tensor as a file's reader found it.
#[derive(Debug)]
pub(crate) struct Found {
    pub name: String,
    pub dtype: FoundType,
    pub shape: Vec<usize>,
    pub bytes: u64,
    pub place: Place,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum FoundType {
    Known(DType),
    /// Known by name and size only.
    Named(&'static str),
}

/// Checks a tensor's name.
pub(crate) fn check_name(file: &Path, name: &str) -> Result<(), Error> {
    let problem = if name.is_empty() {
        "is empty"
    } else if name.len() > MAX_NAME {
        "is longer than 4096 bytes"
    } else if name.chars().any(char::is_control) {
        "has control characters"
    } else {
        return Ok(());
    };
    Err(Error::BadName { file: file.to_path_buf(), tensor: shown(name), problem })
}

/// Checks a shape and gives it with the number of its elements.
pub(crate) fn check_shape(file: &Path, name: &str, shape: &[u64]) -> Result<(Vec<usize>, u64), Error> {
    let bad = |problem| Error::BadShape {
        file: PathBuf::from(file),
        tensor: shown(name),
        shape: shown_shape(shape),
        problem,
    };
    if shape.len() > MAX_RANK {
        return Err(bad("it has more than 16 axes"));
    }
    // Checked without zeros too, so that no product of a part of the axes can overflow either.
    let mut nonzero = shape.iter().filter(|&&dim| dim != 0);
    let product = nonzero.try_fold(1u64, |product, &dim| product.checked_mul(dim));
    let product = product.filter(|&product| product <= i64::MAX as u64);
    let product = product.ok_or_else(|| bad("its product is beyond 63 bits"))?;
    let elements = if shape.contains(&0) { 0 } else { product };
    let dims: Result<Vec<usize>, _> = shape.iter().map(|&dim| usize::try_from(dim)).collect();
    Ok((dims.map_err(|_| bad("an axis is beyond this machine's address width"))?, elements))
}
