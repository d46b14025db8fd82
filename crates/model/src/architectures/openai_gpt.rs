//! GPT (Radford et al. 2018): the decoder of the 2017 Transformer, norms after the branches, learned positions.

use super::{Architecture, gpt2};
use crate::common::*;
use crate::error::Error;
use crate::names::Tables;
use crate::reader::Reader;
use attend_nn::spec::*;

pub static OPENAI_GPT: Architecture =
    Architecture { name: "openai-gpt", model_types: &["openai-gpt"], gguf: &[], class: "OpenAIGPT", spec, names };

fn names(_: &ModelSpec) -> Tables {
    Tables { hf: &[gpt2::HF, include_str!("../names/openai_gpt.hf.txt")], gguf: &[] }
}

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    let defaults = SizeDefaults { hidden_multiple: Some(4), context: Some(512), ..SizeDefaults::default() };
    let s = Sizes::read(c, defaults)?;
    let attention = Attention { qkv_bias: QkvBias::all(true), out_bias: true, ..attention(&s, Position::None) };
    let norm = Norm::Layer { eps: c.epsilon(&["layer_norm_epsilon"], 1e-5)?, bias: true };
    // `gelu` meant the tanh formula when these files were written.
    let activation = match c.activation("afn", Activation::GeluTanh)? {
        Activation::Gelu => Activation::GeluTanh,
        other => other,
    };
    let ffn = Ffn::Mlp { hidden: s.width * 4, activation, bias: true };
    let rows = s.context.unwrap_or(512);
    let embed = Embed { positions: AbsolutePositions::Learned { rows, offset: 0 }, ..embed(&s) };
    let layer = |i| Layer { wiring: Wiring::PostNorm, ..pre_norm(i, norm, attention.clone(), ffn.clone()) };
    let stack = stack(&s, embed, (0..s.layers).map(layer).collect(), None);
    decoder_of(c, &s, stack, lm(c, s.vocab, true)?)
}
