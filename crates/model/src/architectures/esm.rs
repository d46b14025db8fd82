//! ESM-1b and ESM-2 (Lin et al. 2023), models of proteins: pre-norm, with rotary positions or counted learned ones, and
//! embeddings scaled by the share of masked tokens.

use super::{Architecture, bert, roberta};
use crate::common::*;
use crate::error::Error;
use crate::names::Tables;
use crate::reader::Reader;
use attend_nn::spec::*;
use serde_json::json;

pub static ESM: Architecture =
    Architecture { name: "esm", model_types: &["esm"], gguf: &[], class: "Esm", spec, names };

fn names(spec: &ModelSpec) -> Tables {
    const HF: &str = include_str!("../names/esm.hf.txt");
    let hf: &[&str] = match spec.head {
        Head::None | Head::Lm(_) => &[bert::LAYERS, HF, roberta::LM_HEAD],
        Head::Sequence { .. } => &[bert::LAYERS, HF, roberta::DENSE],
        Head::Token { .. } | Head::Span { .. } => &[bert::LAYERS, HF],
    };
    Tables { hf, gguf: &[] }
}

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    encoder_only(c)?;
    c.only("is_folding_model", &[json!(false)], "structures are not predicted here")?;
    let s = Sizes::read(c, SizeDefaults { context: Some(1026), ..SizeDefaults::default() })?;
    let norm = Norm::Layer { eps: c.epsilon(&["layer_norm_eps"], 1e-12)?, bias: true };
    let rotary = c.text("position_embedding_type")? == Some("rotary");
    let (positions, padding, context) = match rotary {
        true => (AbsolutePositions::None, None, s.context),
        false => counted(c, &s, c.whole_opt("pad_token_id")?.unwrap_or(1))?,
    };
    let mask = c.whole_opt("mask_token_id")?.and_then(|mask| u32::try_from(mask).ok());
    // In training 15 % of the tokens are chosen, and 80 % of those masked.
    let dropout = mask.map(|mask| TokenDropout { mask, rate: 0.15 * 0.8 });
    let embed = Embed {
        positions,
        uncounted: padding,
        token_dropout: if c.flag("token_dropout", false)? { dropout } else { None },
        norm: c.flag("emb_layer_norm_before", false)?.then_some(norm),
        ..embed(&s)
    };
    let position = match rotary {
        true => {
            let exact = rope(c, s.head_dim, RopeDefaults::base(10_000.0))?;
            // All layers share them, under the stack's name, the first layer's, or a star.
            Position::Rope(kept_frequencies(c, "rotary_embeddings.inv_freq", exact)?)
        }
        false => Position::None,
    };
    let ffn = Ffn::Mlp { hidden: s.hidden, activation: Activation::Gelu, bias: true };
    let mut stack = post_norm(&s, embed, norm, position, ffn);
    stack.layers.iter_mut().for_each(|layer| layer.wiring = Wiring::PreNorm);
    stack.final_norm = Some(norm);
    let lm = masked_lm(c, &s, Activation::Gelu, norm)?;
    let pooler = ["pooler.dense.weight", "esm.pooler.dense.weight"];
    let heads = EncoderHeads::pooled(&pooler, lm, &["lm_head.dense.weight"]).dense(dense_head(Activation::Tanh));
    encoder(c, stack, heads, context)
}
