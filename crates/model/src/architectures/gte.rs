//! GTE (Zhang et al. 2024), which its first files call "new": BERT with rotary positions and a gated feed-forward part.

use super::Architecture;
use crate::common::*;
use crate::error::Error;
use crate::names::Tables;
use crate::reader::Reader;
use attend_nn::spec::*;
use serde_json::json;

pub static GTE: Architecture =
    Architecture { name: "gte", model_types: &["gte"], gguf: &[], class: "Gte", spec, names };
pub static NEW: Architecture =
    Architecture { name: "new", model_types: &["new"], gguf: &[], class: "New", spec, names };

fn names(_: &ModelSpec) -> Tables {
    Tables { hf: &[include_str!("../names/gte.hf.txt")], gguf: &[] }
}

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    c.only("position_embedding_type", &[json!("rope")], "the released models have rotary positions")?;
    c.only("layer_norm_type", &[json!("layer_norm")], "the released models have layer norms")?;
    c.only("pack_qkv", &[json!(true)], "the released models keep the three projections in one tensor")?;
    c.only("logn_attention_scale", &[json!(false)], "the released models do not scale by the length")?;
    let s = Sizes::read(c, SizeDefaults { context: Some(8192), ..SizeDefaults::default() })?;
    let norm = Norm::Layer { eps: c.epsilon(&["layer_norm_eps"], 1e-12)?, bias: true };
    let position = Position::Rope(rope(c, s.head_dim, RopeDefaults::base(160_000.0))?);
    let activation = c.activation("hidden_act", Activation::Gelu)?;
    let types = c.whole_opt("type_vocab_size")?.unwrap_or(1);
    let embed = Embed { token_types: (types > 0).then_some(types), norm: Some(norm), ..embed(&s) };
    let stack = post_norm(&s, embed, norm, position, Ffn::GatedOutBias { hidden: s.hidden, activation });
    let lm = masked_lm(c, &s, Activation::Gelu, norm)?;
    let pooler = ["pooler.dense.weight", "new.pooler.dense.weight", "gte.pooler.dense.weight"];
    encoder(c, stack, EncoderHeads::pooled(&pooler, lm, &["lm_head.dense.weight"]), s.context)
}
