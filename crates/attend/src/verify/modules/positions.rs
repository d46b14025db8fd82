//! Sinusoids, rotary frequencies and rotations, ALiBi, relative buckets.

use super::super::compare::{Comparison, Tolerance};
use super::Module;
use anyhow::{Context, Result, bail};
use attend_kernels::{
    Pairing, RopeRows, RopeScaling, SinusoidLayout, SlopeOrder, alibi_bias, alibi_slopes, log_bucket, relative_bucket,
    rope_frequencies as frequencies, rope_tables, rotate, rotate_back, sinusoidal as sinusoid,
};
use serde_json::Value;

pub fn sinusoidal(module: &Module, comparison: &mut Comparison) -> Result<()> {
    for name in module.names() {
        let expected = module.floats(&name)?;
        let (rows, width) = (expected.shape[0], expected.shape[1]);
        let layout = match name.split('.').next() {
            Some("vaswani") => SinusoidLayout::Interleaved,
            Some("marian") => SinusoidLayout::Halves,
            Some("whisper" | "fairseq") => SinusoidLayout::HalvesInclusive,
            _ => {
                comparison.fail(&name, "the layout is not known");
                continue;
            }
        };
        let mut found = vec![0.0; rows * width];
        for (position, row) in found.chunks_exact_mut(width).enumerate() {
            sinusoid(position, width, layout, row);
        }
        if name.starts_with("fairseq") {
            // The padding token's row is blank in that table; a walk never reads it.
            let blank = expected.values.chunks_exact(width).position(|row| row.iter().all(|value| *value == 0.0));
            if let Some(blank) = blank {
                found[blank * width..(blank + 1) * width].fill(0.0);
            }
        }
        module.compare(&name, &found, comparison)?;
    }
    Ok(())
}

fn number(value: &Value, key: &str) -> Result<f64> {
    value.get(key).and_then(Value::as_f64).with_context(|| format!("{key} is missing or not a number"))
}

fn list(value: &Value, key: &str) -> Result<Vec<f32>> {
    let list = value.get(key).and_then(Value::as_array).with_context(|| format!("{key} is missing"))?;
    Ok(list.iter().filter_map(Value::as_f64).map(|value| value as f32).collect())
}

fn scaling(rope: &Value, max_positions: usize, attention_factor: f64) -> Result<RopeScaling> {
    let original = || {
        Ok::<_, anyhow::Error>(number(rope, "original_max_position_embeddings").unwrap_or(max_positions as f64) as usize)
    };
    let or = |key: &str, default: f64| rope.get(key).and_then(Value::as_f64).unwrap_or(default);
    Ok(match rope.get("rope_type").and_then(Value::as_str) {
        Some("default") | None => RopeScaling::None,
        Some("linear") => RopeScaling::Linear { factor: number(rope, "factor")? },
        Some("dynamic") => RopeScaling::Dynamic { factor: number(rope, "factor")?, original: max_positions },
        Some("llama3") => RopeScaling::Llama3 {
            factor: number(rope, "factor")?,
            low_freq_factor: number(rope, "low_freq_factor")?,
            high_freq_factor: number(rope, "high_freq_factor")?,
            original: original()?,
        },
        Some("yarn") => RopeScaling::Yarn {
            factor: number(rope, "factor")?,
            beta_fast: or("beta_fast", 32.0),
            beta_slow: or("beta_slow", 1.0),
            original: original()?,
            truncate: rope.get("truncate").and_then(Value::as_bool).unwrap_or(true),
            attention_factor,
        },
        Some("longrope") => RopeScaling::Long {
            short: list(rope, "short_factor")?,
            long: list(rope, "long_factor")?,
            original: original()?,
            attention_factor,
        },
        Some(other) => bail!("rope_type {other} is not known"),
    })
}

