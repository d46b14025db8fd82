//! GPT-Neo (Black et al. 2021): GPT-2 with unscaled scores and a window in some layers.

use super::Architecture;
use crate::common::*;
use crate::error::Error;
use crate::names::Tables;
use crate::reader::Reader;
use attend_nn::spec::*;

pub static GPT_NEO: Architecture =
    Architecture { name: "gpt_neo", model_types: &["gpt_neo"], gguf: &[], class: "GPTNeo", spec, names };

fn names(_: &ModelSpec) -> Tables {
    Tables { hf: &[include_str!("../names/gpt_neo.hf.txt")], gguf: &[] }
}

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    let defaults = SizeDefaults { hidden_multiple: Some(4), context: Some(2048), ..SizeDefaults::default() };
    let s = Sizes::read(c, defaults)?;
    let slides = local_layers(c, s.layers)?;
    let window = Some(c.count_or(&["window_size"], 256)?);
    let attention = Attention { out_bias: true, scale: 1.0, ..attention(&s, Position::None) };
    let norm = Norm::Layer { eps: c.epsilon(&["layer_norm_epsilon"], 1e-5)?, bias: true };
    let activation = c.activation("activation_function", Activation::GeluTanh)?;
    let ffn = Ffn::Mlp { hidden: s.hidden, activation, bias: true };
    let rows = s.context.unwrap_or(2048);
    let embed = Embed { positions: AbsolutePositions::Learned { rows, offset: 0 }, ..embed(&s) };
    let masked = |i| Attention { mask: sliding(&slides, window, i), ..attention.clone() };
    decoder(c, &s, embed, lm(c, s.vocab, true)?, norm, |i| pre_norm(i, norm, masked(i), ffn.clone()))
}
