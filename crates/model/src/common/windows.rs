//! Which layers see a sliding window.

use crate::error::Error;
use crate::reader::{Reader, short};
use attend_nn::spec::Mask;

/// For each layer whether it slides: from `layer_types` where given, else by the architecture's own `rule`.
pub fn sliding_layers(c: &Reader, layers: usize, rule: impl Fn(usize) -> bool) -> Result<Vec<bool>, Error> {
    // GGUF may write a list of flags under a name that elsewhere holds a period.
    if let Some(flags) = c.value("sliding_window_pattern").and_then(|value| value.as_array()) {
        let flags: Option<Vec<bool>> = flags.iter().map(|flag| flag.as_bool()).collect();
        let flags = flags.filter(|flags| flags.len() == layers);
        return flags.ok_or_else(|| c.wrong("sliding_window_pattern", format!("must have {layers} flags")));
    }
    let Some(list) = c.list("layer_types")? else { return Ok((0..layers).map(rule).collect()) };
    if list.len() != layers {
        return Err(
            c.wrong("layer_types", format!("must have an entry for each of {layers} layers, found {}", list.len()))
        );
    }
    let kinds = list.iter().map(|kind| match kind.as_str() {
        Some("full_attention") => Ok(false),
        Some("sliding_attention") => Ok(true),
        _ => Err(c.wrong("layer_types", format!("{} is not supported", short(kind)))),
    });
    kinds.collect()
}

/// A causal mask that, in a sliding layer, sees `window` tokens counting the query itself.
pub fn causal(window: Option<usize>) -> Mask {
    match window {
        Some(window) => Mask::Window { left: window.saturating_sub(1), right: 0 },
        None => Mask::Causal,
    }
}

/// Each layer's mask where `window` applies to the layers that `slides` names.
pub fn sliding(slides: &[bool], window: Option<usize>, layer: usize) -> Mask {
    causal(window.filter(|_| slides.get(layer).copied().unwrap_or(false)))
}

/// Every how many layers one sees everything: `keys`, unless they hold a list.
pub fn period(c: &Reader, keys: &[&str], default: usize) -> Result<usize, Error> {
    match keys.iter().find(|key| c.value(key).is_some_and(|value| !value.is_array())) {
        Some(key) => c.count_or(&[key], default),
        None => Ok(default),
    }
}