pub fn rope_frequencies(module: &Module, comparison: &mut Comparison) -> Result<()> {
    let positions: Vec<u32> = module.integers("positions")?.values.iter().map(|position| *position as u32).collect();
    let sets = module.setting("/sets")?.as_object().context("sets is not an object")?;
    for (name, set) in sets {
        let lengths = set.get("lengths").and_then(Value::as_array).with_context(|| format!("{name}: no lengths"))?;
        let rope = set.get("rope").with_context(|| format!("{name}: no rope"))?;
        let dim = number(set, "head_dim")? as usize;
        let dim = (dim as f64 * rope.get("partial_rotary_factor").and_then(Value::as_f64).unwrap_or(1.0)) as usize;
        let max_positions = number(set, "max_position_embeddings")? as usize;
        for (index, length) in lengths.iter().enumerate() {
            let length = length.as_u64().with_context(|| format!("{name}: a length"))? as usize;
            let factors = set.get("attention_factor").with_context(|| format!("{name}: no attention_factor"))?;
            let factor = number(factors, &length.to_string())?;
            let scaling = scaling(rope, max_positions, factor)?;
            let (found, found_factor) = frequencies(number(rope, "rope_theta")?, dim, &scaling, length);
            // Frequencies are small, so that only the relative error says something.
            let tight = Tolerance { absolute: 0.0, relative: 1e-5 };
            module.compare_within(&format!("{name}.len{length}.inv_freq"), &found, tight, comparison)?;
            comparison.number(&format!("{name}.len{length}.attention_factor"), f64::from(found_factor), factor, tight);
            if index + 1 == lengths.len() {
                tables(module, name, &found, found_factor, &positions, comparison)?;
            }
        }
    }
    Ok(())
}

/// Cosine and sine, row by row: the last bits of a frequency are worth a position's times as much in its angle.
fn tables(
    module: &Module,
    name: &str,
    found: &[f32],
    factor: f32,
    positions: &[u32],
    comparison: &mut Comparison,
) -> Result<()> {
    let (cos, sin) = rope_tables(found, factor, positions);
    for (part, values) in [("cos", cos), ("sin", sin)] {
        let expected = module.floats(&format!("{name}.{part}"))?.values;
        let rows = values.chunks_exact(found.len()).zip(expected.chunks_exact(found.len()));
        for ((found, expected), position) in rows.zip(positions) {
            let angle = f64::from(*position) * 2.0 * f64::from(f32::EPSILON);
            let tolerance = Tolerance::absolute(module.tolerance.absolute.max(angle));
            comparison.values(&format!("{name}.{part} at {position}"), found, expected, tolerance);
        }
    }
    Ok(())
}

pub fn rope_apply(module: &Module, comparison: &mut Comparison) -> Result<()> {
    let positions: Vec<u32> = module.integers("position_ids")?.values.iter().map(|position| *position as u32).collect();
    let theta = module.setting("/theta")?.as_f64().context("theta is not a number")?;
    let apply = |input: &str, pairing: Pairing, rotary: usize, back: bool| -> Result<Vec<f32>> {
        let x = module.floats(input)?;
        let [batch, heads, tokens, head_dim] = x.shape[..] else { bail!("{input} does not have four dimensions") };
        let (frequencies, factor) = frequencies(theta, rotary, &RopeScaling::None, 0);
        let (cos, sin) = rope_tables(&frequencies, factor, &positions);
        let rows = RopeRows { head_dim, rotary_dim: rotary, pairing, cos: &cos, sin: &sin };
        let mut values = swap(&x.values, batch, heads, tokens, head_dim);
        if back {
            rotate_back(&mut values, heads, &rows)
        } else {
            rotate(&mut values, heads, &rows)
        }
        Ok(swap(&values, batch, tokens, heads, head_dim))
    };
    let dim = module.floats("q")?.shape[3];
    for name in module.names() {
        let Some((kind, tensor)) = name.split_once('.') else { continue };
        let (pairing, rotary) = match kind {
            "half" => (Pairing::Halves, dim),
            "partial_half" => (Pairing::Halves, dim / 2),
            "interleaved" => (Pairing::Interleaved, dim),
            _ => continue,
        };
        let found = match tensor {
            "q" | "k" => apply(tensor, pairing, rotary, false)?,
            "grad_q" | "grad_k" => apply(&format!("{kind}.grad_out"), pairing, rotary, true)?,
            _ => continue,
        };
        module.compare(&name, &found, comparison)?;
    }
    Ok(())
}

