//! Qwen 3 MoE (2025): Qwen 3 with experts in most layers.

use super::{Architecture, qwen2_moe};
use crate::common::*;
use crate::error::Error;
use crate::reader::Reader;
use attend_nn::spec::*;

pub static QWEN3_MOE: Architecture = Architecture {
    name: "qwen3_moe",
    model_types: &["qwen3_moe"],
    gguf: &["qwen3moe"],
    class: "Qwen3Moe",
    spec,
    names: qwen2_moe::names,
};

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    let defaults = SizeDefaults { kv_heads: Some(4), context: Some(32768), ..SizeDefaults::default() };
    let s = Sizes::read(c, defaults)?;
    let position = Position::Rope(rope(c, s.head_dim, RopeDefaults::base(10000.0))?);
    let bias = c.flag_or_tensor("attention_bias", false, "blk.0.attn_q.bias")?;
    let norm = Norm::Rms { eps: c.epsilon(&["rms_norm_eps"], 1e-6)? };
    // Every layer slides where any does.
    let window = if c.flag("use_sliding_window", false)? { Some(c.count_or(&["sliding_window"], 4096)?) } else { None };
    let attention = Attention {
        qkv_bias: QkvBias::all(bias),
        out_bias: bias,
        qk_norm: Some(QkNorm { norm, scope: QkNormScope::Head }),
        mask: causal(window),
        ..attention(&s, position)
    };
    let hidden = c.count_or(&["moe_intermediate_size"], 768)?;
    // GGUF does not say that the weights sum to one.
    qwen2_moe::sparse(c, &s, (128, 8, hidden), c.is_gguf(), |moe| moe, |_| attention.clone())
}
