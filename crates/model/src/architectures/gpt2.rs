//! GPT-2 (Radford et al. 2019): learned positions, layer norms, matrices stored transposed.

use super::Architecture;
use crate::common::*;
use crate::error::Error;
use crate::names::Tables;
use crate::reader::Reader;
use attend_nn::spec::*;
use serde_json::json;

pub static GPT2: Architecture =
    Architecture { name: "gpt2", model_types: &["gpt2"], gguf: &["gpt2"], class: "GPT2", spec, names };

fn names(_: &ModelSpec) -> Tables {
    Tables { hf: &[HF], gguf: &[include_str!("../names/gpt2.gguf.txt")] }
}

pub(super) const HF: &str = include_str!("../names/gpt2.hf.txt");

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    let defaults = SizeDefaults { hidden_multiple: Some(4), context: Some(1024), ..SizeDefaults::default() };
    let s = Sizes::read(c, defaults)?;
    c.only("add_cross_attention", &[json!(false)], "this architecture is a decoder alone")?;
    let rows = s.context.unwrap_or(1024);
    let usual = Attention { qkv_bias: QkvBias::all(true), out_bias: true, ..attention(&s, Position::None) };
    let scale = if c.flag("scale_attn_weights", true)? { usual.scale } else { 1.0 };
    let by_layer = c.flag("scale_attn_by_inverse_layer_idx", false)?;
    let norm = Norm::Layer { eps: c.epsilon(&["layer_norm_epsilon"], 1e-5)?, bias: true };
    let activation = c.activation("activation_function", Activation::GeluTanh)?;
    let ffn = Ffn::Mlp { hidden: s.hidden, activation, bias: true };
    let embed = Embed { positions: AbsolutePositions::Learned { rows, offset: 0 }, ..embed(&s) };
    let layer = |i: usize| {
        let scale = if by_layer { scale / (i + 1) as f32 } else { scale };
        pre_norm(i, norm, Attention { scale, ..usual.clone() }, ffn.clone())
    };
    decoder(c, &s, embed, lm(c, s.vocab, true)?, norm, layer)
}
