//! Gemma (Gemma Team 2024): scaled embeddings, norms that store their weight less one, a tied output.

use super::{Architecture, llama};
use crate::common::*;
use crate::error::Error;
use crate::names::Tables;
use crate::reader::Reader;
use attend_nn::spec::*;
use serde_json::json;

pub static GEMMA: Architecture =
    Architecture { name: "gemma", model_types: &["gemma"], gguf: &["gemma"], class: "Gemma", spec, names };

fn names(_: &ModelSpec) -> Tables {
    // GGUF files already hold the norms' weights with the one added.
    Tables { hf: &[llama::HF, NORMS], gguf: &[llama::GGUF] }
}

pub(super) const NORMS: &str = include_str!("../names/gemma.hf.txt");

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    let defaults = SizeDefaults { head_dim: Some(256), context: Some(8192), ..SizeDefaults::default() };
    let s = Sizes::read(c, defaults)?;
    c.only("use_bidirectional_attention", &[json!(false)], "attention is causal here")?;
    let position = Position::Rope(rope(c, s.head_dim, RopeDefaults::base(10000.0))?);
    let bias = c.flag("attention_bias", false)?;
    let attention = Attention { qkv_bias: QkvBias::all(bias), out_bias: bias, ..attention(&s, position) };
    let norm = Norm::Rms { eps: c.epsilon(&["rms_norm_eps"], 1e-6)? };
    let ffn = Ffn::Gated { hidden: s.hidden, activation: activation(c)?, bias: false };
    let layer = |i| pre_norm(i, norm, attention.clone(), ffn.clone());
    decoder(c, &s, scaled(&s), lm(c, s.vocab, true)?, norm, layer)
}

/// `hidden_activation`; in old files `hidden_act: gelu` was written and the tanh formula meant.
fn activation(c: &Reader) -> Result<Activation, Error> {
    let old = match c.activation("hidden_act", Activation::GeluTanh)? {
        Activation::Gelu => Activation::GeluTanh,
        other => other,
    };
    c.activation("hidden_activation", old)
}

/// The embedding, multiplied by the square root of its width.
pub(super) fn scaled(s: &Sizes) -> Embed {
    Embed { scale: (s.width as f32).sqrt(), ..embed(s) }
}
