//! MPNet (Song et al. 2020): RoBERTa without token types, with T5's relative buckets over the scaled scores.

use super::{Architecture, bert, roberta};
use crate::common::*;
use crate::error::Error;
use crate::names::Tables;
use crate::reader::Reader;
use attend_nn::spec::*;
use serde_json::json;

pub static MPNET: Architecture =
    Architecture { name: "mpnet", model_types: &["mpnet"], gguf: &[], class: "MPNet", spec, names };

fn names(spec: &ModelSpec) -> Tables {
    const HF: &str = include_str!("../names/mpnet.hf.txt");
    let hf: &[&str] = match spec.head {
        Head::None | Head::Lm(_) => &[bert::LAYERS, HF, roberta::LM_HEAD],
        Head::Sequence { transform: Some(_), .. } => &[bert::LAYERS, HF, roberta::DENSE],
        Head::Sequence { transform: None, .. } | Head::Token { .. } | Head::Span { .. } => &[bert::LAYERS, HF],
    };
    Tables { hf, gguf: &[] }
}

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    let s = Sizes::read(c, SizeDefaults { context: Some(512), ..SizeDefaults::default() })?;
    let norm = Norm::Layer { eps: c.epsilon(&["layer_norm_eps"], 1e-12)?, bias: true };
    let ffn = Ffn::Mlp { hidden: s.hidden, activation: c.activation("hidden_act", Activation::Gelu)?, bias: true };
    // The padding token is this one whatever the configuration says.
    let (positions, padding, context) = counted(c, &s, 1)?;
    let embed = Embed { positions, uncounted: padding, padding, norm: Some(norm), ..embed(&s) };
    let mut stack = post_norm(&s, embed, norm, Position::StackBias, ffn);
    // The buckets are these whatever the configuration says; rows beyond them would never be read.
    c.only("relative_attention_num_buckets", &[json!(32)], "the model has 32 buckets")?;
    stack.relative_bias = Some(RelativeBias { buckets: 32, max_distance: 128, bidirectional: true, heads: s.heads });
    let lm = masked_lm(c, &s, Activation::Gelu, norm)?;
    let pooler = ["pooler.dense.weight", "mpnet.pooler.dense.weight"];
    let heads = EncoderHeads::pooled(&pooler, lm, &["lm_head.dense.weight"]).dense(dense_head(Activation::Tanh));
    encoder(c, stack, heads, context)
}
