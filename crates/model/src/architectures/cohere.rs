//! Cohere's Command R (2024): attention and feed-forward in parallel on one norm without bias, rotary pairs side by
//! side, logits multiplied by a constant.

use super::{Architecture, llama};
use crate::common::*;
use crate::error::Error;
use crate::names::Tables;
use crate::reader::Reader;
use attend_nn::spec::*;

pub static COHERE: Architecture =
    Architecture { name: "cohere", model_types: &["cohere"], gguf: &["command-r"], class: "Cohere", spec, names };

pub(super) fn names(_: &ModelSpec) -> Tables {
    Tables { hf: &[llama::HF, include_str!("../names/cohere.hf.txt")], gguf: &[llama::GGUF, HEADS] }
}

/// GGUF's names for a norm of every head.
pub(super) const HEADS: &str = include_str!("../names/head-norms.gguf.txt");

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    let s = Sizes::read(c, SizeDefaults { context: Some(8192), ..SizeDefaults::default() })?;
    let normed = c.flag_or_tensor("use_qk_norm", false, "blk.0.attn_q_norm.weight")?;
    let qk_norm = if normed { Some(QkNorm { norm: norm(c)?, scope: QkNormScope::EachHead }) } else { None };
    let position = Position::Rope(rotary(c, &s, 500_000.0)?);
    parallel(c, &s, |_| Attention { qk_norm, ..attention(&s, position.clone()) })
}

fn norm(c: &Reader) -> Result<Norm, Error> {
    Ok(Norm::Layer { eps: c.epsilon(&["layer_norm_eps", "layer_norm_epsilon"], 1e-5)?, bias: false })
}

/// Rotary positions over neighbouring pairs.
pub(super) fn rotary(c: &Reader, s: &Sizes, base: f64) -> Result<Rope, Error> {
    rope(c, s.head_dim, RopeDefaults { pairing: Pairing::Interleaved, ..RopeDefaults::base(base) })
}

/// What both generations share; `attend` gives a layer's attention without its biases.
pub(super) fn parallel(c: &Reader, s: &Sizes, attend: impl Fn(usize) -> Attention) -> Result<ModelSpec, Error> {
    let norm = norm(c)?;
    let bias = c.flag_or_tensor("attention_bias", false, "blk.0.attn_q.bias")?;
    let ffn = Ffn::Gated { hidden: s.hidden, activation: c.activation("hidden_act", Activation::Silu)?, bias: false };
    let layer = |i| {
        let attention = Attention { qkv_bias: QkvBias::all(bias), out_bias: bias, ..attend(i) };
        Layer { wiring: Wiring::Parallel { shared_norm: true }, ..pre_norm(i, norm, attention, ffn.clone()) }
    };
    let lm = LmHead { scale: c.positive_or("logit_scale", 0.0625)? as f32, ..lm(c, s.vocab, true)? };
    decoder(c, s, embed(s), lm, norm, layer)
}
