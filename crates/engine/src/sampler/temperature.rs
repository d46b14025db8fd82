//! Temperature, fixed and dynamic.

use super::{History, LogitsProcessor, entropy, probabilities};

/// `logits / temperature`. Needs `temperature > 0`; greedy choice is not a temperature.
#[derive(Debug, Clone, Copy)]
pub struct Temperature(pub f32);

impl LogitsProcessor for Temperature {
    fn process(&self, _: &History<'_>, logits: &mut [f32]) {
        for logit in logits {
            *logit /= self.0;
        }
    }
}

/// Temperature that grows with the row's entropy `h` among its `n` remaining tokens:
/// `low + (high - low) * (h / ln n)^exponent`, with `low = max(0, temperature - range)` and `high = temperature + range`
/// (the "entropy" form of dynamic temperature by kalomaze, 2023, as llama.cpp has it).
#[derive(Debug, Clone, Copy)]
pub struct DynamicTemperature {
    pub temperature: f32,
    pub range: f32,
    pub exponent: f32,
}

impl LogitsProcessor for DynamicTemperature {
    fn process(&self, history: &History<'_>, logits: &mut [f32]) {
        let left = logits.iter().filter(|&&logit| logit > f32::NEG_INFINITY).count();
        if left < 2 {
            return;
        }
        let share = (entropy(&probabilities(logits)) / (left as f64).ln()).clamp(0.0, 1.0);
        let low = f64::from((self.temperature - self.range).max(0.0));
        let high = f64::from(self.temperature + self.range);
        let temperature = low + (high - low) * share.powf(f64::from(self.exponent));
        // A row without doubt may ask for temperature 0; the smallest positive one keeps the division finite in spirit:
        // differences become huge, and the subtraction of the highest logit keeps the highest at 0.
        let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        for logit in logits.iter_mut() {
            *logit -= highest;
        }
        Temperature((temperature as f32).max(1e-6)).process(history, logits);
    }
}

#[cfg(test)]
mod tests {
    use super::super::chain::tests::process;
    use super::*;

    #[test]
    fn dynamic_temperature_spans_its_range() {
        let dynamic = DynamicTemperature { temperature: 1.0, range: 0.5, exponent: 1.0 };
        // Uniform: all the entropy there can be, the highest temperature, which changes nothing in a uniform row.
        assert_eq!(process(&dynamic, &[2.0, 2.0]), [0.0, 0.0]);
        // Two tokens at probabilities q and 1 - q: h / ln 2 known in closed form.
        let row = [3.0f32, 0.0];
        let q = 1.0 / (1.0 + (-3.0f64).exp());
        let share = -(q * q.ln() + (1.0 - q) * (1.0 - q).ln()) / 2f64.ln();
        let expected = -3.0 / (0.5 + share);
        assert!((f64::from(process(&dynamic, &row)[1]) - expected).abs() < 1e-5);
        // Forbidden tokens do not count among the remaining ones.
        let masked = process(&dynamic, &[3.0, f32::NEG_INFINITY, 0.0]);
        assert!((f64::from(masked[2]) - expected).abs() < 1e-5 && masked[1] == f32::NEG_INFINITY);
    }

    #[test]
    fn a_sure_row_with_a_wide_range_stays_finite() {
        let dynamic = DynamicTemperature { temperature: 1.0, range: 2.0, exponent: 1.0 };
        let row = process(&dynamic, &[500.0, 0.0, -500.0]);
        assert_eq!(row[0], 0.0);
        assert!(row.iter().all(|x| !x.is_nan()));
    }
}
