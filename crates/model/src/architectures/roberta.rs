//! RoBERTa (Liu et al. 2019), and CamemBERT and XLM-RoBERTa, which are the same model with other vocabularies: BERT
//! whose positions do not count padding, and whose classifier has a layer of its own.

use super::{Architecture, bert};
use crate::common::*;
use crate::error::Error;
use crate::names::Tables;
use crate::reader::Reader;
use attend_nn::spec::*;

pub static ROBERTA: Architecture =
    Architecture { name: "roberta", model_types: &["roberta"], gguf: &[], class: "Roberta", spec, names };
pub static CAMEMBERT: Architecture =
    Architecture { name: "camembert", model_types: &["camembert"], gguf: &[], class: "Camembert", spec, names };
pub static XLM_ROBERTA: Architecture =
    Architecture { name: "xlm-roberta", model_types: &["xlm-roberta"], gguf: &[], class: "XLMRoberta", spec, names };

fn names(spec: &ModelSpec) -> Tables {
    const HF: &str = include_str!("../names/roberta.hf.txt");
    let hf: &[&str] = match spec.head {
        Head::None | Head::Lm(_) => &[bert::LAYERS, HF, LM_HEAD],
        Head::Sequence { transform: Some(_), .. } => &[bert::LAYERS, HF, DENSE],
        Head::Sequence { transform: None, .. } | Head::Token { .. } | Head::Span { .. } => &[bert::LAYERS, HF],
    };
    Tables { hf, gguf: &[] }
}

/// The names of the head of masked language models, and of the classifier with a layer of its own.
pub(super) const LM_HEAD: &str = include_str!("../names/roberta-lm.hf.txt");
pub(super) const DENSE: &str = include_str!("../names/roberta-dense.hf.txt");

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    encoder_only(c)?;
    let s = Sizes::read(c, SizeDefaults { context: Some(512), ..SizeDefaults::default() })?;
    let norm = Norm::Layer { eps: c.epsilon(&["layer_norm_eps"], 1e-12)?, bias: true };
    let ffn = Ffn::Mlp { hidden: s.hidden, activation: c.activation("hidden_act", Activation::Gelu)?, bias: true };
    let (positions, padding, context) = counted(c, &s, c.whole_opt("pad_token_id")?.unwrap_or(1))?;
    let types = Some(c.count_or(&["type_vocab_size"], 2)?);
    let embed = Embed { positions, uncounted: padding, padding, token_types: types, norm: Some(norm), ..embed(&s) };
    // The head's activation is this one whatever the layers have.
    let lm = masked_lm(c, &s, Activation::Gelu, norm)?;
    let pooler = ["pooler.dense.weight", "roberta.pooler.dense.weight"];
    let heads = EncoderHeads::pooled(&pooler, lm, &["lm_head.dense.weight"]).dense(dense_head(Activation::Tanh));
    encoder(c, post_norm(&s, embed, norm, Position::None, ffn), heads, context)
}
