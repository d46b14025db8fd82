//! DeepSeek-V2 (2024): latent attention, and experts in all but the first layers beside ones that are shared.

use super::{Architecture, deepseek_v3, llama, mixtral, qwen2_moe};
use crate::common::*;
use crate::error::Error;
use crate::names::Tables;
use crate::reader::Reader;
use attend_nn::spec::*;

pub static DEEPSEEK_V2: Architecture = Architecture {
    name: "deepseek_v2",
    model_types: &["deepseek_v2"],
    gguf: &["deepseek2"],
    class: "DeepseekV2",
    spec,
    names,
};

pub(super) fn names(spec: &ModelSpec) -> Tables {
    const HF: &str = include_str!("../names/deepseek.hf.txt");
    const GGUF: &str = include_str!("../names/deepseek.gguf.txt");
    let latents = spec.output_stack().layers.iter().filter_map(|layer| layer.attention.latent);
    if latents.clone().any(|latent| latent.query_rank.is_some()) {
        return Tables {
            hf: &[llama::HF, qwen2_moe::HF, HF, include_str!("../names/deepseek-query.hf.txt")],
            gguf: &[llama::GGUF, mixtral::EXPERTS, GGUF, include_str!("../names/deepseek-query.gguf.txt")],
        };
    }
    Tables { hf: &[llama::HF, qwen2_moe::HF, HF], gguf: &[llama::GGUF, mixtral::EXPERTS, GGUF] }
}

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    // One name stands for both versions in GGUF, whose number 2 is the sigmoid.
    if c.is_gguf() && c.whole_opt("expert_gating_func")? == Some(2) {
        return deepseek_v3::spec(c);
    }
    let renormalize = c.flag("norm_topk_prob", false)? && c.is_gguf();
    if renormalize != c.flag("norm_topk_prob", false)? {
        c.notice("norm_topk_prob has no effect in the reference of this architecture and is not used");
    }
    let grouped = match c.text("topk_method")? {
        None => c.is_gguf() && c.value("n_group").is_some(),
        Some("greedy") => false,
        Some("group_limited_greedy") => true,
        Some(other) => return Err(c.wrong("topk_method", format!("`{other}` is not supported"))),
    };
    let router = |moe: &Moe| -> Result<Router, Error> {
        let scores = RouterScores::Softmax { renormalize };
        let groups = if grouped { expert_groups(c, moe, GroupRank::Best, (1, 1))? } else { None };
        let scale = c.number_or("routed_scaling_factor", 1.0)? as f32;
        Ok(Router { scores, groups, scale, ..moe.router.clone() })
    };
    let defaults = SharedDefaults { experts: 64, chosen: 6, hidden: 1407, shared: 2, dense: 0 };
    dense_then_sparse(c, defaults, |s| latent_attention(c, s, Pairing::Interleaved), router)
}
