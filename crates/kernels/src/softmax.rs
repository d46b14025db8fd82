//! Softmax and its logarithm over one row.

use crate::arch::Portable;
use crate::vecmath::exp;

/// The largest entry; a NaN anywhere makes it NaN.
fn maximum(row: &[f32]) -> f32 {
    let mut max = f32::NEG_INFINITY;
    for &x in row {
        if x > max || x.is_nan() {
            max = x;
        }
        if max.is_nan() {
            break;
        }
    }
    max
}

/// `row[i] = exp(row[i]) / sum exp(row)`, whatever the size of the entries.
///
/// A row of `-inf` alone becomes 0: nothing is allowed, so nothing has weight. NaN or `+inf` anywhere gives NaN.
pub fn softmax(row: &mut [f32]) {
    let max = maximum(row);
    if max == f32::NEG_INFINITY {
        row.fill(0.0);
        return;
    }
    let mut sum = 0.0f64;
    for x in row.iter_mut() {
        *x = exp::<Portable>(*x - max);
        sum += f64::from(*x);
    }
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
    let log_sum = log_sum_from(row, max);
    for x in row {
        *x = (f64::from(*x - max) - log_sum) as f32;
    }
}

/// `log sum exp(row)`; `-inf` for an empty row or one of `-inf` alone.
pub fn log_sum_exp(row: &[f32]) -> f32 {
    let max = maximum(row);
    if max == f32::NEG_INFINITY {
        return max;
    }
    (f64::from(max) + log_sum_from(row, max)) as f32
}

fn log_sum_from(row: &[f32], max: f32) -> f64 {
    row.iter().map(|&x| f64::from(exp::<Portable>(x - max))).sum::<f64>().ln()
}
