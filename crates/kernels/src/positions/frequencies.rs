//! Rotary frequencies under every scaling, and the tables of cosines and sines made from them.

use std::f64::consts::PI;

/// What is done to the rotary frequencies to reach beyond the trained length.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum RopeScaling {
    None,
    /// Chen et al. 2023: positions divided by `factor`.
    Linear {
        factor: f64,
    },
    /// NTK-aware base that grows with the sequence's length beyond `original`.
    Dynamic {
        factor: f64,
        original: usize,
    },
    /// Llama 3.1: low frequencies divided by `factor`, high ones kept, a linear ramp between.
    Llama3 {
        factor: f64,
        low_freq_factor: f64,
        high_freq_factor: f64,
        original: usize,
    },
    /// Peng et al. 2023. `attention_factor` multiplies cosine and sine.
    Yarn {
        factor: f64,
        beta_fast: f64,
        beta_slow: f64,
        original: usize,
        truncate: bool,
        attention_factor: f64,
    },
    /// Ding et al. 2024: a divisor per frequency, `short` up to `original` tokens and `long` beyond.
    Long {
        short: Vec<f32>,
        long: Vec<f32>,
        original: usize,
        attention_factor: f64,
    },
    /// A divisor per frequency read from the file (GGUF's `rope_freqs.weight`).
    Divisors {
        divisors: Vec<f32>,
    },
}

/// The angle per position of each rotated pair, `[dim / 2]`, and the factor for cosines and sines.
///
/// `dim` is the rotated width and `length` the number of positions in use, which only [`RopeScaling::Dynamic`] and
/// [`RopeScaling::Long`] look at. Lists of divisors that are too short count as 1 beyond their end; whoever reads them
/// from a file checks their length.
pub fn rope_frequencies(base: f64, dim: usize, scaling: &RopeScaling, length: usize) -> (Vec<f32>, f32) {
    let plain = |base: f64| -> Vec<f32> { periods(base, dim).iter().map(|period| 1.0 / period).collect() };
    match scaling {
        RopeScaling::None => (plain(base), 1.0),
        RopeScaling::Linear { factor } => {
            let factor = *factor as f32;
            (plain(base).iter().map(|f| f / factor).collect(), 1.0)
        }
        RopeScaling::Dynamic { factor, original } => (plain(dynamic_base(base, dim, *factor, *original, length)), 1.0),
        RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original } => {
            let ramp = Llama3Ramp {
                factor: *factor as f32,
                low: *low_freq_factor as f32,
                high: *high_freq_factor as f32,
                original: *original as f32,
            };
            (plain(base).iter().map(|&f| ramp.apply(f)).collect(), 1.0)
        }
        RopeScaling::Yarn { factor, beta_fast, beta_slow, original, truncate, attention_factor } => {
            let ramp = yarn_range(base, dim, (*beta_fast, *beta_slow), *original, *truncate);
            let frequencies = periods(base, dim).into_iter().enumerate().map(|(i, period)| {
                let (extrapolated, interpolated) = (1.0 / period, 1.0 / (*factor as f32 * period));
                let keep = 1.0 - ((i as f32 - ramp.0) / (ramp.1 - ramp.0)).clamp(0.0, 1.0);
                interpolated * (1.0 - keep) + extrapolated * keep
            });
            (frequencies.collect(), *attention_factor as f32)
        }
        RopeScaling::Long { short, long, original, attention_factor } => {
            let divisors = if length > *original { long } else { short };
            (divided(base, dim, divisors), *attention_factor as f32)
        }
        RopeScaling::Divisors { divisors } => (divided(base, dim, divisors), 1.0),
    }
}

/// Su et al. 2021: `base^(2i/dim)` for each pair, rounded to float32 as the reference does.
fn periods(base: f64, dim: usize) -> Vec<f32> {
    (0..dim / 2)
        .map(|i| {
            let exponent = (2 * i) as f32 / dim as f32;
            base.powf(f64::from(exponent)) as f32
        })
        .collect()
}

fn divided(base: f64, dim: usize, divisors: &[f32]) -> Vec<f32> {
    let divisor = |i: usize| divisors.get(i).copied().unwrap_or(1.0);
    periods(base, dim).iter().enumerate().map(|(i, period)| 1.0 / (divisor(i) * period)).collect()
}

/// `base * (factor * length / original - (factor - 1))^(dim / (dim - 2))`; lengths within `original` keep the base.
fn dynamic_base(base: f64, dim: usize, factor: f64, original: usize, length: usize) -> f64 {
    if length <= original || original == 0 || dim <= 2 {
        return base;
    }
    let stretch = factor * length as f64 / original as f64 - (factor - 1.0);
    base * stretch.powf(dim as f64 / (dim as f64 - 2.0))
}

struct Llama3Ramp {
    factor: f32,
    low: f32,
    high: f32,
    original: f32,
}

impl Llama3Ramp {
    fn apply(&self, frequency: f32) -> f32 {
        let wavelength = (2.0 * PI) as f32 / frequency;
        if wavelength > self.original / self.low {
            frequency / self.factor
        } else if wavelength < self.original / self.high {
            frequency
        } else {
            let keep = (self.original / wavelength - self.low) / (self.high - self.low);
            (1.0 - keep) * frequency / self.factor + keep * frequency
        }
    }
}

/// The pairs between which YaRN's ramp runs: those that turn `beta_fast` and `beta_slow` times in `original` positions.
fn yarn_range(base: f64, dim: usize, betas: (f64, f64), original: usize, truncate: bool) -> (f32, f32) {
    let pair_of = |turns: f64| dim as f64 * (original as f64 / (turns * 2.0 * PI)).ln() / (2.0 * base.ln());
    let (mut low, mut high) = (pair_of(betas.0), pair_of(betas.1));
    if truncate {
        (low, high) = (low.floor(), high.ceil());
    }
    (low, high) = (low.max(0.0), high.min(dim as f64 - 1.0));
    if low == high {
        high += 0.001;
    }
    (low as f32, high as f32)
}

/// Cosines and sines, each `[positions, dim / 2]`: the angle is the float32 product of position and frequency.
pub fn rope_tables(inv_freq: &[f32], factor: f32, positions: &[u32]) -> (Vec<f32>, Vec<f32>) {
    let mut cos = Vec::with_capacity(positions.len() * inv_freq.len());
    let mut sin = Vec::with_capacity(positions.len() * inv_freq.len());
    for &position in positions {
        for &frequency in inv_freq {
            let angle = f64::from(position as f32 * frequency);
            cos.push(angle.cos() as f32 * factor);
            sin.push(angle.sin() as f32 * factor);
        }
    }
    (cos, sin)
}
