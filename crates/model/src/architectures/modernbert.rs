//! ModernBERT (Warner et al. 2024): pre-norm, rotary positions, gated feed-forward, a global layer after every few
//! local ones, and no biases; the first layer reads the embedding's norm without one of its own.

use super::{Architecture, CLASSIFIER};
use crate::common::*;
use crate::error::Error;
use crate::names::Tables;
use crate::reader::Reader;
use attend_nn::spec::*;

pub static MODERNBERT: Architecture = Architecture {
    name: "modernbert",
    model_types: &["modernbert"],
    gguf: &["modern-bert"],
    class: "ModernBert",
    spec,
    names,
};

fn names(spec: &ModelSpec) -> Tables {
    const HF: &str = include_str!("../names/modernbert.hf.txt");
    let hf: &[&str] = match spec.head {
        Head::None | Head::Lm(_) => &[HF],
        Head::Sequence { .. } | Head::Token { .. } | Head::Span { .. } => &[HF, CLASSIFIER],
    };
    const GGUF: &str = include_str!("../names/modernbert.gguf.txt");
    let gguf: &[&str] = match spec.head {
        Head::Sequence { .. } => &[GGUF, include_str!("../names/modernbert-rank.gguf.txt")],
        Head::None | Head::Lm(_) | Head::Token { .. } | Head::Span { .. } => &[GGUF],
    };
    Tables { hf, gguf }
}

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    let s = Sizes::read(c, SizeDefaults { context: Some(8192), ..SizeDefaults::default() })?;
    let norm = Norm::Layer {
        eps: c.epsilon(&["norm_eps", "layer_norm_eps", "layer_norm_epsilon"], 1e-5)?,
        bias: c.flag_or_tensor("norm_bias", false, "output_norm.bias")?,
    };
    let every = period(c, &["global_attn_every_n_layers", "sliding_window_pattern"], 3)?;
    let slides = sliding_layers(c, s.layers, |i| i % every != 0)?;
    // One number counts both sides.
    let half = c.count_or(&["local_attention", "sliding_window"], 128)? / 2;
    let local = rope_for(c, Some("sliding_attention"), s.head_dim, RopeDefaults::base(10_000.0))?;
    let global = rope_for(c, Some("full_attention"), s.head_dim, RopeDefaults::base(160_000.0))?;
    let bias = c.flag_or_tensor("mlp_bias", false, "blk.0.ffn_up.bias")?;
    let activation = c.activation("hidden_activation", Activation::Gelu)?;
    let ffn = Ffn::Gated { hidden: s.hidden, activation, bias };
    let bias = c.flag_or_tensor("attention_bias", false, "blk.0.attn_qkv.bias")?;
    let layer = |i: usize| {
        let slides = slides.get(i).copied().unwrap_or(false);
        let mask = if slides { Mask::Window { left: half, right: half } } else { Mask::Full };
        let position = Position::Rope(if slides { local.clone() } else { global.clone() });
        let attention = Attention { mask, qkv_bias: QkvBias::all(bias), out_bias: bias, ..attention(&s, position) };
        let wiring = if i == 0 { Wiring::FfnNorm } else { Wiring::PreNorm };
        Layer { wiring, ..pre_norm(i, norm, attention, ffn.clone()) }
    };
    let embed = Embed { norm: Some(norm), ..embed(&s) };
    let stack = stack(&s, embed, (0..s.layers).map(layer).collect(), Some(norm));
    let activation = c.activation("classifier_activation", Activation::Gelu)?;
    let transform = Transform { bias: c.flag("classifier_bias", false)?, activation, norm: Some(norm) };
    let lm = LmHead { bias: c.flag("decoder_bias", true)?, transform: Some(transform), ..lm(c, s.vocab, true)? };
    let source = pooled_source(c, "classifier_pooling")?;
    let heads = EncoderHeads::pooled(&[], lm, &["head.dense.weight"]).behind(transform, source);
    encoder(c, stack, heads, s.context)
}
