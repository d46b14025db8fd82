//! Granite 3 (IBM 2024): Llama with constants that multiply embedding, branches, scores and logits.

use super::{Architecture, llama};
use crate::common::*;
use crate::error::Error;
use crate::reader::Reader;
use attend_nn::spec::*;

pub static GRANITE: Architecture = Architecture {
    name: "granite",
    model_types: &["granite"],
    gguf: &["granite"],
    class: "Granite",
    spec,
    names: llama::names,
};

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    family(c, |s| {
        let bias = c.flag_or_tensor("mlp_bias", false, "blk.0.ffn_up.bias")?;
        Ok(Ffn::Gated { hidden: s.hidden, activation: c.activation("hidden_act", Activation::Silu)?, bias })
    })
}

/// What the family's models share: everything but the feed-forward part.
pub(super) fn family(c: &Reader, ffn: impl FnOnce(&Sizes) -> Result<Ffn, Error>) -> Result<ModelSpec, Error> {
    let s = Sizes::read(c, SizeDefaults { context: Some(2048), ..SizeDefaults::default() })?;
    let constant = |key: &str| Ok::<f32, Error>(c.positive_or(key, 1.0)? as f32);
    let bias = c.flag_or_tensor("attention_bias", false, "blk.0.attn_q.bias")?;
    let position = Position::Rope(rope(c, s.head_dim, RopeDefaults::base(10000.0))?);
    let usual = attention(&s, position);
    // GGUF leaves the constant out where it is the usual one.
    let scale = if c.is_gguf() { f64::from(usual.scale) } else { 1.0 };
    let scale = c.positive_or("attention_multiplier", scale)? as f32;
    let attention = Attention { qkv_bias: QkvBias::all(bias), out_bias: bias, scale, ..usual };
    let ffn = ffn(&s)?;
    let norm = Norm::Rms { eps: c.epsilon(&["rms_norm_eps"], 1e-6)? };
    let branch_scale = constant("residual_multiplier")?;
    let layer = |i| Layer { branch_scale, ..pre_norm(i, norm, attention.clone(), ffn.clone()) };
    let embed = Embed { scale: constant("embedding_multiplier")?, ..embed(&s) };
    let divisor = constant(if c.is_gguf() { "logit_scale" } else { "logits_scaling" })?;
    let lm = LmHead { scale: 1.0 / divisor, ..lm(c, s.vocab, false)? };
    decoder(c, &s, embed, lm, norm, layer)
}
