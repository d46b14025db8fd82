//! StarCoder 2 (Lozhkov et al. 2024): grouped queries with a window, layer norms, a plain feed-forward part.

use super::{Architecture, llama};
use crate::common::*;
use crate::error::Error;
use crate::names::Tables;
use crate::reader::Reader;
use attend_nn::spec::*;

pub static STARCODER2: Architecture = Architecture {
    name: "starcoder2",
    model_types: &["starcoder2"],
    gguf: &["starcoder2"],
    class: "Starcoder2",
    spec,
    names,
};

fn names(_: &ModelSpec) -> Tables {
    Tables { hf: &[llama::HF, include_str!("../names/starcoder2.hf.txt")], gguf: &[llama::GGUF] }
}

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    let s = Sizes::read(c, SizeDefaults { kv_heads: Some(2), context: Some(4096), ..SizeDefaults::default() })?;
    let window = c.count_opt(&["sliding_window"])?;
    let slides = sliding_layers(c, s.layers, |_| true)?;
    let bias = c.flag_or_tensor("use_bias", true, "blk.0.attn_q.bias")?;
    let position = Position::Rope(rope(c, s.head_dim, RopeDefaults::base(10000.0))?);
    let attention = Attention { qkv_bias: QkvBias::all(bias), out_bias: bias, ..attention(&s, position) };
    let norm = Norm::Layer { eps: c.epsilon(&["norm_epsilon", "layer_norm_epsilon"], 1e-5)?, bias: true };
    let activation = c.activation("hidden_act", Activation::GeluTanh)?;
    let ffn = Ffn::Mlp { hidden: s.hidden, activation, bias };
    let masked = |i| Attention { mask: sliding(&slides, window, i), ..attention.clone() };
    decoder(c, &s, embed(&s), lm(c, s.vocab, true)?, norm, |i| pre_norm(i, norm, masked(i), ffn.clone()))
}
