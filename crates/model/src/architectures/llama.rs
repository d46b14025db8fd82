//! Llama (Touvron et al. 2023): RMSNorm, rotary positions, gated feed-forward, grouped queries since Llama 2.

use super::{Architecture, mixtral};
use crate::common::*;
use crate::error::Error;
use crate::names::Tables;
use crate::reader::Reader;
use attend_nn::spec::*;

pub static LLAMA: Architecture =
    Architecture { name: "llama", model_types: &["llama"], gguf: &["llama"], class: "Llama", spec, names };

pub(super) fn names(spec: &ModelSpec) -> Tables {
    if has_experts(spec) {
        return mixtral::names(spec);
    }
    Tables { hf: &[HF], gguf: &[GGUF, PAIRS] }
}

/// Converters to GGUF reorder the rows of query and key, for a kernel that rotates neighbours.
pub(super) const PAIRS: &str = include_str!("../names/llama-pairs.gguf.txt");

/// The names that the Llama family shares.
pub(super) const HF: &str = include_str!("../names/llama.hf.txt");
pub(super) const GGUF: &str = include_str!("../names/llama.gguf.txt");

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    // GGUF files of models with experts go by this name.
    if c.is_gguf() && c.whole_opt("num_local_experts")?.unwrap_or(0) > 0 {
        return mixtral::spec(c);
    }
    let s = Sizes::read(c, SizeDefaults { context: Some(2048), ..SizeDefaults::default() })?;
    // GGUF files of Mistral models go by this name too; the reference ignores a window under this name.
    let window = if c.is_gguf() { c.count_opt(&["sliding_window"])? } else { None };
    if !c.is_gguf() && c.value("sliding_window").is_some() {
        c.notice("sliding_window has no meaning in this architecture and is not used");
    }
    let position = Position::Rope(rope(c, s.head_dim, RopeDefaults::base(10000.0))?);
    let qkv_bias = QkvBias::all(c.flag_or_tensor("attention_bias", false, "blk.0.attn_q.bias")?);
    let out_bias = c.flag_or_tensor("attention_bias", false, "blk.0.attn_output.bias")?;
    let attention = Attention { qkv_bias, out_bias, mask: causal(window), ..attention(&s, position) };
    let bias = c.flag_or_tensor("mlp_bias", false, "blk.0.ffn_up.bias")?;
    let ffn = Ffn::Gated { hidden: s.hidden, activation: c.activation("hidden_act", Activation::Silu)?, bias };
    let norm = Norm::Rms { eps: c.epsilon(&["rms_norm_eps"], 1e-6)? };
    let layer = |i| pre_norm(i, norm, attention.clone(), ffn.clone());
    decoder(c, &s, embed(&s), lm(c, s.vocab, false)?, norm, layer)
}
