//! Weights, read piece by piece into the layout that the model computes with.

mod finite;
mod rows;
mod stored;

use crate::cost::{AsStored, Planner, Usage};
use crate::describe::{Described, describe_within, too_large};
use crate::error::Error;
use crate::mapping::{Mapped, Storage};
use crate::memory;
use attend_format::Checkpoint;
use attend_kernels::{Compute, DType, Matrix, dequantize, quantize};
use attend_nn::spec::Body;
use attend_nn::{KvTypes, Model, WeightSource};
pub(crate) use finite::first as first_not_finite;
pub(crate) use rows::Pieces;
use std::collections::HashMap;
use std::path::Path;

/// What a caller chooses about loading.
#[derive(Debug, Clone, Copy)]
pub struct LoadOptions {
    /// The arithmetic of matrices.
    pub compute: Compute,
    /// The type in which plain floating-point matrices are kept; `None`: that of the file. Block-quantised matrices
    /// keep theirs, and so does one whose rows are not whole blocks of the type.
    pub dtype: Option<DType>,
    /// Bytes of memory that may be used; `None`: what the system says is available.
    pub available_memory: Option<u64>,
    /// What must fit beside the weights; `None`: nothing is asked.
    pub need: Option<Need>,
}

/// What a model will be used for at least.
#[derive(Debug, Clone, Copy)]
pub struct Need {
    /// Tokens of a sequence, where they were asked for; else one step's must fit.
    pub context: Option<usize>,
    /// The most tokens that are read in one step.
    pub batch: usize,
    pub kv: KvTypes,
}

impl Default for LoadOptions {
    fn default() -> LoadOptions {
        LoadOptions { compute: Compute::Native, dtype: None, available_memory: None, need: None }
    }
}

/// A model in memory, and what its files said.
#[derive(Debug)]
pub struct Loaded {
    pub model: Model,
    pub source: Described,
}

/// Describes the checkpoint at `path` and reads its weights. `progress` is told the bytes read so far, and of how many.
pub fn load(path: &Path, options: &LoadOptions, progress: &mut dyn FnMut(u64, u64)) -> Result<Loaded, Error> {
    let machine = attend_kernels::choose().map_err(Error::Machine)?;
    let available = options.available_memory.or_else(memory::available);
    let mut source = describe_within(path, available)?;
    let mut notices = Vec::new();
    notices.extend(attend_kernels::replaced().map(|fault| format!("{fault}; {machine} is used instead")));
    if let Some(available) = available {
        notices.extend(check_memory(&source, options, available)?);
    }
    let model = {
        let mut weights = Weights::new(&source, options, progress);
        for copy in &source.copies {
            if !stored::equal(&source.checkpoint, &copy.theirs, &copy.used)? {
                notices.push(format!("`{}` differs from `{}`, which is used in its place", copy.theirs, copy.used));
            }
        }
        Model::assemble(source.spec.clone(), &mut weights)?
    };
    source.notices.extend(notices);
    Ok(Loaded { model, source })
}

/// Holds the plan of a model against the memory; says so where less than the whole context would fit.
fn check_memory(source: &Described, options: &LoadOptions, available: u64) -> Result<Option<String>, Error> {
    let types = source.kept(options);
    let planner = Planner::new(&source.spec, &types);
    let Need { context, batch, kv } =
        options.need.unwrap_or(Need { context: Some(1), batch: 1, kv: KvTypes::both(DType::F16) });
    let limit = source.spec.context;
    // More than the model was made for is refused by whoever runs it.
    let asked = context.unwrap_or(batch).min(limit.unwrap_or(usize::MAX)).max(1);
    let usage = Usage { context: asked, source: asked, requests: 1, batch, kv };
    let plan = planner.plan(&usage);
    let hint = "a smaller or more quantised version of the model would fit".to_string();
    if plan.weight_bytes > available {
        return Err(too_large(&source.checkpoint, u128::from(plan.weight_bytes), available, hint));
    }
    if options.need.is_some() && plan.total_bytes > available {
        let fit = planner.fit(&usage, available);
        let hint = match fit.largest_context {
            0 => hint,
            tokens => format!("a context of {tokens} tokens would fit, or a smaller type of cache"),
        };
        let (path, context) = (source.checkpoint.path().to_path_buf(), asked);
        let (weights, cache, activations) = (plan.weight_bytes, plan.kv_held_bytes, plan.activation_bytes);
        return Err(Error::DoesNotFit { path, weights, cache, context, activations, available, hint });
    }
    let (Some(limit), None, true) = (limit, context, options.need.is_some()) else { return Ok(None) };
    let whole = Usage { context: limit, source: limit, ..usage };
    if planner.plan(&whole).total_bytes <= available {
        return Ok(None);
    }
    let tokens = planner.fit(&whole, available).largest_context;
    Ok(Some(format!("memory holds {tokens} of the {limit} tokens that the model was made for")))
}

