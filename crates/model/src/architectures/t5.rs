//! T5 (Raffel et al. 2020), its later versions and mT5 (Xue et al. 2021): relative buckets, unscaled scores.

use super::Architecture;
use crate::common::*;
use crate::error::Error;
use crate::names::Tables;
use crate::reader::Reader;
use attend_nn::spec::*;

pub static T5: Architecture =
    Architecture { name: "t5", model_types: &["t5"], gguf: &["t5", "t5encoder"], class: "T5", spec: t5, names };
pub static MT5: Architecture =
    Architecture { name: "mt5", model_types: &["mt5"], gguf: &[], class: "MT5", spec: mt5, names };

fn names(spec: &ModelSpec) -> Tables {
    const HF: &str = include_str!("../names/t5.hf.txt");
    let plain = spec.output_stack().layers.iter().any(|layer| matches!(layer.ffn, Ffn::Mlp { .. }));
    let hf: &[&str] = if plain { &[HF, include_str!("../names/t5-plain.hf.txt")] } else { &[HF] };
    Tables { hf, gguf: &[include_str!("../names/t5.gguf.txt")] }
}

fn t5(c: &Reader) -> Result<ModelSpec, Error> {
    spec(c, "relu", true, true)
}

fn mt5(c: &Reader) -> Result<ModelSpec, Error> {
    spec(c, "gated-gelu", false, false)
}

/// `tied` and `scaled` (by width^-0.5, where tied) are what the version does unless its configuration says otherwise.
fn spec(c: &Reader, projection: &str, tied: bool, scaled: bool) -> Result<ModelSpec, Error> {
    let head_dim = Some(c.count_or(&["d_kv", "head_dim"], 64)?);
    let s = Sizes::read(c, SizeDefaults { head_dim, ..SizeDefaults::default() })?;
    let norm = Norm::Rms { eps: c.epsilon(&["layer_norm_epsilon", "rms_norm_eps"], 1e-6)? };
    let gated = c.has_tensor("enc.blk.0.ffn_gate.weight");
    let projection = if gated { "gated-gelu" } else { projection };
    let ffn = feed_forward(c, s.hidden, projection)?;
    let mut bias = buckets(c, &s)?;
    let branch = |position, mask| Attention { scale: 1.0, mask, ..attention(&s, position) };
    let layer = |i, mask, cross| Layer { cross, ..pre_norm(i, norm, branch(Position::StackBias, mask), ffn.clone()) };
    let layers = (0..s.layers).map(|i| layer(i, Mask::Full, None)).collect();
    let encoder = Stack { relative_bias: Some(bias), ..stack(&s, embed(&s), layers, Some(norm)) };
    let alone = c.is_gguf() && !c.has_tensor("dec.output_norm.weight");
    let mut lm = lm(c, s.vocab, tied)?;
    let scaled = c.flag("scale_decoder_outputs", scaled && lm.tied && !gated)?;
    // Configurations written since this field exists always say that the tables are tied; the field tells.
    lm.tied &= !(c.mentions("scale_decoder_outputs") && !scaled && c.has_tensor("lm_head.weight"));
    let lm = LmHead { scale: if scaled { (s.width as f32).powf(-0.5) } else { 1.0 }, ..lm };
    let Some(head) = translation(c, if alone { HeadKind::EncoderOnly } else { HeadKind::Lm }, lm)? else {
        return Ok(encoder_alone(encoder));
    };
    bias.bidirectional = false;
    let deep = c.count_opt(&["num_decoder_layers"])?.map_or(s.layers, |layers| c.bounded_layers(layers));
    let cross = branch(Position::None, Mask::Full);
    let layers = (0..deep).map(|i| layer(i, Mask::Causal, Some(cross.clone()))).collect();
    let embed = Embed { table: Table::Encoder, ..embed(&s) };
    let decoder = Stack { relative_bias: Some(bias), ..stack(&s, embed, layers, Some(norm)) };
    Ok(ModelSpec { body: Body::EncoderDecoder { encoder, decoder }, pooler: None, head, context: None })
}
