//! Mixtures of experts, as configurations describe them.

use super::sizes::Sizes;
use crate::error::Error;
use crate::reader::Reader;
use attend_nn::spec::*;

/// What an architecture assumes where the configuration is silent, and what it does not say at all.
#[derive(Debug, Clone)]
pub struct ExpertDefaults {
    pub experts: usize,
    pub chosen: usize,
    /// Width of each expert.
    pub hidden: usize,
    pub scores: RouterScores,
    pub unit: GatedUnit,
    /// Biases on the router's and the experts' projections.
    pub bias: bool,
}

/// The mixture of each sparse layer.
pub fn experts(c: &Reader, s: &Sizes, d: ExpertDefaults) -> Result<Moe, Error> {
    let keys = ["num_local_experts", "num_experts", "n_routed_experts"];
    let count = c.count_or(&keys, d.experts)?;
    let chosen = c.count_or(&["num_experts_per_tok"], d.chosen)?;
    if chosen > count {
        return Err(c.wrong("num_experts_per_tok", format!("{chosen} of {count} experts cannot be chosen")));
    }
    let weights = [3, s.width, d.hidden, count].into_iter().fold(1u128, |n, dim| n.saturating_mul(dim as u128));
    c.holds("num_experts", weights)?;
    let balance = match c.flag("output_router_logits", false)? {
        true => Some(c.number_or("router_aux_loss_coef", 0.001)? as f32),
        false => None,
    };
    let router = Router { scores: d.scores, bias: d.bias, groups: None, scale: 1.0, balance };
    Ok(Moe { experts: count, chosen, router, hidden: d.hidden, unit: d.unit, bias: d.bias, shared: None })
}

/// The groups of a mixture's experts, `(count, chosen)` where the configuration is silent; none where all are looked
/// into.
pub fn expert_groups(
    c: &Reader,
    moe: &Moe,
    rank: GroupRank,
    (count, chosen): (usize, usize),
) -> Result<Option<ExpertGroups>, Error> {
    let (count, chosen) = (c.count_or(&["n_group"], count)?, c.count_or(&["topk_group"], chosen)?);
    if !moe.experts.is_multiple_of(count) {
        return Err(c.wrong("n_group", format!("{count} groups cannot share {} experts", moe.experts)));
    }
    if chosen > count || moe.chosen > moe.experts / count * chosen {
        let problem = format!("{} experts cannot be chosen from {chosen} of {count} groups", moe.chosen);
        return Err(c.wrong("topk_group", problem));
    }
    Ok((chosen < count).then_some(ExpertGroups { count, chosen, rank }))
}

/// For each layer whether it has experts: every `decoder_sparse_step`-th, but for those in `mlp_only_layers`.
pub fn sparse_layers(c: &Reader, layers: usize) -> Result<Vec<bool>, Error> {
    let step = c.count_or(&["decoder_sparse_step"], 1)?;
    let mut sparse: Vec<bool> = (1..=layers).map(|layer| layer % step == 0).collect();
    for dense in c.list("mlp_only_layers")?.into_iter().flatten() {
        let Some(index) = dense.as_u64().and_then(|index| usize::try_from(index).ok()) else {
            return Err(c.wrong("mlp_only_layers", "must hold numbers of layers"));
        };
        if let Some(sparse) = sparse.get_mut(index) {
            *sparse = false;
        }
    }
    Ok(sparse)
}

/// Whether any layer of a decoder has experts.
pub fn has_experts(spec: &ModelSpec) -> bool {
    spec.output_stack().layers.iter().any(|layer| matches!(layer.ffn, Ffn::Moe(_)))
}
