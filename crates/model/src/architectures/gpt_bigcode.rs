//! GPT-BigCode, StarCoder 1 (Li et al. 2023): GPT-2 with one shared key and value head, matrices not transposed.

use super::Architecture;
use crate::common::*;
use crate::error::Error;
use crate::names::Tables;
use crate::reader::Reader;
use attend_nn::spec::*;
use serde_json::json;

pub static GPT_BIGCODE: Architecture = Architecture {
    name: "gpt_bigcode",
    model_types: &["gpt_bigcode"],
    gguf: &["starcoder"],
    class: "GPTBigCode",
    spec,
    names,
};

fn names(spec: &ModelSpec) -> Tables {
    const HF: &str = include_str!("../names/gpt_bigcode.hf.txt");
    const GGUF: &str = include_str!("../names/gpt2.gguf.txt");
    match spec.output_stack().layers.first().map(|layer| layer.attention.kv_heads) {
        Some(1) => Tables { hf: &[HF], gguf: &[GGUF] },
        _ => Tables { hf: &[HF, include_str!("../names/gpt_bigcode-heads.hf.txt")], gguf: &[GGUF] },
    }
}

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    let defaults = SizeDefaults { hidden_multiple: Some(4), context: Some(1024), ..SizeDefaults::default() };
    let s = Sizes::read(c, defaults)?;
    c.only("add_cross_attention", &[json!(false)], "this architecture is a decoder alone")?;
    let single = if c.is_gguf() { s.kv_heads == 1 } else { c.flag("multi_query", true)? };
    let s = Sizes { kv_heads: if single { 1 } else { s.heads }, ..s };
    let usual = Attention { qkv_bias: QkvBias::all(true), out_bias: true, ..attention(&s, Position::None) };
    let scale = if c.flag("scale_attn_weights", true)? { usual.scale } else { 1.0 };
    let norm = Norm::Layer { eps: c.epsilon(&["layer_norm_epsilon"], 1e-5)?, bias: true };
    let activation = c.activation("activation_function", Activation::GeluTanh)?;
    let ffn = Ffn::Mlp { hidden: s.hidden, activation, bias: true };
    let rows = s.context.unwrap_or(1024);
    let embed = Embed { positions: AbsolutePositions::Learned { rows, offset: 0 }, ..embed(&s) };
    let layer = |i| pre_norm(i, norm, Attention { scale, ..usual.clone() }, ffn.clone());
    decoder(c, &s, embed, lm(c, s.vocab, true)?, norm, layer)
}
