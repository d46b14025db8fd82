//! mBART (Liu et al. 2020): BART for many languages, with norms before the branches.

use super::Architecture;
use crate::common::*;
use crate::error::Error;
use crate::reader::Reader;
use attend_nn::spec::*;

pub static MBART: Architecture =
    Architecture { name: "mbart", model_types: &["mbart"], gguf: &[], class: "MBart", spec, names: translator_tables };

const FAMILY: Family = Family { start: None, rotates: true, ..Family::PRE_NORM };

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    translator(c, &FAMILY)
}
