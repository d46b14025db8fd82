//! GPT-Neo (Black et al. 2021): GPT-2 with unscaled scores and a window in some layers.

use super::Architecture;
use crate::common::*;
use crate::error::Error;
use crate::names::Tables;
use crate::reader::{Reader, short};
use attend_nn::spec::*;

pub static GPT_NEO: Architecture =
    Architecture { name: "gpt_neo", model_types: &["gpt_neo"], gguf: &[], class: "GPTNeo", spec, names };

fn names(_: &ModelSpec) -> Tables {
    Tables { hf: &[include_str!("../names/gpt_neo.hf.txt")], gguf: &[] }
}

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    let defaults = SizeDefaults { hidden_multiple: Some(4), context: Some(2048), ..SizeDefaults::default() };
    let s = Sizes::read(c, defaults)?;
    let slides = local_layers(c, s.layers)?;
    let window = Some(c.count_or(&["window_size"], 256)?);
    let attention = Attention { out_bias: true, scale: 1.0, ..attention(&s, Position::None) };
    let norm = Norm::Layer { eps: c.epsilon(&["layer_norm_epsilon"], 1e-5)?, bias: true };
    let activation = c.activation("activation_function", Activation::GeluTanh)?;
    let ffn = Ffn::Mlp { hidden: s.hidden, activation, bias: true };
    let rows = s.context.unwrap_or(2048);
    let embed = Embed { positions: AbsolutePositions::Learned { rows, offset: 0 }, ..embed(&s) };
    let masked = |i| Attention { mask: sliding(&slides, window, i), ..attention.clone() };
    decoder(c, &s, embed, lm(c, s.vocab, true)?, norm, |i| pre_norm(i, norm, masked(i), ffn.clone()))
}

/// For each layer whether it is local: `attention_layers`, else `attention_types` as `[[pattern, repeats], ...]`.
fn local_layers(c: &Reader, layers: usize) -> Result<Vec<bool>, Error> {
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

fn kind_is_local(kind: &serde_json::Value) -> Option<bool> {
    match kind.as_str()? {
        "global" => Some(false),
        "local" => Some(true),
        _ => None,
    }
}
