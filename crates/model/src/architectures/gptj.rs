//! GPT-J (Wang & Komatsuzaki 2021): attention and feed-forward in parallel on one norm, rotary pairs side by side.

use super::{Architecture, llama};
use crate::common::*;
use crate::error::Error;
use crate::names::Tables;
use crate::reader::Reader;
use attend_nn::spec::*;

pub static GPTJ: Architecture =
    Architecture { name: "gptj", model_types: &["gptj"], gguf: &["gptj"], class: "GPTJ", spec, names };

fn names(_: &ModelSpec) -> Tables {
    Tables { hf: &[HF], gguf: &[llama::GGUF] }
}

pub(super) const HF: &str = include_str!("../names/gptj.hf.txt");

pub(super) fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    let defaults = SizeDefaults { hidden_multiple: Some(4), context: Some(2048), ..SizeDefaults::default() };
    let s = Sizes::read(c, defaults)?;
    // Null means the whole head; a file that does not mention it means the first model's 64.
    let dim = if c.mentions("rotary_dim") { s.head_dim } else { 64.min(s.head_dim) };
    let defaults = RopeDefaults { pairing: Pairing::Interleaved, ..RopeDefaults::fixed(10000.0, dim, s.head_dim) };
    let position = Position::Rope(rope(c, s.head_dim, defaults)?);
    let attention = attention(&s, position);
    let norm = Norm::Layer { eps: c.epsilon(&["layer_norm_epsilon"], 1e-5)?, bias: true };
    let activation = c.activation("activation_function", Activation::GeluTanh)?;
    let ffn = Ffn::Mlp { hidden: s.hidden, activation, bias: true };
    let wiring = Wiring::Parallel { shared_norm: true };
    let layer = |i| Layer { wiring, ..pre_norm(i, norm, attention.clone(), ffn.clone()) };
    let lm = LmHead { bias: true, ..lm(c, s.vocab, false)? };
    decoder(c, &s, embed(&s), lm, norm, layer)
}
