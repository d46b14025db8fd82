//! OLMo 2 (OLMo Team 2024): norms on what the branches give, and on whole queries and keys.

use super::{Architecture, llama, olmo3};
use crate::common::*;
use crate::error::Error;
use crate::names::Tables;
use crate::reader::Reader;
use attend_nn::spec::*;

pub static OLMO2: Architecture =
    Architecture { name: "olmo2", model_types: &["olmo2"], gguf: &["olmo2"], class: "Olmo2", spec, names };

pub(super) fn names(_: &ModelSpec) -> Tables {
    Tables {
        hf: &[llama::HF, include_str!("../names/olmo2.hf.txt")],
        gguf: &[llama::GGUF, include_str!("../names/olmo2.gguf.txt")],
    }
}

pub(super) fn sizes(c: &Reader) -> Result<Sizes, Error> {
    Sizes::read(c, SizeDefaults { context: Some(2048), ..SizeDefaults::default() })
}

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    // In GGUF files the version that followed goes by this name too.
    if c.is_gguf() && c.value("sliding_window").is_some() {
        return olmo3::spec(c);
    }
    let s = sizes(c)?;
    let rope = rope(c, s.head_dim, RopeDefaults::base(10000.0))?;
    layers(c, &s, rope, |_, attention| attention)
}

/// The description, in which `placed` may change the attention of each layer.
pub(super) fn layers(
    c: &Reader,
    s: &Sizes,
    rope: Rope,
    placed: impl Fn(usize, Attention) -> Attention,
) -> Result<ModelSpec, Error> {
    let norm = Norm::Rms { eps: c.epsilon(&["rms_norm_eps"], 1e-5)? };
    let attention = normed(c, s, norm, rope)?;
    let ffn = Ffn::Gated { hidden: s.hidden, activation: c.activation("hidden_act", Activation::Silu)?, bias: false };
    let layer =
        |i| Layer { wiring: Wiring::OutputNorm, ..pre_norm(i, norm, placed(i, attention.clone()), ffn.clone()) };
    decoder(c, s, embed(s), lm(c, s.vocab, false)?, norm, layer)
}

/// Rotary attention with norms over whole queries and keys.
pub(super) fn normed(c: &Reader, s: &Sizes, norm: Norm, rope: Rope) -> Result<Attention, Error> {
    let bias = c.flag_or_tensor("attention_bias", false, "blk.0.attn_q.bias")?;
    let qk_norm = Some(QkNorm { norm, scope: QkNormScope::Projection });
    Ok(Attention { qkv_bias: QkvBias::all(bias), out_bias: bias, qk_norm, ..attention(s, Position::Rope(rope)) })
}
