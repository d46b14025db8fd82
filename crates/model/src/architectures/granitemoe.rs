//! Granite 3 MoE (IBM 2024): Granite with experts in every layer.

use super::{Architecture, granite, llama, mixtral};
use crate::common::*;
use crate::error::Error;
use crate::names::Tables;
use crate::reader::Reader;
use attend_nn::spec::*;

pub static GRANITE_MOE: Architecture = Architecture {
    name: "granitemoe",
    model_types: &["granitemoe"],
    gguf: &["granitemoe"],
    class: "GraniteMoe",
    spec,
    names,
};

fn names(_: &ModelSpec) -> Tables {
    Tables {
        hf: &[llama::HF, include_str!("../names/granitemoe.hf.txt")],
        gguf: &[llama::GGUF, mixtral::EXPERTS, llama::PAIRS],
    }
}

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    granite::family(c, |s| {
        let unit = GatedUnit::Product(c.activation("hidden_act", Activation::Silu)?);
        let scores = RouterScores::ChosenSoftmax;
        let defaults = ExpertDefaults { experts: 8, chosen: 2, hidden: s.hidden, scores, unit, bias: false };
        Ok(Ffn::Moe(experts(c, s, defaults)?))
    })
}
