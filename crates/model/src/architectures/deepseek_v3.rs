//! DeepSeek-V3 (2024): V2 with a router of sigmoids, whose choice a learned correction balances.

use super::{Architecture, deepseek_v2};
use crate::common::*;
use crate::error::Error;
use crate::reader::Reader;
use attend_nn::spec::*;

/// In GGUF it goes by the name of its predecessor, and is told apart by its router.
pub static DEEPSEEK_V3: Architecture = Architecture {
    name: "deepseek_v3",
    model_types: &["deepseek_v3"],
    gguf: &["deepseek2"],
    class: "DeepseekV3",
    spec,
    names: deepseek_v2::names,
};

pub(super) fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    let pairing = if c.flag("rope_interleave", true)? { Pairing::Interleaved } else { Pairing::Halves };
    let defaults = SharedDefaults { experts: 256, chosen: 8, hidden: 2048, shared: 1, dense: 3 };
    dense_then_sparse(
        c,
        defaults,
        |s| latent_attention(c, s, pairing),
        |moe| {
            // Files written before the number of groups was are those of models with 8, of which 4 are looked into.
            let scores = RouterScores::Sigmoid { correction: true, renormalize: c.flag("norm_topk_prob", true)? };
            let groups = expert_groups(c, moe, GroupRank::BestTwo, if moe.experts == 256 { (8, 4) } else { (1, 1) })?;
            let scale = c.number_or("routed_scaling_factor", 2.5)? as f32;
            Ok(Router { scores, groups, scale, ..moe.router.clone() })
        },
    )
}
