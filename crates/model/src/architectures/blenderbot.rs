//! Blenderbot (Roller et al. 2021): pre-norm, learned positions from the first row on, bare embeddings.

use super::Architecture;
use crate::common::*;
use crate::error::Error;
use crate::reader::Reader;
use attend_nn::spec::*;

pub static BLENDERBOT: Architecture = Architecture {
    name: "blenderbot",
    model_types: &["blenderbot"],
    gguf: &[],
    class: "Blenderbot",
    spec,
    names: translator_tables,
};

const FAMILY: Family = Family {
    embed_norm: false,
    positions: Positions::Learned { unused: 0 },
    context: 128,
    start: Some(1),
    padding: 0,
    ..Family::PRE_NORM
};

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    translator(c, &FAMILY)
}
