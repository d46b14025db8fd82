//! Qwen 2 MoE (Yang et al. 2024): Qwen 2 with experts in most layers, beside one that is shared and has a gate.

use super::{Architecture, llama, mixtral};
use crate::common::*;
use crate::error::Error;
use crate::names::Tables;
use crate::reader::Reader;
use attend_nn::spec::*;

pub static QWEN2_MOE: Architecture = Architecture {
    name: "qwen2_moe",
    model_types: &["qwen2_moe"],
    gguf: &["qwen2moe"],
    class: "Qwen2Moe",
    spec,
    names,
};

pub(super) fn names(_: &ModelSpec) -> Tables {
    Tables { hf: &[llama::HF, HF], gguf: &[llama::GGUF, mixtral::EXPERTS] }
}

/// The names of experts that Qwen and DeepSeek share.
pub(super) const HF: &str = include_str!("../names/experts.hf.txt");

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    let s = Sizes::read(c, SizeDefaults { context: Some(32768), ..SizeDefaults::default() })?;
    let position = Position::Rope(rope(c, s.head_dim, RopeDefaults::base(10000.0))?);
    let bias = c.is_gguf() || c.flag("qkv_bias", true)?;
    let attention = Attention { qkv_bias: QkvBias::all(bias), ..attention(&s, position) };
    let window = if c.flag("use_sliding_window", false)? { Some(c.count_or(&["sliding_window"], 4096)?) } else { None };
    let below = c.whole_opt("max_window_layers")?.unwrap_or(28);
    let slides = sliding_layers(c, s.layers, |i| i % 2 == 0 && i < below)?;
    let shared = SharedExpert { hidden: c.count_or(&["shared_expert_intermediate_size"], 5632)?, gate: true };
    let hidden = c.count_or(&["moe_intermediate_size"], 1408)?;
    let mixed = |moe| Moe { shared: Some(shared), ..moe };
    let masked = |i| Attention { mask: sliding(&slides, window, i), ..attention.clone() };
    sparse(c, &s, (60, 4, hidden), false, mixed, masked)
}

/// What Qwen 2 and 3 share: (`experts`, `chosen`, their `hidden`) where the configuration is silent, and layers of
/// which some are dense.
pub(super) fn sparse(
    c: &Reader,
    s: &Sizes,
    (count, chosen, hidden): (usize, usize, usize),
    renormalize: bool,
    mixed: impl Fn(Moe) -> Moe,
    attention: impl Fn(usize) -> Attention,
) -> Result<ModelSpec, Error> {
    let activation = c.activation("hidden_act", Activation::Silu)?;
    let scores = RouterScores::Softmax { renormalize: c.flag("norm_topk_prob", renormalize)? };
    let unit = GatedUnit::Product(activation);
    let moe = mixed(experts(c, s, ExpertDefaults { experts: count, chosen, hidden, scores, unit, bias: false })?);
    let dense = Ffn::Gated { hidden: s.hidden, activation, bias: false };
    let sparse = sparse_layers(c, s.layers)?;
    let ffn = |i: usize| if sparse.get(i) == Some(&true) { Ffn::Moe(moe.clone()) } else { dense.clone() };
    let norm = Norm::Rms { eps: c.epsilon(&["rms_norm_eps"], 1e-6)? };
    decoder(c, s, embed(s), lm(c, s.vocab, false)?, norm, |i| pre_norm(i, norm, attention(i), ffn(i)))
}
