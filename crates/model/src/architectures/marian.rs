//! Marian (Junczys-Dowmunt et al. 2018), as its translators are published: post-norm, sinusoids, bare embeddings.

use super::Architecture;
use crate::common::*;
use crate::error::Error;
use crate::reader::Reader;
use attend_nn::spec::*;

pub static MARIAN: Architecture = Architecture {
    name: "marian",
    model_types: &["marian"],
    gguf: &[],
    class: "Marian",
    spec,
    names: translator_tables,
};

const FAMILY: Family = Family {
    embed_norm: false,
    positions: Positions::Sinusoidal { layout: SinusoidLayout::Halves, after_padding: false },
    start: Some(58100),
    padding: 58100,
    ..Family::POST_NORM
};

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    translator(c, &FAMILY)
}
