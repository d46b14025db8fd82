//! OLMo 2 (OLMo Team 2024): norms on what the branches give, and on whole queries and keys.

use super::{Architecture, llama};
use crate::common::*;
use crate::error::Error;
use crate::names::Tables;
use crate::reader::Reader;
use attend_nn::spec::*;

pub static OLMO2: Architecture =
    Architecture { name: "olmo2", model_types: &["olmo2"], gguf: &["olmo2"], class: "Olmo2", spec, names };

fn names(_: &ModelSpec) -> Tables {
    Tables {
        hf: &[llama::HF, include_str!("../names/olmo2.hf.txt")],
        gguf: &[llama::GGUF, include_str!("../names/olmo2.gguf.txt")],
    }
}

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    let s = Sizes::read(c, SizeDefaults { context: Some(2048), ..SizeDefaults::default() })?;
    let norm = Norm::Rms { eps: c.epsilon(&["rms_norm_eps"], 1e-5)? };
    let attention = normed(c, &s, norm)?;
    let ffn = Ffn::Gated { hidden: s.hidden, activation: c.activation("hidden_act", Activation::Silu)?, bias: false };
    let layer = |i| Layer { wiring: Wiring::OutputNorm, ..pre_norm(i, norm, attention.clone(), ffn.clone()) };
    decoder(c, &s, embed(&s), lm(c, s.vocab, false)?, norm, layer)
}

/// Rotary attention with norms over whole queries and keys.
pub(super) fn normed(c: &Reader, s: &Sizes, norm: Norm) -> Result<Attention, Error> {
    let position = Position::Rope(rope(c, s.head_dim, RopeDefaults::base(10000.0))?);
    let bias = c.flag_or_tensor("attention_bias", false, "blk.0.attn_q.bias")?;
    let qk_norm = Some(QkNorm { norm, scope: QkNormScope::Projection });
    Ok(Attention { qkv_bias: QkvBias::all(bias), out_bias: bias, qk_norm, ..attention(s, position) })
}
