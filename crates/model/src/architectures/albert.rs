//! ALBERT (Lan et al. 2020): BERT with a factorised embedding, whose layers share weights in groups.

use super::Architecture;
use crate::common::*;
use crate::error::Error;
use crate::names::Tables;
use crate::reader::Reader;
use attend_nn::spec::*;

/// Layers beyond which a file is not believed.
const MOST_LAYERS: usize = 4096;

pub static ALBERT: Architecture =
    Architecture { name: "albert", model_types: &["albert"], gguf: &[], class: "Albert", spec, names };

fn names(_: &ModelSpec) -> Tables {
    Tables { hf: &[include_str!("../names/albert.hf.txt")], gguf: &[] }
}

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    let defaults = SizeDefaults { width: Some(4096), layers: Some(12), heads: Some(64), ..SizeDefaults::default() };
    let s = Sizes::read(c, SizeDefaults { hidden: Some(16384), context: Some(512), ..defaults })?;
    let groups = c.count_or(&["num_hidden_groups"], 1)?;
    if groups > s.layers {
        return Err(c.wrong("num_hidden_groups", format!("{groups} groups of {} layers", s.layers)));
    }
    let norm = Norm::Layer { eps: c.epsilon(&["layer_norm_eps"], 1e-12)?, bias: true };
    let activation = c.activation("hidden_act", Activation::GeluTanh)?;
    let ffn = Ffn::Mlp { hidden: s.hidden, activation, bias: true };
    let width = c.count_or(&["embedding_size"], 128)?;
    let projection = Some(Projection { bias: true, place: ProjectionPlace::AfterNorm });
    let types = Some(c.count_or(&["type_vocab_size"], 2)?);
    let positions = absolute(c, &s)?;
    let embed = Embed { width, projection, positions, token_types: types, norm: Some(norm), ..embed(&s) };
    let lm = masked_lm(c, &s, activation, norm)?;
    let heads = EncoderHeads::pooled(&["pooler.weight", "albert.pooler.weight"], lm, &["predictions.dense.weight"]);
    // A group is run through as a whole, `inner` layers with weights of their own, as often as there are layers to a group.
    let inner = c.count_or(&["inner_group_num"], 1)?;
    let layers = Some(s.layers.saturating_mul(inner)).filter(|layers| *layers <= MOST_LAYERS);
    let layers =
        layers.ok_or_else(|| c.wrong("inner_group_num", format!("{inner} in each of {} is too many", s.layers)))?;
    let mut stack = post_norm(&Sizes { layers, ..s }, embed, norm, Position::None, ffn);
    for (i, layer) in stack.layers.iter_mut().enumerate() {
        let group = ((i / inner) as f64 / (s.layers as f64 / groups as f64)) as usize;
        layer.weights = group * inner + i % inner;
    }
    encoder(c, stack, heads, s.context)
}
