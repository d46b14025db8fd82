//! OLMoE (Muennighoff et al. 2024): experts in every layer, norms on whole queries and keys.

use super::{Architecture, olmo2, qwen2_moe};
use crate::common::*;
use crate::error::Error;
use crate::reader::Reader;
use attend_nn::spec::*;

pub static OLMOE: Architecture = Architecture {
    name: "olmoe",
    model_types: &["olmoe"],
    gguf: &["olmoe"],
    class: "Olmoe",
    spec,
    names: qwen2_moe::names,
};

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    let s = Sizes::read(c, SizeDefaults { context: Some(4096), ..SizeDefaults::default() })?;
    c.only("clip_qkv", &[], "a clamp after the norms of query and key is another one than there is here")?;
    let norm = Norm::Rms { eps: c.epsilon(&["rms_norm_eps"], 1e-5)? };
    let attention = olmo2::normed(c, &s, norm, rope(c, s.head_dim, RopeDefaults::base(10000.0))?)?;
    let scores = RouterScores::Softmax { renormalize: c.flag("norm_topk_prob", false)? };
    let unit = GatedUnit::Product(c.activation("hidden_act", Activation::Silu)?);
    let moe = experts(c, &s, ExpertDefaults { experts: 64, chosen: 8, hidden: s.hidden, scores, unit, bias: false })?;
    let layer = |i| pre_norm(i, norm, attention.clone(), Ffn::Moe(moe.clone()));
    decoder(c, &s, embed(&s), lm(c, s.vocab, false)?, norm, layer)
}
