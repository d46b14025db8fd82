//! Checkpoints written as the other kind of file, or in other types: `attend convert` and `attend quantize`.
//!
//! What would be written is described first and compared with what was read; then the tensors are written a few rows at
//! a time, under a temporary name until all is there.

mod folder;
mod gguf;
mod mix;
mod sentence;
mod target;

pub use folder::write_folder;
pub use gguf::{tensors, write_gguf};
pub use mix::{Mix, Override, Types, types};
pub use target::{Error, Target};

use attend_format::Kind;
use attend_kernels::DType;
use attend_model::{Described, ExportTensor};

/// Which types are written and who is told.
pub struct Plan<'a> {
    /// The type of each tensor of the new file.
    pub types: &'a dyn Fn(&ExportTensor) -> DType,
    /// `general.file_type` of a GGUF file, where the types have a name together.
    pub file_type: Option<u32>,
    /// Told the bytes written so far, and of how many; `false` stops.
    pub progress: &'a mut dyn FnMut(u64, u64) -> bool,
}

/// What was written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Written {
    /// Bytes of all tensors.
    pub bytes: u64,
    /// Tensors and their bytes by type, the largest share first.
    pub types: Vec<(DType, usize, u64)>,
    /// What is lost, or said in a way that other programs do not read.
    pub notices: Vec<String>,
}

impl Written {
    fn of(specs: &[attend_format::TensorSpec], notices: Vec<String>) -> Written {
        let mut types: Vec<(DType, usize, u64)> = Vec::new();
        for spec in specs {
            let bytes = spec.dtype.bytes(spec.shape.iter().product()).unwrap_or(0) as u64;
            match types.iter_mut().find(|(dtype, ..)| *dtype == spec.dtype) {
                Some((_, count, sum)) => (*count, *sum) = (*count + 1, *sum + bytes),
                None => types.push((spec.dtype, 1, bytes)),
            }
        }
        types.sort_by_key(|(_, _, bytes)| std::cmp::Reverse(*bytes));
        Written { bytes: types.iter().map(|(_, _, bytes)| bytes).sum(), types, notices }
    }
}

/// Writes `source` at `target`, in the kind of file that the target's name asks for.
pub fn write(source: &Described, target: &Target, plan: &mut Plan) -> Result<Written, Error> {
    if target.is_gguf() {
        return write_gguf(source, target, plan);
    }
    match source.checkpoint.kind() {
        Kind::Gguf => write_folder(source, target, plan),
        Kind::HuggingFace => Err(Error::SameKind { path: source.checkpoint.path().to_path_buf() }),
        Kind::Described => Err(Error::OwnDescription { path: source.checkpoint.path().to_path_buf() }),
    }
}

/// Whether every reader wants a tensor in 32 bits: vectors, and the small tables that are added to other values.
pub fn is_plain(tensor: &ExportTensor) -> bool {
    const ADDED: [&str; 4] = ["position_embd.", "token_types.", "attn_rel_b.", "ffn_gate_inp"];
    tensor.shape.len() < 2 || tensor.is_computed() || ADDED.iter().any(|part| tensor.name.contains(part))
}
