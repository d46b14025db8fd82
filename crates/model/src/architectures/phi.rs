//! Phi-1 to Phi-2 (Gunasekar et al. 2023): attention and feed-forward in parallel on one norm, biases everywhere,
//! rotary on part of the head.

use super::{Architecture, llama};
use crate::common::*;
use crate::error::Error;
use crate::names::Tables;
use crate::reader::Reader;
use attend_nn::spec::*;

pub static PHI: Architecture =
    Architecture { name: "phi", model_types: &["phi"], gguf: &["phi2"], class: "Phi", spec, names };

fn names(_: &ModelSpec) -> Tables {
    Tables {
        hf: &[llama::HF, include_str!("../names/phi.hf.txt")],
        gguf: &[llama::GGUF, include_str!("../names/phi.gguf.txt")],
    }
}

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    let s = Sizes::read(c, SizeDefaults { context: Some(2048), ..SizeDefaults::default() })?;
    let defaults = RopeDefaults { partial: if c.is_gguf() { 1.0 } else { 0.5 }, ..RopeDefaults::base(10000.0) };
    let norm = Norm::Layer { eps: c.epsilon(&["layer_norm_eps", "layer_norm_epsilon"], 1e-5)?, bias: true };
    let normed = c.flag("qk_layernorm", false)?;
    let attention = Attention {
        qkv_bias: QkvBias::all(true),
        out_bias: true,
        qk_norm: normed.then_some(QkNorm { norm, scope: QkNormScope::Head }),
        ..attention(&s, Position::Rope(rope(c, s.head_dim, defaults)?))
    };
    let activation = c.activation("hidden_act", Activation::GeluTanh)?;
    let ffn = Ffn::Mlp { hidden: s.hidden, activation, bias: true };
    let wiring = Wiring::Parallel { shared_norm: true };
    let layer = |i| Layer { wiring, ..pre_norm(i, norm, attention.clone(), ffn.clone()) };
    let lm = LmHead { bias: true, ..lm(c, s.vocab, false)? };
    decoder(c, &s, embed(&s), lm, norm, layer)
}
