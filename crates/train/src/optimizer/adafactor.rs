//! Adafactor (Shazeer and Stern 2018): second moments of a matrix kept as one value a row and one a column.

use super::{Memory, Slot};

/// The step is `g / sqrt(v)`, cut to a root mean square of `clip_threshold`, where `v` is a decaying mean of `g^2`: for
/// a matrix `row x column / mean(row)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Adafactor {
    /// Added to the squared gradient, and the least root mean square that a weight counts as.
    pub eps: (f64, f64),
    pub clip_threshold: f64,
    /// `v` forgets at `1 - t^decay_rate`.
    pub decay_rate: f64,
    /// A mean of past steps is taken in place of the step; `None`: nothing is kept for it.
    pub first_moment: Option<f64>,
    /// Steps are relative to the weight's root mean square.
    pub scale_parameter: bool,
    /// The learning rate is `min(1e-2, 1/sqrt(t))`, whatever rate is given; with `warmup_init` `min(1e-6 t, 1/sqrt(t))`.
    pub relative_step: bool,
    pub warmup_init: bool,
}

impl Default for Adafactor {
    fn default() -> Adafactor {
        Adafactor {
            eps: (1e-30, 1e-3),
            clip_threshold: 1.0,
            decay_rate: -0.8,
            first_moment: None,
            scale_parameter: true,
            relative_step: true,
            warmup_init: false,
        }
    }
}

fn mean_square(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value * value, count + 1.0));
    if count == 0.0 { 0.0 } else { sum / count }
}

impl Adafactor {
    pub(super) fn update(&self, slot: Slot, learning_rate: f64, memory: &mut Memory) {
        let (steps, len) = (memory.steps as f64, slot.gradient.len());
        let rate = self.rate(slot.weight, steps, learning_rate);
        let kept = 1.0 - steps.powf(self.decay_rate);
        let columns = slot.shape.last().copied().unwrap_or(1).max(1);
        let factored = slot.shape.len() >= 2;
        let (rows_len, columns_len) = if factored { (len / columns, columns) } else { (len, 0) };
        let moment_len = if self.first_moment.is_some() { len } else { 0 };
        let Some([rows, column, moments]) = memory.vectors([rows_len, columns_len, moment_len]) else { return };
        let mut step = match factored {
            true => self.factored(slot.gradient, columns, kept, rows, column),
            false => self.plain(slot.gradient, kept, rows),
        };
        let cut = (mean_square(step.iter().copied()).sqrt() / self.clip_threshold).max(1.0);
        step.iter_mut().for_each(|step| *step *= rate / cut);
        if let Some(beta) = self.first_moment {
            for (step, moment) in step.iter_mut().zip(moments) {
                *step = beta * f64::from(*moment) + (1.0 - beta) * *step;
                *moment = *step as f32;
            }
        }
        for (weight, step) in slot.weight.iter_mut().zip(step) {
            let decayed = f64::from(*weight) * (1.0 - slot.weight_decay * rate);
            *weight = (decayed - step) as f32;
        }
    }

    fn rate(&self, weight: &[f32], steps: f64, learning_rate: f64) -> f64 {
        let rate = match self.relative_step {
            false => learning_rate,
            true => (if self.warmup_init { 1e-6 * steps } else { 1e-2 }).min(steps.sqrt().recip()),
        };
        match self.scale_parameter {
            false => rate,
            true => rate * mean_square(weight.iter().map(|w| f64::from(*w))).sqrt().max(self.eps.1),
        }
    }

    /// One second moment an element.
    fn plain(&self, gradient: &[f32], kept: f64, squares: &mut [f32]) -> Vec<f64> {
        let each = |(d, square): (&f32, &mut f32)| {
            let d = f64::from(*d);
            let v = kept * f64::from(*square) + (1.0 - kept) * (d * d + self.eps.0);
            *square = v as f32;
            d / v.sqrt()
        };
        gradient.iter().zip(squares).map(each).collect()
    }

    /// The second moments as a product of one value a row and one a column.
    fn factored(&self, gradient: &[f32], columns: usize, kept: f64, rows: &mut [f32], column: &mut [f32]) -> Vec<f64> {
        let count = rows.len().max(1) as f64;
        let mut by_column = vec![0.0; columns];
        for (values, row) in gradient.chunks_exact(columns).zip(rows.iter_mut()) {
            let mut sum = 0.0;
            for (d, by_column) in values.iter().zip(&mut by_column) {
                let square = f64::from(*d).powi(2) + self.eps.0;
                sum += square;
                *by_column += square;
            }
            *row = (kept * f64::from(*row) + (1.0 - kept) * sum / columns as f64) as f32;
        }
        for (column, sum) in column.iter_mut().zip(by_column) {
            *column = (kept * f64::from(*column) + (1.0 - kept) * sum / count) as f32;
        }
        let mean = rows.iter().map(|row| f64::from(*row)).sum::<f64>() / count;
        let mut step = Vec::with_capacity(gradient.len());
        for (values, row) in gradient.chunks_exact(columns).zip(rows.iter()) {
            let by_row = (f64::from(*row) / mean).sqrt();
            step.extend(values.iter().zip(&*column).map(|(d, v)| f64::from(*d) / (by_row * f64::from(*v).sqrt())));
        }
        step
    }
}
