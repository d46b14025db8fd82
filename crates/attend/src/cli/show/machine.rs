//! How a model would be computed here: the arithmetic of each type of weight, the cache, what they take.

use super::super::options::ComputeArgs;
use super::super::session::{cache_type, load_options};
use anyhow::Result;
use attend_kernels::{Compute, DType, Matrix};
use attend_model::{Described, cost};
use attend_nn::KvTypes;
use serde::Serialize;

#[derive(Debug, Serialize)]
pub struct Computing {
    pub instruction_set: String,
    pub threads: usize,
    /// For each type of the file's matrices, in what arithmetic it is multiplied.
    pub arithmetic: Vec<Arithmetic>,
    pub attention: &'static str,
    pub kv_type: String,
    pub kv_bytes_per_token: u64,
    /// Of one sequence that fills the context.
    pub kv_bytes_full_context: Option<u64>,
    pub cross_bytes_per_source_token: u64,
}

#[derive(Debug, Serialize)]
pub struct Arithmetic {
    pub file_type: String,
    pub kept_as: String,
    pub arithmetic: &'static str,
}

impl Computing {
    pub fn of(described: &Described, args: &ComputeArgs) -> Result<Computing> {
        let spec = &described.spec;
        let kv = cache_type(args.kv_type);
        let cache = KvTypes::both(kv);
        let mut types: Vec<DType> = described.tensors.iter().filter(|t| t.shape.len() == 2).map(|t| t.dtype).collect();
        types.sort();
        types.dedup();
        let compute = load_options(args).compute;
        let context = args.context.or(spec.context);
        Ok(Computing {
            instruction_set: attend_kernels::machine().to_string(),
            threads: attend_kernels::threads(),
            arithmetic: types.into_iter().filter_map(|dtype| arithmetic(dtype, compute)).collect(),
            attention: match args.attention {
                super::super::options::AttentionChoice::Flash => "flash",
                super::super::options::AttentionChoice::Textbook => "textbook",
            },
            kv_type: kv.to_string(),
            kv_bytes_per_token: cost::kv_bytes_per_token(spec, cache),
            kv_bytes_full_context: context.map(|tokens| cost::kv_bytes(spec, tokens as u64, cache)),
            cross_bytes_per_source_token: cost::cross_bytes_per_token(spec, cache),
        })
    }
}

/// Asks the kernels, by packing a row of zeros; `None` for a type that is not one of weights.
fn arithmetic(dtype: DType, compute: Compute) -> Option<Arithmetic> {
    let columns = dtype.block_len().max(256);
    let mut builder = Matrix::builder(1, columns, dtype, compute).ok()?;
    builder.push(&vec![0; dtype.bytes(columns)?]).ok()?;
    let matrix = builder.finish().ok()?;
    Some(Arithmetic {
        file_type: dtype.to_string(),
        kept_as: matrix.dtype().to_string(),
        arithmetic: matrix.arithmetic(),
    })
}
