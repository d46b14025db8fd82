//! Softmax and its logarithm over one row.

use crate::arch::{Arch, for_each_arch};
use crate::isa::{Isa, machine};
use crate::vecmath::exp;

/// `row[i] = exp(row[i]) / sum exp(row)`, whatever the size of the entries.
///
/// A row of `-inf` alone becomes 0: nothing is allowed, so nothing has weight. NaN or `+inf` anywhere gives NaN.
pub fn softmax(row: &mut [f32]) {
    softmax_on(machine().isa, row);
}

/// [`softmax`] on a given instruction set.
pub(crate) fn softmax_on(isa: Isa, row: &mut [f32]) {
    let max = maximum(row);
    if max == f32::NEG_INFINITY {
        row.fill(0.0);
        return;
    }
    let mut sum = 0.0;
    weights(isa, row, max, &mut sum);
    let scale = (1.0 / sum) as f32;
    for x in row {
        *x *= scale;
    }
}

/// `row[i] -= log sum exp(row)`. A row of `-inf` alone stays as it is.
pub fn log_softmax(row: &mut [f32]) {
    let max = maximum(row);
    if max == f32::NEG_INFINITY {
        return;
    }
    // Subtracting the maximum first keeps the small differences of large entries.
    let mut sum = 0.0;
    weight_sum(machine().isa, row, max, &mut sum);
    let log_sum = sum.ln();
    for x in row {
        *x = (f64::from(*x - max) - log_sum) as f32;
    }
}

/// `log sum exp(row)`; `-inf` for an empty row or one of `-inf` alone, `+inf` where an entry is.
pub fn log_sum_exp(row: &[f32]) -> f32 {
    let max = maximum(row);
    if max.is_infinite() {
        return max;
    }
    let mut sum = 0.0;
    weight_sum(machine().isa, row, max, &mut sum);
    (f64::from(max) + sum.ln()) as f32
}

/// The largest entry; a NaN anywhere makes it NaN.
fn maximum(row: &[f32]) -> f32 {
    let mut max = f32::NEG_INFINITY;
    let mut poisoned = false;
    for &x in row {
        max = if x > max { x } else { max };
        poisoned |= x.is_nan();
    }
    if poisoned { f32::NAN } else { max }
}

for_each_arch! {
    /// Writes `exp(x - max)` over each entry; `sum` receives their sum.
    fn weights(row: &mut [f32], max: f32, sum: &mut f64) = weights_body
}

for_each_arch! {
    /// `sum` receives the sum of `exp(x - max)`.
    fn weight_sum(row: &[f32], max: f32, sum: &mut f64) = weight_sum_body
}

/// Sums run in this many lanes, whatever the instruction set.
const LANES: usize = 16;

#[inline(always)]
fn weights_body<A: Arch>(_: A, row: &mut [f32], max: f32, sum: &mut f64) {
    let mut sums = [0.0f64; LANES];
    let (chunks, rest) = row.as_chunks_mut::<LANES>();
    for chunk in chunks {
        for (x, sum) in chunk.iter_mut().zip(&mut sums) {
            *x = exp::<A>(*x - max);
            *sum += f64::from(*x);
        }
    }
    for (x, sum) in rest.iter_mut().zip(&mut sums) {
        *x = exp::<A>(*x - max);
        *sum += f64::from(*x);
    }
    *sum = sums.iter().sum();
}

#[inline(always)]
fn weight_sum_body<A: Arch>(_: A, row: &[f32], max: f32, sum: &mut f64) {
    let mut sums = [0.0f64; LANES];
    let (chunks, rest) = row.as_chunks::<LANES>();
    for chunk in chunks {
        for (&x, sum) in chunk.iter().zip(&mut sums) {
            *sum += f64::from(exp::<A>(x - max));
        }
    }
    for (&x, sum) in rest.iter().zip(&mut sums) {
        *sum += f64::from(exp::<A>(x - max));
    }
    *sum = sums.iter().sum();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::available;
    use attend_testkit::golden::{Random, assert_close};

    #[test]
    fn every_instruction_set_agrees_with_float64() {
        for len in [1, 2, 15, 16, 17, 1000] {
            let row: Vec<f32> = Random(len as u64).normals(len).iter().map(|x| 20.0 * x).collect();
            // The difference from the largest entry is rounded to float32, as in every float32 softmax.
            let max = maximum(&row);
            let weights: Vec<f64> = row.iter().map(|&x| f64::from(x - max).exp()).collect();
            let sum: f64 = weights.iter().sum();
            let want: Vec<f32> = weights.iter().map(|w| (w / sum) as f32).collect();
            for isa in available() {
                let mut got = row.clone();
                softmax_on(isa, &mut got);
                assert_close(&format!("{isa} {len}"), &got, &want, 1e-38, 5e-7);
            }
        }
    }
}
