//! Rotary settings, in both dialects of config.json and as GGUF's metadata gives them.
//!
//! Version 4 writes `rope_theta` and `rope_scaling` (its kind under `type` or `rope_type`); version 5 writes one
//! `rope_parameters` object, or one per kind of layer.

use crate::error::Error;
use crate::reader::Reader;
use attend_format::Config;
use attend_kernels::{DType, dequantize, rope_frequencies};
use attend_nn::spec::{Pairing, Rope, RopeScaling};

/// What an architecture assumes where the configuration is silent.
#[derive(Debug, Clone, Copy)]
pub struct RopeDefaults {
    pub base: f64,
    /// The part of the head that is rotated.
    pub partial: f64,
    pub pairing: Pairing,
    /// The architecture has one base, which its configurations do not mention.
    pub fixed: bool,
}

impl RopeDefaults {
    /// The whole head in half-split pairs.
    pub const fn base(base: f64) -> RopeDefaults {
        RopeDefaults { base, partial: 1.0, pairing: Pairing::Halves, fixed: false }
    }

    /// The first `dim` elements of a head of `head_dim`, with a base that configurations do not mention.
    pub fn fixed(base: f64, dim: usize, head_dim: usize) -> RopeDefaults {
        // The half keeps the product with the head's width above the whole number that is meant.
        let partial = if dim == head_dim { 1.0 } else { (dim as f64 + 0.5) / head_dim as f64 };
        RopeDefaults { partial, fixed: true, ..RopeDefaults::base(base) }
    }
}

/// The rotary embedding of every layer.
pub fn rope(c: &Reader, head_dim: usize, defaults: RopeDefaults) -> Result<Rope, Error> {
    rope_for(c, None, head_dim, defaults)
}

/// The rotary embedding of the layers of one kind (`full_attention`, `sliding_attention`), where they differ.
pub fn rope_for(c: &Reader, kind: Option<&str>, head_dim: usize, defaults: RopeDefaults) -> Result<Rope, Error> {
    let parameters = match c.object("rope_parameters")? {
        Some(all) => match kind.map(|kind| all.object(kind)).transpose()?.flatten() {
            Some(of_kind) => Some(of_kind),
            None => Some(all),
        },
        None => c.object("rope_scaling")?,
    };
    let nested = parameters.as_ref().map(|parameters| c.nested(parameters));
    let base = base(c, nested.as_ref(), kind, defaults)?;
    let dim = rotated(c, nested.as_ref(), head_dim, defaults.partial)?;
    let scaling = match &nested {
        Some(nested) => scaling(c, nested, dim)?,
        None => RopeScaling::None,
    };
    Ok(Rope { base, dim, pairing: defaults.pairing, scaling: from_tensors(c, dim, scaling)? })
}

fn base(c: &Reader, nested: Option<&Reader>, kind: Option<&str>, defaults: RopeDefaults) -> Result<f64, Error> {
    if let Some(base) = nested.map(|nested| nested.positive_opt("rope_theta")).transpose()?.flatten() {
        return Ok(base);
    }
    let keys: &[&str] = match kind {
        Some("sliding_attention") => &["local_rope_theta", "rope_local_base_freq"],
        _ => &["global_rope_theta", "rope_theta", "rotary_emb_base"],
    };
    for key in keys {
        if let Some(base) = c.positive_opt(key)? {
            return Ok(base);
        }
    }
    if !defaults.fixed {
        c.notice(format!("rope_theta is not given; this architecture's default, {}, is used", defaults.base));
    }
    Ok(defaults.base)
}

/// The rotated width of a head.
fn rotated(c: &Reader, nested: Option<&Reader>, head_dim: usize, default: f64) -> Result<usize, Error> {
    let nested = nested.map(|nested| nested.positive_opt("partial_rotary_factor")).transpose()?.flatten();
    let (key, dim) = match c.count_opt(&["rotary_dim"])? {
        Some(dim) => ("rotary_dim", dim),
        None => {
            let mut found = ("partial_rotary_factor", nested.unwrap_or(default));
            for key in ["partial_rotary_factor", "rotary_pct", "rotary_emb_fraction"] {
                if let (None, Some(part)) = (nested, c.positive_opt(key)?) {
                    found = (key, part);
                    break;
                }
            }
            (found.0, (head_dim as f64 * found.1) as usize)
        }
    };
    if dim < 2 || dim > head_dim || dim % 2 != 0 {
        return Err(c.wrong(
            key,
            format!("rotates {dim} of a head's {head_dim} elements; an even number from 2 to {head_dim} is needed"),
        ));
    }
    Ok(dim)
}

