//! BLOOM (Workshop et al. 2022): ALiBi, a norm on the embedding.

use super::Architecture;
use crate::common::*;
use crate::error::Error;
use crate::names::Tables;
use crate::reader::Reader;
use attend_nn::spec::*;

pub static BLOOM: Architecture =
    Architecture { name: "bloom", model_types: &["bloom"], gguf: &["bloom"], class: "Bloom", spec, names };

fn names(_: &ModelSpec) -> Tables {
    Tables { hf: &[include_str!("../names/bloom.hf.txt")], gguf: &[include_str!("../names/gpt2.gguf.txt")] }
}

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    let s = Sizes::read(c, SizeDefaults { hidden_multiple: Some(4), ..SizeDefaults::default() })?;
    let alibi = Alibi { slopes: SlopeOrder::LowerFirst, max_bias: 8.0, rounded: false, scaled: false };
    let position = Position::Alibi(alibi);
    let attention = Attention { qkv_bias: QkvBias::all(true), out_bias: true, ..attention(&s, position) };
    let norm = Norm::Layer { eps: c.epsilon(&["layer_norm_epsilon"], 1e-5)?, bias: true };
    let ffn = Ffn::Mlp { hidden: s.hidden, activation: Activation::GeluTanh, bias: true };
    let from_norm = c.flag("apply_residual_connection_post_layernorm", false)?;
    let wiring = if from_norm { Wiring::NormResidual } else { Wiring::PreNorm };
    let layer = |i| Layer { wiring, ..pre_norm(i, norm, attention.clone(), ffn.clone()) };
    let embed = Embed { norm: Some(norm), ..embed(&s) };
    decoder(c, &s, embed, lm(c, s.vocab, true)?, norm, layer)
}
