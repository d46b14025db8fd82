//! ELECTRA (Clark et al. 2020): BERT with a factorised embedding; a generator (masked tokens) and a discriminator
//! (which tokens were replaced).

use super::{Architecture, bert, roberta};
use crate::common::*;
use crate::error::Error;
use crate::names::Tables;
use crate::reader::Reader;
use attend_nn::spec::*;

pub static ELECTRA: Architecture =
    Architecture { name: "electra", model_types: &["electra"], gguf: &[], class: "Electra", spec, names };

fn names(spec: &ModelSpec) -> Tables {
    const HF: &str = include_str!("../names/electra.hf.txt");
    let hf: &[&str] = match spec.head {
        Head::Lm(_) => &[bert::LAYERS, HF, include_str!("../names/electra-generator.hf.txt")],
        Head::None | Head::Token { .. } | Head::Span { .. } => &[bert::LAYERS, HF],
        Head::Sequence { .. } => &[bert::LAYERS, HF, roberta::DENSE],
    };
    Tables { hf, gguf: &[] }
}

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    encoder_only(c)?;
    let defaults = SizeDefaults { width: Some(256), layers: Some(12), heads: Some(4), ..SizeDefaults::default() };
    let s = Sizes::read(c, SizeDefaults { hidden: Some(1024), context: Some(512), ..defaults })?;
    let norm = Norm::Layer { eps: c.epsilon(&["layer_norm_eps"], 1e-12)?, bias: true };
    let activation = c.activation("hidden_act", Activation::Gelu)?;
    let ffn = Ffn::Mlp { hidden: s.hidden, activation, bias: true };
    let embed = factorised(c, &s, 128, Projection { bias: true, place: ProjectionPlace::AfterNorm })?;
    let types = Some(c.count_or(&["type_vocab_size"], 2)?);
    let embed = Embed { positions: absolute(c, &s)?, token_types: types, norm: Some(norm), ..embed };
    // The generator's activation is this one whatever the layers have; the discriminator follows the layers.
    let lm = masked_lm(c, &s, Activation::Gelu, norm)?;
    let heads =
        EncoderHeads::pooled(&[], lm, &["generator_predictions.dense.weight"]).dense(dense_head(Activation::Gelu));
    let heads = EncoderHeads { discriminator: Some(dense_head(activation)), ..heads };
    encoder(c, post_norm(&s, embed, norm, Position::None, ffn), heads, s.context)
}