/// The weights of a described checkpoint, by our names.
pub struct Weights<'a> {
    checkpoint: &'a Checkpoint,
    tensors: HashMap<&'a str, &'a Mapped>,
    compute: Compute,
    dtype: Option<DType>,
    /// The model is an encoder alone.
    encoder: bool,
    progress: &'a mut dyn FnMut(u64, u64),
    done: u64,
    total: u64,
}

/// Bytes that are read and converted at a time.
const PIECE: usize = 4 << 20;

impl<'a> Weights<'a> {
    pub fn new(source: &'a Described, options: &LoadOptions, progress: &'a mut dyn FnMut(u64, u64)) -> Weights<'a> {
        Weights {
            checkpoint: &source.checkpoint,
            tensors: source.tensors.iter().map(|mapped| (mapped.ours.as_str(), mapped)).collect(),
            compute: options.compute,
            dtype: options.dtype,
            encoder: is_encoder(source),
            progress,
            done: 0,
            total: source.weight_bytes(),
        }
    }

    fn mapped(&self, name: &str) -> Result<&'a Mapped, Error> {
        self.tensors.get(name).copied().ok_or_else(|| Error::Table(format!("`{name}` was asked for and not described")))
    }

    fn kept_type(&self, mapped: &Mapped) -> Option<DType> {
        kept_type(mapped, self.compute, self.dtype, self.encoder)
    }

    fn advance(&mut self, mapped: &Mapped, elements: usize) {
        self.done += mapped.dtype.bytes(elements).unwrap_or(elements) as u64;
        (self.progress)(self.done.min(self.total), self.total);
    }
}

/// The type in which a matrix is kept, or `None` where its type in the file is not one of weights. `asked` is the type
/// of plain floating-point matrices, where it is not the file's.
fn kept_type(mapped: &Mapped, compute: Compute, asked: Option<DType>, encoder: bool) -> Option<DType> {
    use DType::*;
    let exact = compute == Compute::F32;
    // Blocks do not cross rows.
    let cols = mapped.shape.last().copied().unwrap_or(1);
    let asked = asked.filter(|asked| cols.is_multiple_of(asked.block_len()));
    let asked = asked
        .map(|asked| if needs_sixteen_bits(mapped, encoder) { at_least_sixteen_bits(mapped, asked) } else { asked });
    Some(match (mapped.storage, mapped.dtype) {
        (Storage::SplitMxfp4, _) => MXFP4,
        (Storage::ScaledBlocks, _) if exact => F32,
        (Storage::ScaledBlocks, _) => asked.unwrap_or(BF16),
        // A block of a transposed matrix is none of ours; sixteen bits hold what it stands for closely enough.
        (Storage::Plain, dtype) if dtype.is_quantized() && mapped.layout.transposed => {
            asked.unwrap_or(if exact { F32 } else { F16 })
        }
        (Storage::Plain, dtype) if dtype.is_quantized() => dtype,
        (Storage::Plain, F32 | F16 | BF16) => asked.unwrap_or(mapped.dtype),
        (Storage::Plain, F64) => asked.unwrap_or(F32),
        // Every 8-bit float is a bf16 number too.
        (Storage::Plain, F8E4M3 | F8E5M2) => asked.unwrap_or(if exact { F32 } else { BF16 }),
        (Storage::Plain, _) => return None,
    })
}

fn is_encoder(source: &Described) -> bool {
    matches!(source.spec.body, Body::Encoder(_))
}

/// Matrices that blocks would cost more than they save. Tables of positions and token types are small, are multiplied with
/// nothing, and their errors are added to every token. Encoders have inputs of attention that are a hundred times as large
/// as the rest, and value projections whose columns there are nearly empty; a block rounds those to its neighbours' scale,
/// and the pooled embedding shows it.
fn needs_sixteen_bits(mapped: &Mapped, encoder: bool) -> bool {
    let name = mapped.ours.as_str();
    let table = name.ends_with("embed.positions.weight") || name.ends_with("embed.types.weight");
    table || encoder && name.ends_with(".attention.value.weight")
}

