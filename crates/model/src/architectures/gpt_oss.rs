//! gpt-oss (OpenAI 2025): experts with biases and a clamped gate, sinks in every head, a window in every other layer.

use super::{Architecture, llama, mixtral};
use crate::common::*;
use crate::error::Error;
use crate::names::Tables;
use crate::reader::Reader;
use attend_nn::spec::*;

pub static GPT_OSS: Architecture =
    Architecture { name: "gpt_oss", model_types: &["gpt_oss"], gguf: &["gpt-oss"], class: "GptOss", spec, names };

fn names(_: &ModelSpec) -> Tables {
    Tables {
        hf: &[llama::HF, include_str!("../names/gpt_oss.hf.txt")],
        gguf: &[llama::GGUF, mixtral::EXPERTS, include_str!("../names/gpt_oss.gguf.txt")],
    }
}

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    let defaults = SizeDefaults { kv_heads: Some(8), head_dim: Some(64), ..SizeDefaults::default() };
    let s = Sizes::read(c, SizeDefaults { context: Some(131_072), ..defaults })?;
    let mut rope = rope(c, s.head_dim, RopeDefaults::base(150_000.0))?;
    // These models leave the ends of YaRN's ramp where they fall, which GGUF has no key for.
    if let (RopeScaling::Yarn { truncate, .. }, true) = (&mut rope.scaling, c.is_gguf()) {
        *truncate = false;
    }
    let bias = c.flag_or_tensor("attention_bias", true, "blk.0.attn_q.bias")?;
    let attention =
        Attention { qkv_bias: QkvBias::all(bias), out_bias: bias, sinks: true, ..attention(&s, Position::Rope(rope)) };
    let slides = sliding_layers(c, s.layers, |i| i % 2 == 0)?;
    let window = Some(c.count_or(&["sliding_window"], 128)?);
    let masked = |i| Attention { mask: sliding(&slides, window, i), ..attention.clone() };
    let alpha = c.number_or("swiglu_alpha", 1.702)? as f32;
    let unit = GatedUnit::ClampedSwish { alpha, limit: c.positive_or("swiglu_limit", 7.0)? as f32 };
    let hidden = c.count_or(&["moe_intermediate_size"], s.hidden)?;
    let scores = RouterScores::ChosenSoftmax;
    let moe = experts(c, &s, ExpertDefaults { experts: 128, chosen: 4, hidden, scores, unit, bias: true })?;
    let norm = Norm::Rms { eps: c.epsilon(&["rms_norm_eps"], 1e-5)? };
    let layer = |i| pre_norm(i, norm, masked(i), Ffn::Moe(moe.clone()));
    decoder(c, &s, embed(&s), lm(c, s.vocab, false)?, norm, layer)
}
