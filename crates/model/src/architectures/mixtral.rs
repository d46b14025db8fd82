//! Mixtral (Jiang et al. 2024): Mistral with eight experts in place of the feed-forward part, two of them for a token.

use super::{Architecture, llama};
use crate::common::*;
use crate::error::Error;
use crate::names::Tables;
use crate::reader::Reader;
use attend_nn::spec::*;

/// GGUF files of these models call themselves by the family's first name, and are told apart by their experts.
pub static MIXTRAL: Architecture =
    Architecture { name: "mixtral", model_types: &["mixtral"], gguf: &["llama"], class: "Mixtral", spec, names };

pub(super) fn names(_: &ModelSpec) -> Tables {
    Tables { hf: &[llama::HF, include_str!("../names/mixtral.hf.txt")], gguf: &[llama::GGUF, EXPERTS, llama::PAIRS] }
}

/// GGUF's names for experts.
pub(super) const EXPERTS: &str = include_str!("../names/experts.gguf.txt");

pub(super) fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    let s = Sizes::read(c, SizeDefaults { kv_heads: Some(8), context: Some(131_072), ..SizeDefaults::default() })?;
    let window = c.count_opt(&["sliding_window"])?;
    let position = Position::Rope(rope(c, s.head_dim, RopeDefaults::base(1e6))?);
    let attention = Attention { mask: causal(window), ..attention(&s, position) };
    let unit = GatedUnit::Product(c.activation("hidden_act", Activation::Silu)?);
    let scores = RouterScores::Softmax { renormalize: true };
    let moe = experts(c, &s, ExpertDefaults { experts: 8, chosen: 2, hidden: s.hidden, scores, unit, bias: false })?;
    let norm = Norm::Rms { eps: c.epsilon(&["rms_norm_eps"], 1e-5)? };
    let layer = |i| pre_norm(i, norm, attention.clone(), Ffn::Moe(moe.clone()));
    decoder(c, &s, embed(&s), lm(c, s.vocab, false)?, norm, layer)
}
