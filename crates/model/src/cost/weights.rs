//! Parameters, and the bytes they take in memory.

use attend_kernels::{Compute, DType, Matrix};
use attend_nn::names::Required;
use attend_nn::spec::{Body, Ffn, Head, Layer, ModelSpec, Moe, Stack};
use std::collections::HashMap;

/// The types that weights are kept in.
pub trait WeightTypes {
    /// The type of the matrix `tensor`, and the arithmetic that it is packed for.
    fn of(&self, tensor: &Required) -> (DType, Compute);
}

/// Every matrix in one type, or, where its rows do not fill blocks of that type, in the next one that they fill.
#[derive(Debug, Clone, Copy)]
pub struct Uniform {
    pub dtype: DType,
    pub compute: Compute,
}

impl WeightTypes for Uniform {
    fn of(&self, tensor: &Required) -> (DType, Compute) {
        let cols = tensor.shape.last().copied().unwrap_or(1);
        let fits = |dtype: &DType| cols.is_multiple_of(dtype.block_len());
        ([self.dtype, DType::Q8_0].into_iter().find(fits).unwrap_or(DType::F16), self.compute)
    }
}

/// The types that a checkpoint's matrices are kept in once they are loaded.
#[derive(Debug, Clone)]
pub struct AsStored {
    pub types: HashMap<String, (DType, Compute)>,
}

impl WeightTypes for AsStored {
    fn of(&self, tensor: &Required) -> (DType, Compute) {
        self.types.get(&tensor.name).copied().unwrap_or((DType::F32, Compute::F32))
    }
}

/// Parameters of a description. Wide enough for whatever a hostile configuration claims.
pub fn parameters(spec: &ModelSpec) -> u128 {
    spec.tensors().iter().fold(0, |sum: u128, tensor| sum.saturating_add(elements(&tensor.shape)))
}

/// Parameters that take part in computing a token: of a mixture's experts only those that are chosen.
pub fn active_parameters(spec: &ModelSpec) -> u128 {
    let idle = |stack: &Stack| -> u128 {
        let of_layer = |layer: &Layer| match mixture(layer) {
            None => 0,
            Some(moe) => {
                let biases = if moe.bias { 2 * moe.hidden + stack.width } else { 0 };
                let expert = 3 * stack.width as u128 * moe.hidden as u128 + biases as u128;
                expert.saturating_mul(moe.experts.saturating_sub(moe.chosen) as u128)
            }
        };
        stack.layers.iter().map(of_layer).fold(0, u128::saturating_add)
    };
    parameters(spec).saturating_sub(spec.stacks().iter().map(|(_, _, stack)| idle(stack)).sum())
}

fn mixture(layer: &Layer) -> Option<&Moe> {
    match &layer.ffn {
        Ffn::Mlp { .. } | Ffn::Gated { .. } | Ffn::GatedOutBias { .. } => None,
        Ffn::Moe(moe) => Some(moe),
    }
}

fn elements(shape: &[usize]) -> u128 {
    shape.iter().fold(1u128, |product, dim| product.saturating_mul(*dim as u128))
}

/// Bytes of all weights as they are packed.
pub fn weight_bytes(spec: &ModelSpec, types: &dyn WeightTypes) -> u64 {
    spec.tensors().iter().fold(0u64, |sum, tensor| sum.saturating_add(tensor_bytes(tensor, types)))
}

/// Bytes of the weights that a step of decoding reads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Streamed {
    /// By every token: tables give single rows, and an encoder has done its work before.
    pub dense: u64,
    /// Of all experts together.
    pub experts: u64,
    /// The part of the experts that one token goes through.
    pub share: f64,
}

impl Streamed {
    pub fn new(spec: &ModelSpec, types: &dyn WeightTypes) -> Streamed {
        let tied = matches!(&spec.head, Head::Lm(lm) if lm.tied);
        let two = matches!(spec.body, Body::EncoderDecoder { .. });
        let read = |name: &str| match name.rsplit_once("embed.") {
            // A tied table is the output matrix; it is the encoder's where there are two stacks.
            Some((_, "tokens.weight")) => tied,
            Some((_, "positions.weight" | "types.weight")) => false,
            _ => !(two && name.starts_with("encoder.")),
        };
        let mixture = spec.output_stack().layers.iter().find_map(mixture);
        let share = mixture.map_or(0.0, |moe| moe.chosen as f64 / moe.experts.max(1) as f64);
        let mut streamed = Streamed { dense: 0, experts: 0, share };
        for tensor in spec.tensors().into_iter().filter(|tensor| read(&tensor.name)) {
            let sum = if tensor.name.contains(".experts.") { &mut streamed.experts } else { &mut streamed.dense };
            *sum = sum.saturating_add(tensor_bytes(&tensor, types));
        }
        streamed
    }

    /// Bytes that a step of `tokens` tokens reads, whose choices of experts are taken to be even.
    pub fn bytes(&self, tokens: u64) -> u64 {
        let met = 1.0 - (1.0 - self.share).powf(tokens as f64);
        self.dense.saturating_add((self.experts as f64 * met) as u64)
    }
}

/// Bytes of one weight: a packed matrix, or numbers in f32.
fn tensor_bytes(tensor: &Required, types: &dyn WeightTypes) -> u64 {
    let all = elements(&tensor.shape);
    let plain = || u64::try_from(all.saturating_mul(4)).unwrap_or(u64::MAX);
    let [outer @ .., rows, cols] = tensor.shape.as_slice() else { return plain() };
    if !is_matrix(&tensor.name) {
        return plain();
    }
    let (dtype, compute) = types.of(tensor);
    let one = Matrix::packed_bytes(*rows, *cols, dtype, compute);
    let count = u64::try_from(elements(outer)).unwrap_or(u64::MAX);
    one.map_or_else(plain, |bytes| count.saturating_mul(bytes as u64))
}

/// Whether a weight of two or more dimensions is packed; the norms of each head and a convolution's taps are not.
fn is_matrix(name: &str) -> bool {
    !name.ends_with("_norm.weight") && !name.ends_with("_norm.bias") && !name.ends_with("conv.weight")
}
