//! MPT (MosaicML 2023): ALiBi or learned positions, mostly without biases, options to clip and to normalise.

use super::Architecture;
use crate::common::*;
use crate::error::Error;
use crate::names::Tables;
use crate::reader::Reader;
use attend_nn::spec::*;
use serde_json::json;

pub static MPT: Architecture =
    Architecture { name: "mpt", model_types: &["mpt"], gguf: &["mpt"], class: "Mpt", spec, names };

fn names(_: &ModelSpec) -> Tables {
    Tables { hf: &[include_str!("../names/mpt.hf.txt")], gguf: &[include_str!("../names/gpt2.gguf.txt")] }
}

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    let s = Sizes::read(c, SizeDefaults { hidden_multiple: Some(4), context: Some(2048), ..SizeDefaults::default() })?;
    let hidden = match c.count_opt(&["expansion_ratio"])?.and_then(|ratio| ratio.checked_mul(s.width)) {
        // The reference widens by 4 whatever the configuration says; the matrix in the file decides.
        Some(hidden) if c.rows(&["transformer.blocks.0.ffn.up_proj.weight"]) == Some(hidden) => hidden,
        _ => s.hidden,
    };
    let nested = c.object("attn_config")?;
    let a = nested.as_ref().map_or_else(|| c.nested(c.config()), |nested| c.nested(nested));
    a.only("attn_type", &[json!("multihead_attention")], "only multi-head attention is built")?;
    a.only("prefix_lm", &[json!(false)], "attention is causal here")?;
    a.only("attn_uses_sequence_id", &[json!(false)], "sequences are packed without ids")?;
    c.only("norm_type", &[json!("low_precision_layernorm"), json!("layernorm")], "only layer norms are built")?;
    c.only("logit_scale", &[], "the reference knows no scale here")?;
    let bias = if c.is_gguf() { c.has_tensor("blk.0.attn_qkv.bias") } else { !c.flag("no_bias", true)? };
    let norm = Norm::Layer { eps: c.epsilon(&["layer_norm_epsilon"], 1e-5)?, bias };
    let max_bias = a.number_or("alibi_bias_max", if c.is_gguf() { 0.0 } else { 8.0 })? as f32;
    let alibi = if c.is_gguf() { max_bias > 0.0 } else { a.flag("alibi", true)? };
    let slopes = Alibi { slopes: SlopeOrder::OddFirst, max_bias, rounded: false, scaled: false };
    let usual = attention(&s, if alibi { Position::Alibi(slopes) } else { Position::None });
    let normed = a.flag_or_tensor("qk_ln", false, "blk.0.attn_q_norm.weight")?;
    let attention = Attention {
        qkv_bias: QkvBias::all(bias),
        out_bias: bias,
        clip_qkv: a.positive_opt("clip_qkv")?.map(|clip| clip as f32),
        scale: a.positive_or("softmax_scale", f64::from(usual.scale))? as f32,
        qk_norm: normed.then_some(QkNorm { norm, scope: QkNormScope::Projection }),
        ..usual
    };
    let ffn = Ffn::Mlp { hidden, activation: Activation::Gelu, bias };
    let learned = !alibi && (c.is_gguf() || c.flag("learned_pos_emb", true)?);
    let rows = AbsolutePositions::Learned { rows: s.context.unwrap_or(2048), offset: 0 };
    let embed = Embed { positions: if learned { rows } else { AbsolutePositions::None }, ..embed(&s) };
    let layer = |i| pre_norm(i, norm, attention.clone(), ffn.clone());
    decoder(c, &s, embed, lm(c, s.vocab, true)?, norm, layer)
}
