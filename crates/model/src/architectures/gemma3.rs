//! Gemma 3 (Gemma Team 2025), the text model: five windowed layers to a full one, each kind with a rotary base of its
//! own, norms on query and key heads, no soft caps.

use super::{Architecture, gemma, gemma2};
use crate::common::*;
use crate::error::Error;
use crate::reader::Reader;
use attend_nn::spec::*;
use serde_json::json;

pub static GEMMA3: Architecture = Architecture {
    name: "gemma3",
    model_types: &["gemma3_text", "gemma3"],
    gguf: &["gemma3"],
    class: "Gemma3",
    spec,
    names: gemma2::names,
};

/// The published files of the multimodal models leave out whatever equals these.
fn defaults() -> SizeDefaults {
    let (width, layers, heads, kv_heads) = (Some(2304), Some(26), Some(8), Some(4));
    let (head_dim, hidden, vocab, context) = (Some(256), Some(9216), Some(262_208), Some(131_072));
    SizeDefaults { width, layers, heads, kv_heads, head_dim, hidden, vocab, context, hidden_multiple: None }
}

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    let s = Sizes::read(c, defaults())?;
    c.only("use_bidirectional_attention", &[json!(false)], "attention is causal here")?;
    let every = period(c, &["_sliding_window_pattern", "sliding_window_pattern"], 6)?;
    let slides = sliding_layers(c, s.layers, |i| (i + 1) % every != 0)?;
    let window = Some(c.count_or(&["sliding_window"], 4096)?);
    let full = rope_for(c, Some("full_attention"), s.head_dim, RopeDefaults::base(1e6))?;
    let local = match c.object("rope_parameters")? {
        Some(_) => rope_for(c, Some("sliding_attention"), s.head_dim, RopeDefaults::base(1e4))?,
        // In the older dialect a scaling is meant for the full layers only.
        None => Rope { base: c.positive_or("rope_local_base_freq", 1e4)?, scaling: RopeScaling::None, ..full.clone() },
    };
    let norm = Norm::Rms { eps: c.epsilon(&["rms_norm_eps"], 1e-6)? };
    let base = Attention {
        qk_norm: Some(QkNorm { norm, scope: QkNormScope::Head }),
        soft_cap: gemma2::cap(c, "attn_logit_softcapping", None)?,
        ..gemma2::scaled(c, &s, Position::Rope(full), 62)?
    };
    let activation = c.activation("hidden_activation", Activation::GeluTanh)?;
    let ffn = Ffn::Gated { hidden: s.hidden, activation, bias: false };
    let lm = LmHead { soft_cap: gemma2::cap(c, "final_logit_softcapping", None)?, ..lm(c, s.vocab, true)? };
    let placed = |i: usize| match slides.get(i) {
        Some(true) => Attention { mask: causal(window), position: Position::Rope(local.clone()), ..base.clone() },
        Some(false) | None => base.clone(),
    };
    let layer = |i| Layer { wiring: Wiring::Sandwich, ..pre_norm(i, norm, placed(i), ffn.clone()) };
    decoder(c, &s, gemma::scaled(&s), lm, norm, layer)
}
