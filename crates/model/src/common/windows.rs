//! Which layers see a sliding window.

use crate::error::Error;
use crate::reader::{Reader, short};
use attend_nn::spec::Mask;
use serde_json::Value;

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

/// For each layer whether it is local: `attention_layers`, else `attention_types` as `[[pattern, repeats], ...]`.
pub fn local_layers(c: &Reader, layers: usize) -> Result<Vec<bool>, Error> {
    let wrong = |key: &str, value| c.wrong(key, format!("{} is neither `global` nor `local`", short(value)));
    let mut local = Vec::new();
    if let Some(list) = c.list("attention_layers")? {
        for kind in list {
            local.push(kind_is_local(kind).ok_or_else(|| wrong("attention_layers", kind))?);
        }
    } else if let Some(list) = c.list("attention_types")? {
        for item in list {
            let (pattern, repeats) = (item.get(0).and_then(|p| p.as_array()), item.get(1).and_then(|n| n.as_u64()));
            let (Some(pattern), Some(repeats)) = (pattern, repeats) else { return Err(wrong("attention_types", item)) };
            for kind in (0..repeats).take(layers + 1).flat_map(|_| pattern).take(layers + 1) {
                local.push(kind_is_local(kind).ok_or_else(|| wrong("attention_types", kind))?);
            }
        }
    } else {
        local.extend((0..layers).map(|i| i % 2 == 1));
    }
    if local.len() != layers {
        return Err(c.wrong("attention_types", format!("names {} layers of {layers}", local.len())));
    }
    Ok(local)
}

fn kind_is_local(kind: &Value) -> Option<bool> {
    match kind.as_str()? {
        "global" => Some(false),
        "local" => Some(true),
        _ => None,
    }
}
