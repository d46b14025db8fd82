//! Qwen 3 (2025): Qwen 2 without biases, with a norm on every query and key head.

use super::{Architecture, qwen2};
use crate::common::*;
use crate::error::Error;
use crate::reader::Reader;
use attend_nn::spec::*;

pub static QWEN3: Architecture = Architecture {
    name: "qwen3",
    model_types: &["qwen3"],
    gguf: &["qwen3"],
    class: "Qwen3",
    spec,
    names: qwen2::names,
};

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    let defaults = SizeDefaults { head_dim: Some(128), context: Some(32768), ..SizeDefaults::default() };
    let s = Sizes::read(c, defaults)?;
    let position = Position::Rope(rope(c, s.head_dim, RopeDefaults::base(10000.0))?);
    let bias = c.flag_or_tensor("attention_bias", false, "blk.0.attn_q.bias")?;
    let norm = Norm::Rms { eps: c.epsilon(&["rms_norm_eps"], 1e-6)? };
    let attention = Attention {
        qkv_bias: QkvBias::all(bias),
        out_bias: bias,
        qk_norm: Some(QkNorm { norm, scope: QkNormScope::Head }),
        ..attention(&s, position)
    };
    qwen2::family(c, &s, attention)
}
