//! GGUF files made from described checkpoints, with the metadata that converters write.

use super::Tensor;
use attend_format::gguf::{self, Array, Strings, Value};
use attend_format::{Kind, TensorSpec};
use attend_model::{Described, Quantity};
use attend_nn::spec::*;
use std::collections::BTreeMap;
use std::path::Path;

/// Metadata under full key names.
pub type Metadata = Vec<(String, Value)>;

/// Writes `described` with these weights (by our names) as a GGUF file of `architecture`.
pub fn write(path: &Path, described: &Described, weights: &BTreeMap<String, Vec<f32>>, architecture: &str) {
    write_with(path, &metadata(described, architecture), &tensors(described, weights));
}

/// The file's tensors.
pub fn tensors(described: &Described, weights: &BTreeMap<String, Vec<f32>>) -> BTreeMap<String, Tensor> {
    let files = described.to_kind(Kind::Gguf, Quantity::Weights, &mut |name| weights.get(name).cloned()).unwrap();
    files.into_iter().map(|file| (file.name, Tensor::f32(&file.shape, &file.values))).collect()
}

pub fn write_with(path: &Path, metadata: &Metadata, tensors: &BTreeMap<String, Tensor>) {
    let specs: Vec<TensorSpec> = tensors
        .iter()
        .map(|(name, t)| TensorSpec { name: name.clone(), dtype: t.dtype, shape: t.shape.clone() })
        .collect();
    let bytes: Vec<&Vec<u8>> = tensors.values().map(|tensor| &tensor.bytes).collect();
    gguf::write(path, metadata, &specs, &mut |index, out| Ok(out.write_all(bytes[index])?)).unwrap();
}

/// What a converter writes for this description.
pub fn metadata(described: &Described, architecture: &str) -> Metadata {
    let stack = described.spec.stacks()[0].2;
    let layer = &stack.layers[0];
    let attention = &layer.attention;
    let mut m =
        Writer { architecture, list: vec![("general.architecture".into(), Value::String(architecture.into()))] };
    m.u32("block_count", stack.layers.len());
    m.u32("embedding_length", stack.width);
    m.u32("attention.head_count", attention.heads);
    m.u32("attention.head_count_kv", attention.kv_heads);
    m.u32("attention.key_length", attention.key_dim);
    m.u32("attention.value_length", attention.value_dim);
    m.u32("context_length", described.spec.context.unwrap_or(64));
    m.ffn(&layer.ffn);
    match layer.norm {
        Norm::Rms { eps } => m.f32("attention.layer_norm_rms_epsilon", eps),
        Norm::Layer { eps, .. } | Norm::Plain { eps } => m.f32("attention.layer_norm_epsilon", eps),
    }
    let positions: Vec<&Position> = stack.layers.iter().map(|layer| &layer.attention.position).collect();
    m.positions(&positions);
    // Only windows differ from layer to layer, by a pattern that the architecture knows.
    for layer in &stack.layers {
        match layer.attention.mask {
            Mask::Window { left, right: 0 } => m.u32("attention.sliding_window", left + 1),
            // Where keys on both sides are seen, both count and the token itself does not.
            Mask::Window { left, right } => m.u32("attention.sliding_window", left + right),
            Mask::Full | Mask::Causal | Mask::Chunked { .. } | Mask::Prefix { .. } => {}
        }
    }
    if let Some(cap) = attention.soft_cap {
        m.f32("attn_logit_softcapping", cap);
    }
    if let Some(clip) = attention.clip_qkv {
        m.f32("attention.clamp_kqv", clip);
    }
    // Constants where they are not the usual ones; the format's logits are divided in one architecture.
    let constants = [("residual_scale", layer.branch_scale), ("embedding_scale", stack.embed.scale)];
    for (key, value) in constants.into_iter().filter(|(_, value)| *value != 1.0) {
        m.f32(key, value);
    }
    if let Head::Lm(LmHead { scale, .. }) = described.spec.head
        && scale != 1.0
    {
        m.f32("attention.scale", attention.scale);
        m.f32("logit_scale", if architecture == "granite" { 1.0 / scale } else { scale });
    }
    if let Head::Lm(LmHead { soft_cap: Some(cap), .. }) = described.spec.head {
        m.f32("final_logit_softcapping", cap);
    }
    if let Wiring::Parallel { .. } | Wiring::PreNorm = layer.wiring {
        m.set("use_parallel_residual", Value::Bool(layer.wiring != Wiring::PreNorm));
    }
    if let Some(bias) = stack.relative_bias {
        m.u32("attention.relative_buckets_count", bias.buckets);
    }
    if let Body::EncoderDecoder { decoder, .. } = &described.spec.body {
        m.u32("decoder_block_count", decoder.layers.len());
        m.u32("decoder_start_token_id", 0);
    }
    let mut tokens = Strings::default();
    (0..stack.embed.vocab).for_each(|id| tokens.push(&format!("<{id}>")));
    m.list.push(("tokenizer.ggml.model".into(), Value::String("gpt2".into())));
    m.list.push(("tokenizer.ggml.tokens".into(), Value::Array(Array::String(tokens))));
    m.list.push(("tokenizer.ggml.eos_token_id".into(), Value::U32(2)));
    m.list
}

struct Writer<'a> {
    architecture: &'a str,
    list: Metadata,
}

impl Writer<'_> {
    fn set(&mut self, key: &str, value: Value) {
        let key = format!("{}.{key}", self.architecture);
        self.list.retain(|(old, _)| *old != key);
        self.list.push((key, value));
    }

    fn u32(&mut self, key: &str, value: usize) {
        self.set(key, Value::U32(value as u32));
    }

    fn f32(&mut self, key: &str, value: f32) {
        self.set(key, Value::F32(value));
    }

    fn ffn(&mut self, ffn: &Ffn) {
        match ffn {
            Ffn::Mlp { hidden, .. } | Ffn::Gated { hidden, .. } | Ffn::GatedOutBias { hidden, .. } => {
                self.u32("feed_forward_length", *hidden)
            }
            Ffn::Moe(moe) => {
                self.u32("feed_forward_length", moe.hidden);
                self.u32("expert_feed_forward_length", moe.hidden);
                self.u32("expert_count", moe.experts);
                self.u32("expert_used_count", moe.chosen);
                if let Some(shared) = moe.shared {
                    self.u32("expert_shared_feed_forward_length", shared.hidden);
                }
            }
        }
    }

    fn positions(&mut self, positions: &[&Position]) {
        match positions[0] {
            Position::Rope(first) => {
                let bases = positions.iter().filter_map(|position| match position {
                    Position::Rope(rope) => Some(rope.base),
                    _ => None,
                });
                self.f32("rope.freq_base", bases.clone().fold(0.0, f64::max) as f32);
                self.f32("rope.freq_base_swa", bases.fold(f64::INFINITY, f64::min) as f32);
                self.u32("rope.dimension_count", first.dim);
            }
            Position::Alibi(alibi) => self.f32("attention.max_alibi_bias", alibi.max_bias),
            Position::None | Position::RelativeBias(_) | Position::StackBias | Position::Disentangled(_) => {}
        }
    }
}