fn scaling(c: &Reader, r: &Reader, dim: usize) -> Result<RopeScaling, Error> {
    let key = if r.value("rope_type").is_some() { "rope_type" } else { "type" };
    let context = || c.count(&["max_position_embeddings", "n_positions"]);
    let original = || match r.count_opt(&["original_max_position_embeddings"])? {
        Some(original) => Ok(original),
        None => c.count_opt(&["original_max_position_embeddings"])?.map_or_else(context, Ok),
    };
    let need = |field: &str| r.positive_opt(field)?.ok_or_else(|| r.wrong(field, "is missing from the rope settings"));
    Ok(match r.text(key)?.unwrap_or("default") {
        "default" | "none" => RopeScaling::None,
        "linear" => RopeScaling::Linear { factor: need("factor")? },
        "dynamic" => RopeScaling::Dynamic { factor: need("factor")?, original: original()? },
        "llama3" => {
            let (low, high) = (need("low_freq_factor")?, need("high_freq_factor")?);
            if high <= low {
                return Err(
                    r.wrong("high_freq_factor", format!("must be greater than low_freq_factor, {low}; found {high}"))
                );
            }
            RopeScaling::Llama3 {
                factor: need("factor")?,
                low_freq_factor: low,
                high_freq_factor: high,
                original: original()?,
            }
        }
        "yarn" => yarn(c, r, original()?)?,
        "longrope" | "su" => longrope(c, r, dim, original()?)?,
        other => return Err(r.wrong(key, format!("rope scaling `{other}` is not supported"))),
    })
}

/// Peng et al. 2023: the temperature is `0.1 ln(factor) + 1` unless the configuration says otherwise.
fn yarn(c: &Reader, r: &Reader, original: usize) -> Result<RopeScaling, Error> {
    let factor = match r.positive_opt("factor")? {
        Some(factor) => factor,
        None => c.count(&["max_position_embeddings"])? as f64 / original as f64,
    };
    let temperature = |scale: f64| if factor <= 1.0 { 1.0 } else { 0.1 * scale * factor.ln() + 1.0 };
    let attention_factor =
        match (r.positive_opt("attention_factor")?, r.number_opt("mscale")?, r.number_opt("mscale_all_dim")?) {
            // GGUF's factor comes on top of the usual temperature, config.json's replaces it.
            (Some(given), ..) if c.is_gguf() => given * temperature(1.0),
            (Some(given), ..) => given,
            (None, Some(scale), Some(all)) if scale != 0.0 && all != 0.0 => temperature(scale) / temperature(all),
            (None, ..) => temperature(1.0),
        };
    let (beta_fast, beta_slow) = (r.positive_or("beta_fast", 32.0)?, r.positive_or("beta_slow", 1.0)?);
    Ok(RopeScaling::Yarn {
        factor,
        beta_fast,
        beta_slow,
        original,
        truncate: r.flag("truncate", true)?,
        attention_factor,
    })
}

/// Ding et al. 2024: two lists of divisors, and a temperature that holds in both regimes.
fn longrope(c: &Reader, r: &Reader, dim: usize, original: usize) -> Result<RopeScaling, Error> {
    for key in ["short_mscale", "long_mscale"] {
        r.only(key, &[], "a temperature for each regime is another scheme")?;
    }
    let list = |key: &str, tensor: &str| {
        let list = if c.is_gguf() { small_vector(c, tensor)? } else { r.numbers(key)? };
        let list = list.ok_or_else(|| r.wrong(key, "is missing from the rope settings"))?;
        if list.len() != dim / 2 || list.iter().any(|x| *x <= 0.0) {
            return Err(r.wrong(key, format!("must hold {} numbers greater than 0, found {}", dim / 2, list.len())));
        }
        Ok(list)
    };
    let (short, long) = (list("short_factor", SHORT)?, list("long_factor", LONG)?);
    let ratio = match c.count_opt(&["max_position_embeddings"])? {
        Some(longest) => longest as f64 / original as f64,
        None => r.positive_or("factor", 1.0)?,
    };
    let usual = if ratio <= 1.0 || original < 2 { 1.0 } else { (1.0 + ratio.ln() / (original as f64).ln()).sqrt() };
    let attention_factor = r.positive_opt("attention_factor")?.unwrap_or(usual);
    Ok(RopeScaling::Long { short, long, original, attention_factor })
}

const SHORT: &str = "rope_factors_short.weight";
const LONG: &str = "rope_factors_long.weight";
const DIVISORS: &str = "rope_freqs.weight";

