//! Descriptions that people write: a [`ModelSpec`] as TOML or JSON, with what is usual left out.
//!
//! The fields are those of [`attend_nn::spec`]; names of variants may be written small (`pre_norm`, `gelu_tanh`).
//!
//! ```toml
//! context = 2048                                # where positions end; without it they do not
//! [decoder]                                     # and/or [encoder]
//! width = 512
//! embed = { vocab = 32000 }
//! final_norm = "rms"
//! [[decoder.layers]]
//! repeat = 8                                    # eight layers, each with weights of its own
//! norm = "rms"
//! attention = { heads = 8, kv_heads = 2, head_dim = 64, position = "rope" }
//! ffn = { gated = { hidden = 1408, activation = "silu" } }
//! [head]
//! lm = { tied = true }
//! ```
//!
//! An entry of `layers` may have `layers` of its own beside `repeat`: a pattern that is repeated. `weights` names the set
//! of weights of a layer; layers with the same share it. What is left out:
//!
//! - a layer: wiring `pre_norm`, branch scale 1, no cross-attention; the norm, attention and feed-forward part are needed;
//! - attention: as many KV heads as heads, head width `width / heads`, no biases, no position, scale `key_dim^-0.5`, mask
//!   causal in a decoder and full in an encoder and in cross-attention; `head_dim` sets `key_dim` and `value_dim`, and
//!   `bias = true` all four biases;
//! - `rope`: base 10000, the whole head, pairs half a head apart; norms: epsilon 1e-5, layer norms with a bias;
//! - a mixture (`ffn.moe`): a router that renormalises its softmax, `activation` for the experts' unit, nothing shared;
//! - the embedding: as wide as the stack, nothing but the token table; `head.lm`: the decoder's vocabulary, not tied.

mod check;
mod defaults;
mod experts;
mod value;

use crate::error::Error;
use crate::reader::MOST_LAYERS;
use attend_format::Config;
use attend_nn::spec::*;
use defaults::{Role, attention, embed, head, norm};
use serde_json::{Map, Value};
use value::{At, piece};

/// Fields at the top that are not the description's.
const BESIDE: [&str; 7] =
    ["name", "notes", "dtype", "eos_token_id", "bos_token_id", "pad_token_id", "decoder_start_token_id"];

/// Reads a description; every error names the file and the field.
pub fn read(config: &Config) -> Result<ModelSpec, Error> {
    let wrong = |problem: value::Problem| Error::Config {
        file: config.file().to_path_buf(),
        field: problem.field,
        problem: problem.problem,
    };
    let spec = model(config.map()).map_err(wrong)?;
    check::model(&spec).map_err(wrong)?;
    Ok(spec)
}

fn model(map: &Map<String, Value>) -> Result<ModelSpec, value::Problem> {
    let top = At::top(map);
    let known: Vec<&str> =
        ["context", "body", "encoder", "decoder", "pooler", "head"].into_iter().chain(BESIDE).collect();
    top.only(&known)?;
    let body = body(&top)?;
    let output = match &body {
        Body::Encoder(stack) | Body::Decoder(stack) | Body::EncoderDecoder { decoder: stack, .. } => stack,
    };
    let vocab = output.embed.vocab;
    Ok(ModelSpec {
        pooler: top.get("pooler").map(|pooler| defaults::pooler(&pooler)).transpose()?,
        head: match top.get("head") {
            Some(found) => head(&found, vocab)?,
            None => Head::None,
        },
        context: top.get("context").map(|_| top.count("context")).transpose()?,
        body,
    })
}

