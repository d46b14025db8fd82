//! DistilBERT (Sanh et al. 2019): BERT with half the layers, no token types and no pooler.

use super::{Architecture, CLASSIFIER};
use crate::common::*;
use crate::error::Error;
use crate::names::Tables;
use crate::reader::Reader;
use attend_nn::spec::*;

pub static DISTILBERT: Architecture =
    Architecture { name: "distilbert", model_types: &["distilbert"], gguf: &[], class: "DistilBert", spec, names };

fn names(spec: &ModelSpec) -> Tables {
    const HF: &str = include_str!("../names/distilbert.hf.txt");
    let hf: &[&str] = match spec.head {
        Head::None | Head::Lm(_) | Head::Token { .. } | Head::Span { .. } => &[HF],
        Head::Sequence { .. } => &[HF, CLASSIFIER, include_str!("../names/distilbert-sequence.hf.txt")],
    };
    Tables { hf, gguf: &[] }
}

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    let defaults = SizeDefaults { width: Some(768), layers: Some(6), heads: Some(12), ..SizeDefaults::default() };
    let s = Sizes::read(c, SizeDefaults { hidden: Some(3072), context: Some(512), ..defaults })?;
    let norm = Norm::Layer { eps: 1e-12, bias: true };
    let activation = c.activation("activation", Activation::Gelu)?;
    let ffn = Ffn::Mlp { hidden: s.hidden, activation, bias: true };
    // Sinusoidal positions are in the file like learned ones.
    let embed = Embed { positions: absolute(c, &s)?, norm: Some(norm), ..embed(&s) };
    let lm = masked_lm(c, &s, activation, norm)?;
    let heads = EncoderHeads::pooled(&[], lm, &["vocab_transform.weight"]).dense(dense_head(Activation::Relu));
    encoder(c, post_norm(&s, embed, norm, Position::None, ffn), heads, s.context)
}
