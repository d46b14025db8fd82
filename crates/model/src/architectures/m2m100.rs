//! M2M-100 (Fan et al. 2021) and NLLB (NLLB team 2022): pre-norm, ReLU, sinusoids behind the padding token.

use super::Architecture;
use crate::common::*;
use crate::error::Error;
use crate::reader::Reader;
use attend_nn::spec::*;

pub static M2M100: Architecture = Architecture {
    name: "m2m100",
    model_types: &["m2m_100"],
    gguf: &[],
    class: "M2M100",
    spec,
    names: translator_tables,
};

const FAMILY: Family = Family {
    embed_norm: false,
    positions: Positions::Sinusoidal { layout: SinusoidLayout::HalvesInclusive, after_padding: true },
    scaled: true,
    activation: Activation::Relu,
    ..Family::PRE_NORM
};

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    translator(c, &FAMILY)
}
