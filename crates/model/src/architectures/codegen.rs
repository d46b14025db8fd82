//! CodeGen (Nijkamp et al. 2022): GPT-J with one fused projection, interleaved as its four shards in training were.

use super::{Architecture, gptj};
use crate::names::Tables;
use attend_nn::spec::*;

pub static CODEGEN: Architecture =
    Architecture { name: "codegen", model_types: &["codegen"], gguf: &[], class: "CodeGen", spec: gptj::spec, names };

fn names(_: &ModelSpec) -> Tables {
    Tables { hf: &[gptj::HF, include_str!("../names/codegen.hf.txt")], gguf: &[] }
}
