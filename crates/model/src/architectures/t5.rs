//! T5 (Raffel et al. 2020), its later versions and mT5 (Xue et al. 2021): relative buckets, unscaled scores.

use super::Architecture;
use crate::common::*;
use crate::error::Error;
use crate::names::Tables;
use crate::reader::Reader;
use attend_nn::spec::*;

pub static T5: Architecture =
    Architecture { name: "t5", model_types: &["t5"], gguf: &["t5", "t5encoder"], class: "T5", spec: t5, names };
pub static MT5: Architecture =
    Architecture { name: "mt5", model_types: &["mt5"], gguf: &[], class: "MT5", spec: mt5, names };

fn names(spec: &ModelSpec) -> Tables {
    const HF: &str = include_str!("../names/t5.hf.txt");
    let plain = spec.output_stack().layers.iter().any(|layer| matches!(layer.ffn, Ffn::Mlp { .. }));
    let hf: &[&str] = if plain { &[HF, include_str!("../names/t5-plain.hf.txt")] } else { &[HF] };
    Tables { hf, gguf: &[include_str!("../names/t5.gguf.txt")] }
}

fn t5(c: &Reader) -> Result<ModelSpec, Error> {
    let tied = lm(c, 1, true)?.tied;
    spec(c, "relu", tied, c.flag("scale_decoder_outputs", tied)?)
}

fn mt5(c: &Reader) -> Result<ModelSpec, Error> {
    spec(c, "gated-gelu", lm(c, 1, false)?.tied, c.flag("scale_decoder_outputs", false)?)
}

fn spec(c: &Reader, projection: &str, tied: bool, scaled: bool) -> Result<ModelSpec, Error> {
    let head_dim = c.count_or(&["d_kv", "head_dim"], 64)?;
    let s = Sizes { head_dim, ..Sizes::read(c, SizeDefaults { head_dim: Some(head_dim), ..SizeDefaults::default() })? };
    let norm = Norm::Rms { eps: c.epsilon(&["layer_norm_epsilon", "rms_norm_eps"], 1e-6)? };
    let gguf_gated = if c.has_tensor("enc.blk.0.ffn_gate.weight") { "gated-gelu" } else { "relu" };
    let ffn = feed_forward(c, s.hidden, if c.is_gguf() { gguf_gated } else { projection })?;
    let buckets = c.count_or(&["relative_attention_num_buckets"], 32)?;
    let max_distance = c.count_or(&["relative_attention_max_distance"], 128)?;
    let stack = |layers: usize, mask: Mask, table: Table, cross: bool| {
        let branch = |position| Attention { scale: 1.0, mask, ..attention(&s, position) };
        let over = cross.then(|| Attention { mask: Mask::Full, ..branch(Position::None) });
        let layer = |i| Layer { cross: over.clone(), ..pre_norm(i, norm, branch(Position::StackBias), ffn.clone()) };
        Stack {
            width: s.width,
            embed: Embed { table, ..embed(&s) },
            layers: (0..layers).map(layer).collect(),
            relative_bias: Some(RelativeBias {
                buckets,
                max_distance,
                bidirectional: mask == Mask::Full,
                heads: s.heads,
            }),
            final_norm: Some(norm),
        }
    };
    let encoder = stack(s.layers, Mask::Full, Table::Own, false);
    let alone = c.is_gguf() && !c.has_tensor("dec.output_norm.weight");
    let kind = head_kind(c, if alone { HeadKind::EncoderOnly } else { HeadKind::Lm })?;
    let head = match kind {
        HeadKind::EncoderOnly => {
            return Ok(ModelSpec { body: Body::Encoder(encoder), pooler: None, head: Head::None, context: None });
        }
        HeadKind::Lm => {
            Head::Lm(LmHead { scale: if scaled { (s.width as f32).powf(-0.5) } else { 1.0 }, ..lm(c, s.vocab, tied)? })
        }
        HeadKind::None => Head::None,
        _ => return Err(c.wrong("architectures", "this head is not supported on this architecture")),
    };
    let deep = c.count_opt(&["num_decoder_layers"])?.map_or(s.layers, |layers| c.bounded_layers(layers));
    let decoder = stack(deep, Mask::Causal, Table::Encoder, true);
    Ok(ModelSpec { body: Body::EncoderDecoder { encoder, decoder }, pooler: None, head, context: None })
}

/// `feed_forward_proj`: an activation, `gated-` before it for a gated part; `gated-gelu` means the tanh formula.
fn feed_forward(c: &Reader, hidden: usize, default: &str) -> Result<Ffn, Error> {
    let name = c.text("feed_forward_proj")?.unwrap_or(default);
    let wrong = || c.wrong("feed_forward_proj", format!("`{name}` is not known"));
    let gated = name.strip_prefix("gated-");
    let activation = if gated == Some("gelu") { "gelu_new" } else { gated.unwrap_or(name) };
    let activation = activation_named(activation).ok_or_else(wrong)?;
    Ok(match gated {
        Some(_) => Ffn::Gated { hidden, activation, bias: false },
        None => Ffn::Mlp { hidden, activation, bias: false },
    })
}
