//! Latent attention, as configurations describe it.

use super::rope::{RopeDefaults, rope};
use super::sizes::{Sizes, attention};
use crate::error::Error;
use crate::reader::Reader;
use attend_nn::spec::*;

/// DeepSeek-V2's attention (section 2.1 of its report), with the widths that its first model has as defaults.
pub fn latent_attention(c: &Reader, s: &Sizes, pairing: Pairing) -> Result<Attention, Error> {
    // GGUF gives the whole head where config.json gives its parts.
    let (rope_dim, whole) = match c.is_gguf() {
        true => (c.count(&["rotary_dim"])?, Some(c.count(&["qk_head_dim", "head_dim"])?)),
        false => (c.count_or(&["qk_rope_head_dim"], 64)?, None),
    };
    let key_dim = match whole {
        Some(whole) if whole > rope_dim => whole - rope_dim,
        Some(whole) => return Err(c.wrong("rotary_dim", format!("rotates {rope_dim} of a head's {whole} elements"))),
        None => c.count_or(&["qk_nope_head_dim"], 128)?,
    };
    let value_dim = c.count_or(&["v_head_dim", "value_head_dim"], 128)?;
    // Null means queries without a latent; GGUF says so by saying nothing.
    let query_rank = match c.mentions("q_lora_rank") || c.is_gguf() {
        true => c.count_opt(&["q_lora_rank"])?,
        false => Some(1536),
    };
    let rank = c.count_or(&["kv_lora_rank"], 512)?;
    let all = [s.heads, key_dim.saturating_add(value_dim), rank].into_iter();
    c.holds("num_attention_heads", all.fold(1u128, |n, dim| n.saturating_mul(dim as u128)))?;
    // The reference gives these norms an epsilon of their own.
    let norm = Norm::Rms { eps: if c.is_gguf() { c.epsilon(&["rms_norm_eps"], 1e-6)? } else { 1e-6 } };
    let (position, temperature) = position(c, rope_dim, pairing)?;
    let scale = (((key_dim + rope_dim) as f64).powf(-0.5) * temperature * temperature) as f32;
    let bias = c.flag("attention_bias", false)?;
    Ok(Attention {
        kv_heads: 1,
        key_dim: rank + rope_dim,
        value_dim: rank,
        qkv_bias: QkvBias { query: bias && query_rank.is_some(), key: bias, value: false },
        out_bias: bias,
        scale,
        latent: Some(Latent { rank, query_rank, key_dim, rope_dim, value_dim, norm }),
        ..attention(s, position)
    })
}

/// The rotation, and what multiplies queries and keys beside it: YaRN's temperature by `mscale_all_dim`.
fn position(c: &Reader, rope_dim: usize, pairing: Pairing) -> Result<(Position, f64), Error> {
    let mut rope = rope(c, rope_dim, RopeDefaults { pairing, ..RopeDefaults::base(10000.0) })?;
    let settings = match c.object("rope_parameters")? {
        Some(settings) => Some(settings),
        None => c.object("rope_scaling")?,
    };
    let Some(settings) = settings else { return Ok((Position::Rope(rope), 1.0)) };
    let r = c.nested(&settings);
    // GGUF's number is a tenth of config.json's, and the rotation itself then has no temperature.
    let all = match c.is_gguf() {
        true => r.number_or("yarn_log_multiplier", 0.0)? * 10.0,
        false => r.number_or("mscale_all_dim", 0.0)?,
    };
    if let (RopeScaling::Yarn { attention_factor, .. }, true) = (&mut rope.scaling, c.is_gguf() && all != 0.0) {
        *attention_factor = 1.0;
    }
    let factor = r.number_or("factor", 1.0)?;
    let scaled = rope.scaling != RopeScaling::None && all != 0.0 && factor > 1.0;
    let temperature = if scaled { 0.1 * all * factor.ln() + 1.0 } else { 1.0 };
    Ok((Position::Rope(rope), temperature))
}