/// The stacks: as `encoder` and `decoder`, or under `body` as `attend show --json` prints them.
fn body(top: &At<'_>) -> Result<Body, value::Problem> {
    let body = top.get("body");
    let outer = match &body {
        Some(body) => {
            if let Some(both) = ["EncoderDecoder", "encoder_decoder"].into_iter().find_map(|name| body.get(name)) {
                both
            } else {
                body.clone()
            }
        }
        None => top.clone(),
    };
    if body.is_some() {
        outer.only(&["encoder", "decoder", "Encoder", "Decoder"])?;
    }
    let find = |names: [&str; 2]| names.into_iter().find_map(|name| outer.get(name));
    match (find(["encoder", "Encoder"]), find(["decoder", "Decoder"])) {
        (Some(one), None) => Ok(Body::Encoder(stack(&one, Role::Encoder)?)),
        (None, Some(one)) => Ok(Body::Decoder(stack(&one, Role::Decoder)?)),
        (Some(encoder), Some(decoder)) => {
            let (encoder, decoder) = (stack(&encoder, Role::Encoder)?, stack(&decoder, Role::Decoder)?);
            Ok(Body::EncoderDecoder { encoder, decoder })
        }
        (None, None) => Err(outer.wrong("a table `decoder` or `encoder` is wanted")),
    }
}

fn stack(at: &At<'_>, role: Role) -> Result<Stack, value::Problem> {
    at.only(&["width", "embed", "layers", "relative_bias", "relative_rows", "conv", "final_norm", "narrowed"])?;
    let width = at.count("width")?;
    let mut layers = Vec::new();
    add_layers(&at.need("layers")?, (width, role), 0, &mut layers)?;
    let final_norm = at.get("final_norm").map(|found| norm(&found)).transpose()?;
    Ok(Stack {
        relative_bias: at.get("relative_bias").map(|bias| defaults::relative_bias(&bias)).transpose()?,
        relative_rows: at.get("relative_rows").map(|rows| defaults::relative_rows(&rows)).transpose()?,
        conv: at.get("conv").map(|found| defaults::conv(&found)).transpose()?,
        narrowed: at.get("narrowed").map(|_| at.count("narrowed")).transpose()?,
        ..Stack::plain(width, embed(&at.need("embed")?, width)?, layers, final_norm)
    })
}

/// Adds a list of layers and of patterns of layers.
fn add_layers(list: &At<'_>, around: (usize, Role), depth: usize, to: &mut Vec<Layer>) -> Result<(), value::Problem> {
    let Value::Array(entries) = list.value else { return Err(list.wrong("a list of layers is wanted")) };
    for (index, entry) in entries.iter().enumerate() {
        let entry = list.index(index, entry);
        let count = if entry.get("repeat").is_some() { entry.count("repeat")? } else { 1 };
        for _ in 0..count {
            match entry.get("layers") {
                // A pattern in a pattern says nothing that one alone cannot.
                Some(_) if depth > 0 => return Err(entry.wrong("a pattern of layers cannot hold another")),
                Some(pattern) => {
                    entry.only(&["repeat", "layers"])?;
                    add_layers(&pattern, around, depth + 1, to)?;
                }
                None => to.push(layer(&entry, around, to.len())?),
            }
            if to.len() > MOST_LAYERS {
                return Err(entry.wrong(format!("more than {MOST_LAYERS} layers")));
            }
            if to.is_empty() {
                return Err(entry.wrong("a pattern needs a layer"));
            }
        }
    }
    Ok(())
}

fn layer(at: &At<'_>, (width, role): (usize, Role), index: usize) -> Result<Layer, value::Problem> {
    at.only(&["repeat", "wiring", "norm", "attention", "cross", "ffn", "branch_scale", "weights"])?;
    let cross = at.get("cross").map(|cross| attention(&cross, width, Role::Cross)).transpose()?;
    Ok(Layer {
        wiring: match at.get("wiring") {
            Some(wiring) => piece(wiring.clone(), value::variant(&wiring)?)?,
            None => Wiring::PreNorm,
        },
        norm: norm(&at.need("norm")?)?,
        attention: attention(&at.need("attention")?, width, role)?,
        cross,
        ffn: experts::ffn(&at.need("ffn")?)?,
        branch_scale: match at.get("branch_scale") {
            Some(scale) => piece(scale.clone(), scale.value.clone())?,
            None => 1.0,
        },
        weights: match at.get("weights") {
            Some(set) => piece(set.clone(), set.value.clone())?,
            None => index,
        },
    })
}