/// Exchanges the second and third of four dimensions.
fn swap(x: &[f32], batch: usize, second: usize, third: usize, inner: usize) -> Vec<f32> {
    let mut out = vec![0.0; x.len()];
    for b in 0..batch {
        for i in 0..second {
            for j in 0..third {
                let (from, to) = (((b * second + i) * third + j) * inner, ((b * third + j) * second + i) * inner);
                out[to..to + inner].copy_from_slice(&x[from..from + inner]);
            }
        }
    }
    out
}

pub fn alibi(module: &Module, comparison: &mut Comparison) -> Result<()> {
    let mask = module.integers("mask")?;
    let order = |kind: &str| if kind == "mpt" { SlopeOrder::OddFirst } else { SlopeOrder::LowerFirst };
    for name in module.names() {
        let Some((kind, what)) = name.split_once('.') else { continue };
        if let Ok(heads) = what.parse() {
            module.compare(&name, &alibi_slopes(heads, order(kind), 8.0), comparison)?;
            continue;
        }
        let Some(heads) = Module::number_after(what, "tensor_") else { continue };
        let slopes = alibi_slopes(heads as usize, order(kind), 8.0);
        let found: Vec<f32> = if kind == "mpt" {
            let keys = module.floats(&name)?.values.len() / heads as usize;
            let bias = |slope: f32| (0..keys).map(move |key| alibi_bias(slope, key as f32 - (keys - 1) as f32, false));
            slopes.into_iter().flat_map(bias).collect()
        } else {
            let rows = mask.values.chunks_exact(mask.shape[1]).map(positions_of_mask);
            let bias = |slope: f32, position: &i64| alibi_bias(slope, *position as f32, kind == "falcon");
            rows.flat_map(|row| {
                slopes
                    .iter()
                    .flat_map(|slope| row.iter().map(|position| bias(*slope, position)).collect::<Vec<_>>())
                    .collect::<Vec<_>>()
            })
            .collect()
        };
        module.compare(&name, &found, comparison)?;
    }
    Ok(())
}

/// The positions that generation uses: the count of real tokens so far, 0 at padding.
fn positions_of_mask(mask: &[i64]) -> Vec<i64> {
    let mut count = 0;
    let next = |real: &i64| {
        count += real;
        (count - 1) * real
    };
    mask.iter().map(next).collect()
}

pub fn relative_buckets(module: &Module, comparison: &mut Comparison) -> Result<()> {
    let distances = module.integers("relative_position")?.values;
    for name in module.names() {
        let mut parts = name.split('.');
        let kind = parts.next().unwrap_or_default();
        let buckets = Module::number_after(&name, "buckets").map(|buckets| buckets as usize);
        let (Some(buckets), true) = (buckets, name != "relative_position") else { continue };
        let far = Module::number_after(&name, "dist").or(Module::number_after(&name, "max")).unwrap_or(128.0) as usize;
        let found: Vec<i64> = match kind {
            "t5" | "mpnet" => {
                let both = kind == "mpnet" || name.ends_with("bidirectional");
                distances.iter().map(|distance| relative_bucket(*distance, buckets, far, both) as i64).collect()
            }
            "deberta_v2" => distances.iter().map(|distance| log_bucket(*distance, buckets, far)).collect(),
            _ => continue,
        };
        comparison.exact(&name, &found, &module.integers(&name)?.values);
    }
    Ok(())
}
