//! Mistral (Jiang et al. 2023): Llama with a sliding window in every layer.

use super::{Architecture, llama};
use crate::common::*;
use crate::error::Error;
use crate::reader::Reader;
use attend_nn::spec::*;

/// GGUF files of these models call themselves by the family's first name.
pub static MISTRAL: Architecture =
    Architecture { name: "mistral", model_types: &["mistral"], gguf: &[], class: "Mistral", spec, names: llama::names };

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    let s = Sizes::read(c, SizeDefaults { kv_heads: Some(8), context: Some(131_072), ..SizeDefaults::default() })?;
    // Later models write null: no window. A file that does not mention it means the first model's.
    let window = if c.mentions("sliding_window") { c.count_opt(&["sliding_window"])? } else { Some(4096) };
    let slides = sliding_layers(c, s.layers, |_| true)?;
    let position = Position::Rope(rope(c, s.head_dim, RopeDefaults::base(10000.0))?);
    let attention = attention(&s, position);
    let ffn = Ffn::Gated { hidden: s.hidden, activation: c.activation("hidden_act", Activation::Silu)?, bias: false };
    let norm = Norm::Rms { eps: c.epsilon(&["rms_norm_eps"], 1e-6)? };
    let masked = |i| Attention { mask: sliding(&slides, window, i), ..attention.clone() };
    decoder(c, &s, embed(&s), lm(c, s.vocab, false)?, norm, |i| pre_norm(i, norm, masked(i), ffn.clone()))
}