/// GGUF may hold the scaling as tensors of divisors; they say more than the metadata beside them.
fn from_tensors(c: &Reader, dim: usize, scaling: RopeScaling) -> Result<RopeScaling, Error> {
    if !c.is_gguf() || scaling != RopeScaling::None {
        return Ok(scaling);
    }
    if c.has_tensor(SHORT) && c.has_tensor(LONG) {
        // Converters write the tensors and their two numbers, and no name for the scheme.
        let settings = divisors_settings(c)?;
        let original = c.nested(&settings).count_opt(&["original_max_position_embeddings"])?;
        let original = original.map_or_else(|| c.count(&["max_position_embeddings"]), Ok)?;
        return longrope(c, &c.nested(&settings), dim, original);
    }
    let Some(divisors) = small_vector(c, DIVISORS)? else { return Ok(scaling) };
    if divisors.len() != dim / 2 || divisors.iter().any(|x| *x <= 0.0) {
        let problem = format!("must hold {} numbers greater than 0, found {}", dim / 2, divisors.len());
        return Err(c.wrong(DIVISORS, problem));
    }
    Ok(RopeScaling::Divisors { divisors })
}

/// The frequencies that a file keeps as a buffer whose name ends so, where they are not those of the base: the reference
/// computes with what was saved, in whatever type, so that it is a part of the model.
pub fn kept_frequencies(c: &Reader, ending: &str, rope: Rope) -> Result<Rope, Error> {
    let Some(name) = c.checkpoint.tensors().keys().find(|name| name.ends_with(ending)) else { return Ok(rope) };
    let kept = small_vector(c, name)?.unwrap_or_default();
    if kept.len() != rope.dim / 2 || kept.iter().any(|x| *x <= 0.0) {
        let problem = format!("must hold {} numbers greater than 0, found {}", rope.dim / 2, kept.len());
        return Err(c.wrong(name, problem));
    }
    let (plain, _) = rope_frequencies(rope.base, rope.dim, &rope.scaling, 0);
    if kept == plain {
        return Ok(rope);
    }
    c.notice(format!("rotary frequencies are those that the file keeps in {name}, not the exact ones"));
    let divisors = divisors_for(&rope, &kept);
    Ok(Rope { scaling: RopeScaling::Divisors { divisors }, ..rope })
}

/// What the base's frequencies must be divided by to be these: rounded so that dividing gives the very same frequency,
/// where that is possible.
pub(crate) fn divisors_for(rope: &Rope, frequencies: &[f32]) -> Vec<f32> {
    let (plain, _) = rope_frequencies(rope.base, rope.dim, &RopeScaling::None, 0);
    let near = frequencies.iter().zip(&plain).enumerate().map(|(pair, (&wanted, &plain))| {
        let divisor = plain / wanted;
        let hits = |divisor: &f32| {
            let mut all = vec![1.0; pair + 1];
            if let Some(slot) = all.get_mut(pair) {
                *slot = *divisor;
            }
            let scaling = RopeScaling::Divisors { divisors: all };
            rope_frequencies(rope.base, rope.dim, &scaling, 0).0.get(pair) == Some(&wanted)
        };
        let candidates = [divisor, divisor.next_up(), divisor.next_down()];
        candidates.into_iter().find(hits).unwrap_or(divisor)
    });
    near.collect()
}

/// The numbers beside the tensors of divisors, as `rope_scaling` would hold them.
fn divisors_settings(c: &Reader) -> Result<Config, Error> {
    let mut settings = serde_json::Map::new();
    if let Some(metadata) = c.checkpoint.gguf() {
        let architecture = metadata.architecture()?;
        let key = |name: &str| format!("{architecture}.rope.scaling.{name}");
        if let Some(original) = metadata.u64(&key("original_context_length"))? {
            settings.insert("original_max_position_embeddings".into(), original.into());
        }
        if let Some(factor) = metadata.f64(&key("attn_factor"))? {
            settings.insert("attention_factor".into(), factor.into());
        }
    }
    Ok(Config::from_map(c.config().file(), settings))
}

/// A short vector of floats of the file, or `None` where the file has none of that name.
fn small_vector(c: &Reader, name: &str) -> Result<Option<Vec<f32>>, Error> {
    let Some(tensor) = c.checkpoint.tensor(name) else { return Ok(None) };
    let count = tensor.shape.iter().product::<usize>();
    let bytes = match tensor.dtype {
        DType::F32 | DType::F16 | DType::BF16 if count <= 1 << 16 => tensor.dtype.bytes(count),
        _ => None,
    };
    let wrong =
        || c.wrong(name, format!("must be a short vector of floats, found {} {:?}", tensor.dtype, tensor.shape));
    let mut bytes = vec![0; bytes.ok_or_else(wrong)?];
    c.checkpoint.read_at(name, 0, &mut bytes)?;
    let mut values = vec![0.0; count];
    dequantize(tensor.dtype, &bytes, &mut values).map_err(|_| wrong())?;
    if values.iter().any(|x| !x.is_finite()) {
        return Err(c.wrong(name, "holds a value that is not finite"));
    }
    Ok(Some(values))
}
