//! Falcon (Almazrouei et al. 2023): one shared key and value head (7B), groups of them (40B), or ALiBi (the RW models).

use super::Architecture;
use crate::common::*;
use crate::error::Error;
use crate::names::Tables;
use crate::reader::Reader;
use attend_nn::spec::*;

pub static FALCON: Architecture =
    Architecture { name: "falcon", model_types: &["falcon"], gguf: &["falcon"], class: "Falcon", spec, names };

fn names(spec: &ModelSpec) -> Tables {
    const HF: &str = include_str!("../names/falcon.hf.txt");
    const GGUF: &str = include_str!("../names/gpt2.gguf.txt");
    match spec.output_stack().layers.first().map(|layer| layer.wiring) {
        Some(Wiring::Parallel { shared_norm: false }) => Tables {
            hf: &[HF, include_str!("../names/falcon-two-norms.hf.txt")],
            gguf: &[GGUF, include_str!("../names/falcon-two-norms.gguf.txt")],
        },
        _ => Tables { hf: &[HF], gguf: &[GGUF] },
    }
}

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    let s = Sizes::read(c, SizeDefaults { hidden_multiple: Some(4), context: Some(2048), ..SizeDefaults::default() })?;
    let grouped = if c.is_gguf() { s.kv_heads > 1 } else { c.flag("new_decoder_architecture", false)? };
    let single = if c.is_gguf() { s.kv_heads == 1 } else { c.flag("multi_query", true)? };
    let s = Sizes {
        kv_heads: if grouped {
            s.kv_heads
        } else if single {
            1
        } else {
            s.heads
        },
        ..s
    };
    let position = if !c.is_gguf() && c.flag("alibi", false)? {
        Position::Alibi(Alibi { slopes: SlopeOrder::LowerFirst, max_bias: 8.0, rounded: true, scaled: true })
    } else {
        Position::Rope(rope(c, s.head_dim, RopeDefaults::base(10000.0))?)
    };
    let bias = c.flag("bias", false)?;
    let attention = Attention { qkv_bias: QkvBias::all(bias), out_bias: bias, ..attention(&s, position) };
    let norm = Norm::Layer { eps: c.epsilon(&["layer_norm_epsilon"], 1e-5)?, bias: true };
    let ffn = Ffn::Mlp { hidden: s.hidden, activation: c.activation("activation", Activation::Gelu)?, bias };
    let norms = match c.count_opt(&["num_ln_in_parallel_attn"])? {
        _ if c.is_gguf() => 1 + usize::from(c.has_tensor("blk.0.attn_norm_2.weight")),
        Some(count @ 1..=2) => count,
        Some(other) => return Err(c.wrong("num_ln_in_parallel_attn", format!("must be 1 or 2, found {other}"))),
        None => 1 + usize::from(grouped),
    };
    // The grouped models are always parallel; only they may have two norms.
    let parallel = grouped || c.flag("parallel_attn", true)?;
    let wiring = if parallel { Wiring::Parallel { shared_norm: !grouped || norms == 1 } } else { Wiring::PreNorm };
    let layer = |i| Layer { wiring, ..pre_norm(i, norm, attention.clone(), ffn.clone()) };
    decoder(c, &s, embed(&s), lm(c, s.vocab, true)?, norm, layer)
}
