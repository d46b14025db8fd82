//! Mixtures of experts, as configurations describe them.

use super::head::lm;
use super::sizes::{SizeDefaults, Sizes, decoder, embed, pre_norm};
use crate::error::Error;
use crate::reader::Reader;
use attend_nn::spec::*;
use serde_json::json;

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

/// What an architecture with shared experts assumes where the configuration is silent.
#[derive(Debug, Clone, Copy)]
pub struct SharedDefaults {
    pub experts: usize,
    pub chosen: usize,
    /// Width of each expert.
    pub hidden: usize,
    /// Shared experts.
    pub shared: usize,
    /// Layers without experts, at the start.
    pub dense: usize,
}

/// A decoder whose first layers are dense and whose others have experts beside ones that are shared.
pub fn dense_then_sparse(
    c: &Reader,
    d: SharedDefaults,
    attention: impl FnOnce(&Sizes) -> Result<Attention, Error>,
    router: impl FnOnce(&Moe) -> Result<Router, Error>,
) -> Result<ModelSpec, Error> {
    c.only("mlp_bias", &[json!(false)], "experts have no biases here")?;
    // Heads have widths of their own, so that a width per head need not exist.
    let s = Sizes::read(c, SizeDefaults { head_dim: Some(1), context: Some(2048), ..SizeDefaults::default() })?;
    let attention = attention(&s)?;
    let activation = c.activation("hidden_act", Activation::Silu)?;
    let hidden = c.count_or(&["moe_intermediate_size"], d.hidden)?;
    let (scores, unit) = (RouterScores::Softmax { renormalize: false }, GatedUnit::Product(activation));
    let defaults = ExpertDefaults { experts: d.experts, chosen: d.chosen, hidden, scores, unit, bias: false };
    let mut moe = experts(c, &s, defaults)?;
    moe.router = router(&moe)?;
    let shared = c.whole_opt("n_shared_experts")?.unwrap_or(d.shared).saturating_mul(hidden);
    moe.shared = (shared > 0).then_some(SharedExpert { hidden: shared, gate: false });
    let first = c.whole_opt("first_k_dense_replace")?.unwrap_or(d.dense);
    let dense = Ffn::Gated { hidden: s.hidden, activation, bias: false };
    let ffn = |i| if i < first { dense.clone() } else { Ffn::Moe(moe.clone()) };
    let norm = Norm::Rms { eps: c.epsilon(&["rms_norm_eps"], 1e-6)? };
    decoder(c, &s, embed(&s), lm(c, s.vocab, false)?, norm, |i| pre_norm(i, norm, attention.clone(), ffn(i)))
}

/// Whether any layer of a decoder has experts.
pub fn has_experts(spec: &ModelSpec) -> bool {
    spec.output_stack().layers.iter().any(|layer| matches!(layer.ffn, Ffn::Moe(_)))
}
