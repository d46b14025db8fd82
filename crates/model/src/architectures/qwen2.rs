//! Qwen 2 and 2.5 (Yang et al. 2024): Llama with biases on query, key and value.

use super::{Architecture, llama};
use crate::common::*;
use crate::error::Error;
use crate::names::Tables;
use crate::reader::Reader;
use attend_nn::spec::*;

pub static QWEN2: Architecture =
    Architecture { name: "qwen2", model_types: &["qwen2"], gguf: &["qwen2"], class: "Qwen2", spec, names };

pub(super) fn names(_: &ModelSpec) -> Tables {
    Tables { hf: &[llama::HF], gguf: &[llama::GGUF] }
}

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    let s = Sizes::read(c, SizeDefaults { context: Some(32768), ..SizeDefaults::default() })?;
    let position = Position::Rope(rope(c, s.head_dim, RopeDefaults::base(10000.0))?);
    let attention = Attention { qkv_bias: QkvBias::all(true), ..attention(&s, position) };
    family(c, &s, attention)
}

/// What Qwen 2 and 3 share: the windows of the upper layers, the feed-forward part, the norms.
pub(super) fn family(c: &Reader, s: &Sizes, attention: Attention) -> Result<ModelSpec, Error> {
    let wanted = c.flag("use_sliding_window", false)?;
    let window = if wanted { Some(c.count_or(&["sliding_window"], 4096)?) } else { None };
    let below = c.whole_opt("max_window_layers")?.unwrap_or(28);
    let slides = sliding_layers(c, s.layers, |i| i >= below)?;
    let ffn = Ffn::Gated { hidden: s.hidden, activation: c.activation("hidden_act", Activation::Silu)?, bias: false };
    let norm = Norm::Rms { eps: c.epsilon(&["rms_norm_eps"], 1e-6)? };
    let masked = |i| Attention { mask: sliding(&slides, window, i), ..attention.clone() };
    decoder(c, s, embed(s), lm(c, s.vocab, false)?, norm, |i| pre_norm(i, norm, masked(i), ffn.clone()))
}
