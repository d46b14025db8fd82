//! A description with something else in it, for comparison.

use attend_kernels::DType;
use attend_nn::KvTypes;
use attend_nn::spec::{Attention, Body, ModelSpec, Stack};

/// The same model with `kv_heads` key and value heads in every attention; `None` where an attention's heads do not divide
/// into them.
pub fn with_kv_heads(spec: &ModelSpec, kv_heads: usize) -> Option<ModelSpec> {
    let mut other = spec.clone();
    let stacks: Vec<&mut Stack> = match &mut other.body {
        Body::Encoder(stack) | Body::Decoder(stack) => vec![stack],
        Body::EncoderDecoder { encoder, decoder } => vec![encoder, decoder],
    };
    for layer in stacks.into_iter().flat_map(|stack| &mut stack.layers) {
        for attention in [Some(&mut layer.attention), layer.cross.as_mut()].into_iter().flatten() {
            set(attention, kv_heads)?;
        }
    }
    Some(other)
}

fn set(attention: &mut Attention, kv_heads: usize) -> Option<()> {
    if kv_heads == 0 || !attention.heads.is_multiple_of(kv_heads) {
        return None;
    }
    attention.kv_heads = kv_heads;
    Some(())
}

/// One type for keys and values, where it is one that the cache can keep heads of this model in.
pub fn with_kv_type(spec: &ModelSpec, dtype: DType) -> Option<KvTypes> {
    let stack = spec.output_stack();
    let fits =
        |a: &Attention| a.key_dim.is_multiple_of(dtype.block_len()) && a.value_dim.is_multiple_of(dtype.block_len());
    stack.layers.iter().all(|layer| fits(&layer.attention)).then(|| KvTypes::both(dtype))
}
