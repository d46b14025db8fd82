//! What a description costs, read off without any weights.

use attend_kernels::DType;
use attend_nn::spec::{Attention, Body, Ffn, Layer, Mask, ModelSpec, Stack};

/// Parameters of a description. Wide enough for whatever a hostile configuration claims.
pub fn parameters(spec: &ModelSpec) -> u128 {
    let size = |shape: &[usize]| shape.iter().fold(1u128, |product, dim| product.saturating_mul(*dim as u128));
    spec.tensors().iter().fold(0, |sum: u128, tensor| sum.saturating_add(size(&tensor.shape)))
}

/// Parameters that take part in computing a token: of a mixture's experts only those that are chosen.
pub fn active_parameters(spec: &ModelSpec) -> u128 {
    let idle = |stack: &Stack| -> u128 {
        let of_layer = |layer: &Layer| match &layer.ffn {
            Ffn::Mlp { .. } | Ffn::Gated { .. } | Ffn::GatedOutBias { .. } => 0,
            Ffn::Moe(moe) => {
                let biases = if moe.bias { 2 * moe.hidden + stack.width } else { 0 };
                let expert = 3 * stack.width as u128 * moe.hidden as u128 + biases as u128;
                expert.saturating_mul(moe.experts.saturating_sub(moe.chosen) as u128)
            }
        };
        stack.layers.iter().map(of_layer).fold(0, u128::saturating_add)
    };
    parameters(spec).saturating_sub(spec.stacks().iter().map(|(_, _, stack)| idle(stack)).sum())
}

/// Bytes that one more token takes in the KV cache of the decoder (or only) stack, while every window still fills;
/// 0 for an encoder. The unit is bytes per token of one sequence.
pub fn kv_bytes_per_token(spec: &ModelSpec, key: DType, value: DType) -> u64 {
    match &spec.body {
        Body::Encoder(_) => 0,
        Body::Decoder(stack) | Body::EncoderDecoder { decoder: stack, .. } => {
            stack.layers.iter().map(|layer| bytes(&layer.attention, key, value)).sum()
        }
    }
}

/// Bytes of the KV cache of one sequence of `tokens` tokens, where a window never holds more than it sees.
pub fn kv_bytes(spec: &ModelSpec, tokens: u64, key: DType, value: DType) -> u64 {
    let of_stack = |stack: &Stack| -> u64 {
        let held = |mask: Mask| match mask {
            Mask::Window { left, .. } => tokens.min(left as u64 + 1),
            Mask::Chunked { length } => tokens.min(length as u64),
            Mask::Full | Mask::Causal | Mask::Prefix { .. } => tokens,
        };
        stack.layers.iter().map(|l| bytes(&l.attention, key, value).saturating_mul(held(l.attention.mask))).sum()
    };
    match &spec.body {
        Body::Encoder(_) => 0,
        Body::Decoder(stack) | Body::EncoderDecoder { decoder: stack, .. } => of_stack(stack),
    }
}

/// Bytes of cross-attention keys and values for each token of the encoder's input; 0 where there is none.
pub fn cross_bytes_per_token(spec: &ModelSpec, key: DType, value: DType) -> u64 {
    match &spec.body {
        Body::Encoder(_) | Body::Decoder(_) => 0,
        Body::EncoderDecoder { decoder, .. } => {
            decoder.layers.iter().filter_map(|layer| layer.cross.as_ref()).map(|a| bytes(a, key, value)).sum()
        }
    }
}

/// Keys and values of one token in one attention; partial blocks count as whole ones.
fn bytes(attention: &Attention, key: DType, value: DType) -> u64 {
    let of = |dtype: DType, width: usize| (width.div_ceil(dtype.block_len()) * dtype.block_bytes()) as u64;
    let heads = attention.kv_heads as u64;
    let value = match attention.latent {
        None => of(value, attention.value_dim),
        // The latent is held once, as the start of the key.
        Some(_) => 0,
    };
    heads * (of(key, attention.key_dim) + value)
}