/// The arithmetic of a matrix that is kept in `kept`. Eleven significant bits of f16 would be eight in bf16, which undoes
/// part of what [`needs_sixteen_bits`] is for.
fn compute_of(mapped: &Mapped, kept: DType, compute: Compute, encoder: bool) -> Compute {
    if kept == DType::F16 && needs_sixteen_bits(mapped, encoder) { Compute::F32 } else { compute }
}

fn at_least_sixteen_bits(mapped: &Mapped, asked: DType) -> DType {
    match mapped.dtype {
        _ if !asked.is_quantized() => asked,
        DType::BF16 => DType::BF16,
        _ => DType::F16,
    }
}

impl Described {
    /// The types that the matrices are kept in once they are loaded.
    pub fn kept(&self, options: &LoadOptions) -> AsStored {
        let encoder = is_encoder(self);
        let kept = |mapped: &Mapped| {
            let dtype = kept_type(mapped, options.compute, options.dtype, encoder)?;
            Some((mapped.ours.clone(), (dtype, compute_of(mapped, dtype, options.compute, encoder))))
        };
        AsStored { types: self.tensors.iter().filter_map(kept).collect() }
    }
}

/// An error about how a tensor is stored.
fn storage_error(mapped: &Mapped, problem: impl Into<String>) -> Error {
    let (file, tensor) = (mapped.file.clone(), mapped.theirs.clone());
    Error::Storage { file, tensor, dtype: mapped.dtype.to_string(), problem: problem.into() }
}

fn kernel_error(mapped: &Mapped, source: attend_kernels::KernelError) -> Error {
    Error::Kernel { file: mapped.file.clone(), tensor: mapped.theirs.clone(), source }
}

impl WeightSource for Weights<'_> {
    type Error = Error;

    fn matrix(&mut self, name: &str, rows: usize, cols: usize) -> Result<Matrix, Error> {
        let mapped = self.mapped(name)?;
        let kept = self.kept_type(mapped).ok_or_else(|| storage_error(mapped, "weights are not whole numbers"))?;
        if mapped.layout.added != 0 {
            return Err(Error::Table(format!("one is added to `{name}`, a matrix")));
        }
        let kernel = |source| kernel_error(mapped, source);
        let compute = compute_of(mapped, kept, self.compute, self.encoder);
        let mut builder = Matrix::builder(rows, cols, kept, compute).map_err(kernel)?;
        let mut pieces = Pieces::new(self.checkpoint, mapped, cols)?;
        let (mut values, mut packed) = (Vec::new(), Vec::new());
        let at_once = (PIECE / cols.max(1) / 4).clamp(1, rows.max(1));
        for start in (0..rows).step_by(at_once) {
            let count = at_once.min(rows - start);
            match pieces.raw_type() {
                Some(raw) if raw == kept => builder.push(pieces.raw(start, count)?).map_err(kernel)?,
                _ => {
                    values.resize(count * cols, 0.0);
                    pieces.values(start, count, &mut values)?;
                    packed.resize(kept.bytes(count * cols).unwrap_or(0), 0);
                    quantize(kept, &values, &mut packed).map_err(kernel)?;
                    finite::check(mapped, kept, &packed, |element| pieces.their_index(start, element))?;
                    builder.push(&packed).map_err(kernel)?;
                }
            }
            self.advance(mapped, count * cols);
        }
        builder.finish().map_err(kernel)
    }

    fn vector(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>, Error> {
        let mapped = self.mapped(name)?;
        if shape != mapped.shape {
            return Err(Error::Table(format!(
                "`{name}` was described as {:?} and asked for as {shape:?}",
                mapped.shape
            )));
        }
        let rows = shape.first().copied().unwrap_or(1);
        let cols = shape.iter().skip(1).product();
        let mut values = vec![0.0; rows * cols];
        Pieces::new(self.checkpoint, mapped, cols)?.values(0, rows, &mut values)?;
        if mapped.layout.added != 0 {
            values.iter_mut().for_each(|value| *value += f32::from(mapped.layout.added));
        }
        self.advance(mapped, rows * cols);
        Ok(values)
    }
}

/// `bytes` of `dtype` as numbers.
fn widen(mapped: &Mapped, dtype: DType, bytes: &[u8], out: &mut [f32]) -> Result<(), Error> {
    dequantize(dtype, bytes, out).map_err(|source| kernel_error(mapped, source))
}
