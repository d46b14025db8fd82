//! The 2017 Transformer (Vaswani et al.) as fairseq trained it for WMT19 (Ng et al. 2019): post-norm, sinusoids, ReLU,
//! a vocabulary for each language or one for both.

use super::Architecture;
use crate::common::*;
use crate::error::Error;
use crate::names::Tables;
use crate::reader::Reader;
use attend_nn::spec::*;

pub static FSMT: Architecture =
    Architecture { name: "fsmt", model_types: &["fsmt"], gguf: &[], class: "FSMT", spec, names };

const FAMILY: Family = Family {
    embed_norm: false,
    positions: Positions::Sinusoidal { layout: SinusoidLayout::HalvesInclusive, after_padding: true },
    scaled: true,
    activation: Activation::Relu,
    tied: false,
    ..Family::POST_NORM
};

fn names(spec: &ModelSpec) -> Tables {
    const ALL: &str = include_str!("../names/translator.hf.txt");
    const OWN: &str = include_str!("../names/translator-own.hf.txt");
    const OUTPUT: &str = include_str!("../names/fsmt.hf.txt");
    let hf: &[&str] = match spec.output_stack().embed.table {
        Table::Own => &[ALL, OWN, OUTPUT],
        Table::Encoder => &[ALL, OUTPUT],
    };
    Tables { hf, gguf: &[] }
}

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    let mut spec = translator(c, &FAMILY)?;
    if let Head::Lm(lm) = &mut spec.head {
        // Files may leave the output matrix out although their configuration does not call the tables tied.
        lm.tied |= !stored(c, "model.decoder.output_projection.weight");
    }
    Ok(spec)
}
