//! Gemma 2 (Gemma Team 2024): norms before and after each branch, soft caps, a window in every other layer.

use super::{Architecture, gemma, llama};
use crate::common::*;
use crate::error::Error;
use crate::names::Tables;
use crate::reader::Reader;
use attend_nn::spec::*;
use serde_json::json;

pub static GEMMA2: Architecture =
    Architecture { name: "gemma2", model_types: &["gemma2"], gguf: &["gemma2"], class: "Gemma2", spec, names };

pub(super) fn names(_: &ModelSpec) -> Tables {
    Tables {
        hf: &[llama::HF, gemma::NORMS, include_str!("../names/gemma2.hf.txt")],
        gguf: &[llama::GGUF, include_str!("../names/gemma2.gguf.txt")],
    }
}

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    let defaults = SizeDefaults { heads: Some(8), kv_heads: Some(4), head_dim: Some(256), ..SizeDefaults::default() };
    let s = Sizes::read(c, SizeDefaults { context: Some(8192), ..defaults })?;
    c.only("use_bidirectional_attention", &[json!(false)], "attention is causal here")?;
    let slides = sliding_layers(c, s.layers, |i| i % 2 == 0)?;
    let window = Some(c.count_or(&["sliding_window"], 4096)?);
    let position = Position::Rope(rope(c, s.head_dim, RopeDefaults::base(10000.0))?);
    let attention =
        Attention { soft_cap: cap(c, "attn_logit_softcapping", Some(50.0))?, ..scaled(c, &s, position, 46)? };
    let norm = Norm::Rms { eps: c.epsilon(&["rms_norm_eps"], 1e-6)? };
    let activation = c.activation("hidden_activation", Activation::GeluTanh)?;
    let ffn = Ffn::Gated { hidden: s.hidden, activation, bias: false };
    let lm = LmHead { soft_cap: cap(c, "final_logit_softcapping", Some(30.0))?, ..lm(c, s.vocab, true)? };
    let masked = |i| Attention { mask: sliding(&slides, window, i), ..attention.clone() };
    let layer = |i| Layer { wiring: Wiring::Sandwich, ..pre_norm(i, norm, masked(i), ffn.clone()) };
    decoder(c, &s, gemma::scaled(&s), lm, norm, layer)
}

/// A soft cap: null switches it off, absence means `default`.
pub(super) fn cap(c: &Reader, key: &str, default: Option<f32>) -> Result<Option<f32>, Error> {
    if c.mentions(key) { Ok(c.positive_opt(key)?.map(|cap| cap as f32)) } else { Ok(default) }
}

/// Attention scaled by `query_pre_attn_scalar`. GGUF does not write that number: it is the head's width, except in the
/// largest model (27B, told by its `deepest` layer count), where it is width / heads.
pub(super) fn scaled(c: &Reader, s: &Sizes, position: Position, deepest: usize) -> Result<Attention, Error> {
    let largest = c.is_gguf() && s.layers == deepest;
    let usual = if largest {
        s.width as f64 / s.heads as f64
    } else if c.is_gguf() {
        s.head_dim as f64
    } else {
        256.0
    };
    let scale = c.positive_or("query_pre_attn_scalar", usual)?.powf(-0.5) as f32;
    let bias = c.flag("attention_bias", false)?;
    Ok(Attention { scale, qkv_bias: QkvBias::all(bias), out_bias: bias, ..attention(s, position) })
}
