//! PEGASUS (Zhang et al. 2020): a summariser; pre-norm, sinusoids, bare embeddings.

use super::Architecture;
use crate::common::*;
use crate::error::Error;
use crate::reader::Reader;
use attend_nn::spec::*;

pub static PEGASUS: Architecture = Architecture {
    name: "pegasus",
    model_types: &["pegasus"],
    gguf: &[],
    class: "Pegasus",
    spec,
    names: translator_tables,
};

const FAMILY: Family = Family {
    embed_norm: false,
    positions: Positions::Sinusoidal { layout: SinusoidLayout::Halves, after_padding: false },
    start: Some(0),
    padding: 0,
    ..Family::PRE_NORM
};

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    translator(c, &FAMILY)
}
