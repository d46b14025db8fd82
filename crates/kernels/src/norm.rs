//! Root-mean-square norm (Zhang & Sennrich 2019) and layer norm (Ba et al. 2016), forward and backward.
//!
//! Statistics take two passes in float64, so that a row with a large mean or with huge or tiny entries keeps its
//! digits. Rows are independent, and the order of summation depends on the width alone.

/// Rows of `width` with what a norm needs beside them.
#[derive(Debug, Clone, Copy)]
pub struct NormRows<'a> {
    /// `[rows, width]`
    pub x: &'a [f32],
    pub width: usize,
    /// `[width]`; 1 when absent.
    pub weight: Option<&'a [f32]>,
    /// Added to the mean square or variance, inside the square root.
    pub eps: f32,
}

/// `out = x / sqrt(mean(x^2) + eps) * weight`, row by row.
pub fn rms_norm(x: &[f32], width: usize, weight: Option<&[f32]>, eps: f32, out: &mut [f32]) {
    for (x, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
        let inverse = inverse_rms(x, eps);
        write_row(out, weight, None, |i| f64::from(x[i]) * inverse);
    }
}

/// `out = (x - mean) / sqrt(var + eps) * weight + bias`, row by row; the variance is the biased one.
pub fn layer_norm(x: &[f32], width: usize, weight: Option<&[f32]>, bias: Option<&[f32]>, eps: f32, out: &mut [f32]) {
    for (x, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
        let (mean, inverse) = moments(x, eps);
        write_row(out, weight, bias, |i| (f64::from(x[i]) - mean) * inverse);
    }
}

/// Adds to `dx` (`[rows, width]`) and `dweight` (`[width]`) what `dy` (`[rows, width]`), the gradient of [`rms_norm`]'s
/// output, gives them.
///
/// With `n = x / rms` and `g = dy * weight`: `dx = (g - n mean(g n)) / rms`.
pub fn rms_norm_backward(rows: &NormRows, dy: &[f32], dx: &mut [f32], mut dweight: Option<&mut [f32]>) {
    let width = rows.width;
    let chunks = rows.x.chunks_exact(width).zip(dy.chunks_exact(width)).zip(dx.chunks_exact_mut(width));
    for ((x, dy), dx) in chunks {
        let inverse = inverse_rms(x, rows.eps);
        let normed = |i: usize| f64::from(x[i]) * inverse;
        let g = |i: usize| f64::from(dy[i]) * weight_at(rows.weight, i);
        let mean_gn = sum(width, |i| g(i) * normed(i)) / width as f64;
        for (i, dx) in dx.iter_mut().enumerate() {
            *dx += (inverse * (g(i) - normed(i) * mean_gn)) as f32;
        }
        accumulate(&mut dweight, |i| f64::from(dy[i]) * normed(i));
    }
}

/// The gradients of [`layer_norm`], as [`rms_norm_backward`] gives those of the other norm.
///
/// With `n = (x - mean) / sd` and `g = dy * weight`: `dx = (g - mean(g) - n mean(g n)) / sd`.
pub fn layer_norm_backward(
    rows: &NormRows,
    dy: &[f32],
    dx: &mut [f32],
    mut dweight: Option<&mut [f32]>,
    mut dbias: Option<&mut [f32]>,
) {
    let width = rows.width;
    let chunks = rows.x.chunks_exact(width).zip(dy.chunks_exact(width)).zip(dx.chunks_exact_mut(width));
    for ((x, dy), dx) in chunks {
        let (mean, inverse) = moments(x, rows.eps);
        let normed = |i: usize| (f64::from(x[i]) - mean) * inverse;
        let g = |i: usize| f64::from(dy[i]) * weight_at(rows.weight, i);
        let mean_g = sum(width, g) / width as f64;
        let mean_gn = sum(width, |i| g(i) * normed(i)) / width as f64;
        for (i, dx) in dx.iter_mut().enumerate() {
            *dx += (inverse * (g(i) - mean_g - normed(i) * mean_gn)) as f32;
        }
        accumulate(&mut dweight, |i| f64::from(dy[i]) * normed(i));
        accumulate(&mut dbias, |i| f64::from(dy[i]));
    }
}

fn inverse_rms(x: &[f32], eps: f32) -> f64 {
    let square = sum(x.len(), |i| f64::from(x[i]) * f64::from(x[i]));
    1.0 / (square / x.len() as f64 + f64::from(eps)).sqrt()
}

/// The mean, and one over the standard deviation.
fn moments(x: &[f32], eps: f32) -> (f64, f64) {
    let count = x.len() as f64;
    let mean = sum(x.len(), |i| f64::from(x[i])) / count;
    let square = sum(x.len(), |i| (f64::from(x[i]) - mean) * (f64::from(x[i]) - mean));
    (mean, 1.0 / (square / count + f64::from(eps)).sqrt())
}

/// The sum of `term(0..count)` in eight lanes that are added at the end: a fixed order that vectorises.
#[inline(always)]
fn sum(count: usize, term: impl Fn(usize) -> f64) -> f64 {
    let mut lanes = [0.0f64; 8];
    let whole = count - count % 8;
    for start in (0..whole).step_by(8) {
        for (lane, sum) in lanes.iter_mut().enumerate() {
            *sum += term(start + lane);
        }
    }
    for (lane, i) in (whole..count).enumerate() {
        lanes[lane] += term(i);
    }
    lanes.iter().sum()
}

fn weight_at(weight: Option<&[f32]>, i: usize) -> f64 {
    weight.map_or(1.0, |weight| f64::from(weight[i]))
}

#[inline(always)]
fn write_row(out: &mut [f32], weight: Option<&[f32]>, bias: Option<&[f32]>, normed: impl Fn(usize) -> f64) {
    // The normalised value is rounded before it is weighted, as the reference does.
    for (i, out) in out.iter_mut().enumerate() {
        *out = normed(i) as f32;
    }
    if let Some(weight) = weight {
        for (out, w) in out.iter_mut().zip(weight) {
            *out *= w;
        }
    }
    if let Some(bias) = bias {
        for (out, b) in out.iter_mut().zip(bias) {
            *out += b;
        }
    }
}

fn accumulate(gradient: &mut Option<&mut [f32]>, term: impl Fn(usize) -> f64) {
    if let Some(gradient) = gradient {
        for (i, slot) in gradient.iter_mut().enumerate() {
            *slot += term(i) as f32;
        }
    }
}
