//! SmolLM3 (2025): Llama in which every fourth layer has no positions (Yang et al. 2025).

use super::{Architecture, llama};
use crate::common::*;
use crate::error::Error;
use crate::reader::{Reader, short};
use attend_nn::spec::*;

pub static SMOLLM3: Architecture = Architecture {
    name: "smollm3",
    model_types: &["smollm3"],
    gguf: &["smollm3"],
    class: "SmolLM3",
    spec,
    names: llama::names,
};

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    let defaults = SizeDefaults { kv_heads: Some(4), heads: Some(16), context: Some(32768), ..SizeDefaults::default() };
    let s = Sizes::read(c, defaults)?;
    let rotates = rotating(c, s.layers)?;
    let wanted = c.flag("use_sliding_window", false)?;
    let window = if wanted { c.count_opt(&["sliding_window"])? } else { None };
    let slides = sliding_layers(c, s.layers, |i| !rotates.get(i).copied().unwrap_or(true))?;
    let rope = rope(c, s.head_dim, RopeDefaults::base(2e6))?;
    let bias = c.flag_or_tensor("attention_bias", false, "blk.0.attn_q.bias")?;
    let attention = Attention { qkv_bias: QkvBias::all(bias), out_bias: bias, ..attention(&s, Position::None) };
    let activation = c.activation("hidden_act", Activation::Silu)?;
    let ffn = Ffn::Gated { hidden: s.hidden, activation, bias: c.flag("mlp_bias", false)? };
    let norm = Norm::Rms { eps: c.epsilon(&["rms_norm_eps"], 1e-6)? };
    let placed = |i: usize| {
        let position = if rotates.get(i) == Some(&true) { Position::Rope(rope.clone()) } else { Position::None };
        Attention { position, mask: sliding(&slides, window, i), ..attention.clone() }
    };
    decoder(c, &s, embed(&s), lm(c, s.vocab, true)?, norm, |i| pre_norm(i, norm, placed(i), ffn.clone()))
}

/// For each layer whether it rotates: `no_rope_layers` says 1 where it does, against its name.
fn rotating(c: &Reader, layers: usize) -> Result<Vec<bool>, Error> {
    let every = c.count_or(&["no_rope_layer_interval"], 4)?;
    let Some(list) = c.list("no_rope_layers")? else { return Ok((1..=layers).map(|i| i % every != 0).collect()) };
    if list.len() != layers {
        return Err(c.wrong("no_rope_layers", format!("must have {layers} entries, found {}", list.len())));
    }
    let flags = list.iter().map(|value| match value.as_u64() {
        Some(flag @ 0..=1) => Ok(flag == 1),
        _ => Err(c.wrong("no_rope_layers", format!("must hold 0 or 1, found {}", short(value)))),
    });
    flags.collect()
}
