//! Cohere's Command R7B and A (2024): Command R in which three layers of four rotate and see a window, and the fourth
//! has no positions and sees everything.

use super::{Architecture, cohere};
use crate::common::*;
use crate::error::Error;
use crate::reader::Reader;
use attend_nn::spec::*;

pub static COHERE2: Architecture = Architecture {
    name: "cohere2",
    model_types: &["cohere2"],
    gguf: &["cohere2"],
    class: "Cohere2",
    spec,
    names: cohere::names,
};

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    let s = Sizes::read(c, SizeDefaults { context: Some(8192), ..SizeDefaults::default() })?;
    let every = period(c, &["sliding_window_pattern", "_sliding_window_pattern"], 4)?;
    let slides = sliding_layers(c, s.layers, |i| (i + 1) % every != 0)?;
    // Null means that no layer slides, and so that none rotates either.
    let window = if c.mentions("sliding_window") { c.count_opt(&["sliding_window"])? } else { Some(4096) };
    let rope = cohere::rotary(c, &s, 10000.0)?;
    cohere::parallel(c, &s, |i| {
        let rotates = window.is_some() && slides.get(i) == Some(&true);
        let position = if rotates { Position::Rope(rope.clone()) } else { Position::None };
        Attention { mask: sliding(&slides, window, i), ..attention(&s, position) }
    })
}
