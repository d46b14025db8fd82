//! The small model of Blenderbot (Roller et al. 2021): post-norm, and a decoder that adds positions after its first norm.

use super::Architecture;
use crate::common::*;
use crate::error::Error;
use crate::reader::Reader;
use attend_nn::spec::*;

pub static BLENDERBOT_SMALL: Architecture = Architecture {
    name: "blenderbot-small",
    model_types: &["blenderbot-small"],
    gguf: &[],
    class: "BlenderbotSmall",
    spec,
    names: translator_tables,
};

const FAMILY: Family = Family {
    decoder_norm_first: true,
    positions: Positions::Learned { unused: 0 },
    context: 512,
    start: Some(1),
    padding: 0,
    ..Family::POST_NORM
};

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    translator(c, &FAMILY)
}
