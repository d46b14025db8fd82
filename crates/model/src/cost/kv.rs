//! Bytes of keys and values.

use attend_kernels::{DType, Mask};
use attend_nn::KvTypes;
use attend_nn::spec::{Attention, Body, ModelSpec, Stack};

/// Bytes that one more token takes in the KV cache of the decoder (or only) stack, while every window still fills;
/// 0 for an encoder. The unit is bytes per token of one sequence.
pub fn kv_bytes_per_token(spec: &ModelSpec, types: KvTypes) -> u64 {
    cached(spec).map(|attention| bytes(attention, types)).sum()
}

/// Bytes of the KV cache of one sequence of `tokens` tokens, where a window never counts more than it sees.
pub fn kv_bytes(spec: &ModelSpec, tokens: u64, types: KvTypes) -> u64 {
    let layer = |attention: &Attention| bytes(attention, types).saturating_mul(seen(attention.mask, tokens));
    cached(spec).fold(0u64, |sum, attention| sum.saturating_add(layer(attention)))
}

/// The last tokens whose keys the next one may see.
fn seen(mask: Mask, tokens: u64) -> u64 {
    match mask {
        Mask::Window { left, .. } => tokens.min(left as u64 + 1),
        Mask::Chunked { length } => tokens.min(length as u64),
        Mask::Full | Mask::Causal | Mask::Prefix { .. } => tokens,
    }
}

/// The attentions that keep keys and values of their own tokens, a layer each.
pub(super) fn cached(spec: &ModelSpec) -> impl Iterator<Item = &Attention> {
    decoder(spec).into_iter().flat_map(|stack| &stack.layers).map(|layer| &layer.attention)
}

/// The stack that keeps a cache.
fn decoder(spec: &ModelSpec) -> Option<&Stack> {
    match &spec.body {
        Body::Encoder(_) => None,
        Body::Decoder(stack) | Body::EncoderDecoder { decoder: stack, .. } => Some(stack),
    }
}

/// Bytes of cross-attention keys and values for each token of the encoder's input; 0 where there is none.
pub fn cross_bytes_per_token(spec: &ModelSpec, types: KvTypes) -> u64 {
    match &spec.body {
        Body::Encoder(_) | Body::Decoder(_) => 0,
        Body::EncoderDecoder { decoder, .. } => {
            decoder.layers.iter().filter_map(|layer| layer.cross.as_ref()).map(|a| bytes(a, types)).sum()
        }
    }
}

/// Keys and values of one token in one attention; partial blocks count as whole ones.
pub fn bytes(attention: &Attention, types: KvTypes) -> u64 {
    let of = |dtype: DType, width: usize| (width.div_ceil(dtype.block_len()) * dtype.block_bytes()) as u64;
    let heads = attention.kv_heads as u64;
    let value = match attention.latent {
        None => of(types.value, attention.value_dim),
        // The latent is held once, as the start of the key.
        Some(_) => 0,
    };
    heads.saturating_mul(of(types.key, attention.key_dim) + value)
}
