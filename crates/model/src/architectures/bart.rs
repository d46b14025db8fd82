//! BART (Lewis et al. 2020): the 2017 Transformer with learned positions, a norm over its embeddings, and GELU.

use super::Architecture;
use crate::common::*;
use crate::error::Error;
use crate::reader::Reader;
use attend_nn::spec::*;

pub static BART: Architecture =
    Architecture { name: "bart", model_types: &["bart"], gguf: &[], class: "Bart", spec, names: translator_tables };

const FAMILY: Family = Family::POST_NORM;

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    translator(c, &FAMILY)
}
