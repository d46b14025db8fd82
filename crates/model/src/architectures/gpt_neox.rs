//! GPT-NeoX and Pythia (Black et al. 2022): attention and feed-forward in parallel, rotary on part of the head.

use super::Architecture;
use crate::common::*;
use crate::error::Error;
use crate::names::Tables;
use crate::reader::Reader;
use attend_nn::spec::*;

pub static GPT_NEOX: Architecture =
    Architecture { name: "gpt_neox", model_types: &["gpt_neox"], gguf: &["gptneox"], class: "GPTNeoX", spec, names };

fn names(_: &ModelSpec) -> Tables {
    Tables { hf: &[include_str!("../names/gpt_neox.hf.txt")], gguf: &[include_str!("../names/gpt2.gguf.txt")] }
}

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    let s = Sizes::read(c, SizeDefaults { context: Some(2048), ..SizeDefaults::default() })?;
    let defaults = RopeDefaults { partial: if c.is_gguf() { 1.0 } else { 0.25 }, ..RopeDefaults::base(10000.0) };
    let position = Position::Rope(rope(c, s.head_dim, defaults)?);
    let bias = c.flag("attention_bias", true)?;
    let attention = Attention { qkv_bias: QkvBias::all(bias), out_bias: bias, ..attention(&s, position) };
    let norm = Norm::Layer { eps: c.epsilon(&["layer_norm_eps", "layer_norm_epsilon"], 1e-5)?, bias: true };
    let ffn = Ffn::Mlp { hidden: s.hidden, activation: c.activation("hidden_act", Activation::Gelu)?, bias: true };
    let parallel = c.flag("use_parallel_residual", true)?;
    let wiring = if parallel { Wiring::Parallel { shared_norm: false } } else { Wiring::PreNorm };
    let layer = |i| Layer { wiring, ..pre_norm(i, norm, attention.clone(), ffn.clone()) };
    decoder(c, &s, embed(&s), lm(c, s.vocab, false)?, norm, layer)
}
