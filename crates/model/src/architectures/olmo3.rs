//! OLMo 3 (OLMo Team 2025): OLMo 2 in which three layers of four see a window; positions are stretched in the fourth only.

use super::{Architecture, olmo2};
use crate::common::*;
use crate::error::Error;
use crate::reader::Reader;
use attend_nn::spec::*;

pub static OLMO3: Architecture = Architecture {
    name: "olmo3",
    model_types: &["olmo3"],
    gguf: &["olmo2"],
    class: "Olmo3",
    spec,
    names: olmo2::names,
};

pub(super) fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    let s = olmo2::sizes(c)?;
    let slides = sliding_layers(c, s.layers, |i| (i + 1) % 4 != 0)?;
    let window = if c.mentions("sliding_window") { c.count_opt(&["sliding_window"])? } else { Some(4096) };
    let defaults = RopeDefaults::base(500_000.0);
    let full = rope_for(c, Some("full_attention"), s.head_dim, defaults)?;
    let local = match c.object("rope_parameters")? {
        Some(_) => rope_for(c, Some("sliding_attention"), s.head_dim, defaults)?,
        None => Rope { scaling: RopeScaling::None, ..full.clone() },
    };
    olmo2::layers(c, &s, full, |i, attention| match slides.get(i) {
        Some(true) => Attention { mask: causal(window), position: Position::Rope(local.clone()), ..attention },
        Some(false) | None => attention,
    })
}
