//! DeBERTa (He et al. 2021) and its second and third versions: BERT with disentangled attention, whose distances are
//! bucketed by their logarithm since the second.

use super::{Architecture, CLASSIFIER, bert};
use crate::common::*;
use crate::error::Error;
use crate::names::Tables;
use crate::reader::Reader;
use attend_nn::spec::*;

pub static DEBERTA: Architecture =
    Architecture { name: "deberta", model_types: &["deberta"], gguf: &[], class: "Deberta", spec: first, names };
pub static DEBERTA_V2: Architecture = Architecture {
    name: "deberta-v2",
    model_types: &["deberta-v2"],
    gguf: &[],
    class: "DebertaV2",
    spec: second,
    names,
};

fn names(spec: &ModelSpec) -> Tables {
    const HF: &str = include_str!("../names/deberta.hf.txt");
    const FIRST: &str = include_str!("../names/deberta-first.hf.txt");
    const POOLER: &str = include_str!("../names/deberta-sequence.hf.txt");
    let key = spec.output_stack().layers.first().is_none_or(|layer| layer.attention.qkv_bias.key);
    let hf: &[&str] = match (matches!(spec.head, Head::Sequence { .. }), key) {
        (false, true) => &[bert::LAYERS, HF],
        (true, true) => &[bert::LAYERS, HF, CLASSIFIER, POOLER],
        (false, false) => &[bert::LAYERS, HF, FIRST],
        (true, false) => &[bert::LAYERS, HF, FIRST, CLASSIFIER, POOLER],
    };
    Tables { hf, gguf: &[] }
}

/// The first version has one matrix for query, key and value, and no bias on the key.
fn first(c: &Reader) -> Result<ModelSpec, Error> {
    c.only("talking_head", &[false.into()], "the released models do not have it")?;
    let distances = disentangled(c, [RelativeProjection::Own { bias: false }, RelativeProjection::Own { bias: true }])?;
    let first = |scores| Distances { scores: Disentangled { max_distance: None, ..scores }, normed: false };
    spec(c, distances.map(|distances| first(distances.scores)), false)
}

fn second(c: &Reader) -> Result<ModelSpec, Error> {
    let shared = c.flag("share_att_key", false)?;
    let projection = if shared { RelativeProjection::Shared } else { RelativeProjection::Own { bias: true } };
    spec(c, disentangled(c, [projection; 2])?, true)
}

fn spec(c: &Reader, distances: Option<Distances>, key_bias: bool) -> Result<ModelSpec, Error> {
    let s = Sizes::read(c, SizeDefaults { context: Some(512), ..SizeDefaults::default() })?;
    let norm = Norm::Layer { eps: c.epsilon(&["layer_norm_eps"], 1e-7)?, bias: true };
    let activation = c.activation("hidden_act", Activation::Gelu)?;
    let ffn = Ffn::Mlp { hidden: s.hidden, activation, bias: true };
    let positions = if c.flag("position_biased_input", true)? { absolute(c, &s)? } else { AbsolutePositions::None };
    let types = c.whole_opt("type_vocab_size")?.filter(|types| *types > 0);
    let embed = factorised(c, &s, s.width, Projection { bias: false, place: ProjectionPlace::BeforeNorm })?;
    let embed = Embed { positions, token_types: types, norm: Some(norm), ..embed };
    let mut stack = disentangled_stack(c, &s, embed, norm, distances, ffn)?;
    stack.layers.iter_mut().for_each(|layer| layer.attention.qkv_bias.key = key_bias);
    let lm = masked_lm(c, &s, activation, norm)?;
    let pooler = dense_head(c.activation("pooler_hidden_act", Activation::Gelu)?);
    let names = ["cls.predictions.transform.dense.weight", "lm_predictions.lm_head.dense.weight"];
    encoder(c, stack, EncoderHeads::pooled(&[], lm, &names).dense(pooler), s.context)
}
