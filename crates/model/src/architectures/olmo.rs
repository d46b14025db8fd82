//! OLMo 1 (Groeneveld et al. 2024): Llama with layer norms that have no weights, and an option to clip.

use super::{Architecture, llama};
use crate::common::*;
use crate::error::Error;
use crate::reader::Reader;
use attend_nn::spec::*;

pub static OLMO: Architecture =
    Architecture { name: "olmo", model_types: &["olmo"], gguf: &["olmo"], class: "Olmo", spec, names: llama::names };

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    let s = Sizes::read(c, SizeDefaults { context: Some(2048), ..SizeDefaults::default() })?;
    let position = Position::Rope(rope(c, s.head_dim, RopeDefaults::base(10000.0))?);
    let bias = c.flag_or_tensor("attention_bias", false, "blk.0.attn_q.bias")?;
    let attention = Attention {
        qkv_bias: QkvBias::all(bias),
        out_bias: bias,
        clip_qkv: c.positive_opt("clip_qkv")?.map(|clip| clip as f32),
        ..attention(&s, position)
    };
    let ffn = Ffn::Gated { hidden: s.hidden, activation: c.activation("hidden_act", Activation::Silu)?, bias: false };
    let norm = Norm::Plain { eps: 1e-5 };
    decoder(c, &s, embed(&s), lm(c, s.vocab, false)?, norm, |i| pre_norm(i, norm, attention.clone(), ffn.clone()))
}
