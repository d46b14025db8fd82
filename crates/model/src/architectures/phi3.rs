//! Phi-3 (Abdin et al. 2024): Llama with fused projections, partial rotary and LongRoPE.

use super::{Architecture, llama};
use crate::common::*;
use crate::error::Error;
use crate::names::Tables;
use crate::reader::Reader;
use attend_nn::spec::*;

pub static PHI3: Architecture =
    Architecture { name: "phi3", model_types: &["phi3"], gguf: &["phi3"], class: "Phi3", spec, names };

fn names(_: &ModelSpec) -> Tables {
    Tables {
        hf: &[llama::HF, include_str!("../names/phi3.hf.txt")],
        gguf: &[llama::GGUF, include_str!("../names/phi3.gguf.txt")],
    }
}

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    let s = Sizes::read(c, SizeDefaults { context: Some(4096), ..SizeDefaults::default() })?;
    let slides = sliding_layers(c, s.layers, |_| true)?;
    // Converters to GGUF write 0 for a model without a window.
    let window = c.whole_opt("sliding_window")?.filter(|window| !c.is_gguf() || *window > 0);
    let window = window.map(|_| c.count(&["sliding_window"])).transpose()?;
    let position = Position::Rope(rope(c, s.head_dim, RopeDefaults::base(10000.0))?);
    let attention = attention(&s, position);
    let ffn = Ffn::Gated { hidden: s.hidden, activation: c.activation("hidden_act", Activation::Silu)?, bias: false };
    let norm = Norm::Rms { eps: c.epsilon(&["rms_norm_eps"], 1e-5)? };
    let masked = |i| Attention { mask: sliding(&slides, window, i), ..attention.clone() };
    decoder(c, &s, embed(&s), lm(c, s.vocab, false)?, norm, |i| pre_norm(i, norm, masked(i), ffn.clone()))
}
