//! Root-mean-square norm (Zhang & Sennrich 2019) and layer norm (Ba et al. 2016), forward and backward.
//!
//! Statistics take two passes in float64, so that a row with a large mean or with huge or tiny entries keeps its
//! digits. Rows are independent, and the order of summation depends on the width alone.

use crate::arch::{Arch, for_each_arch};
use crate::chunks::{parallel_chunks, row_chunk};
use crate::isa::{Isa, machine};

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
    norm_on(machine().isa, &NormRows { x, width, weight, eps }, Kind::Rms, out);
}

/// `out = (x - mean) / sqrt(var + eps) * weight + bias`, row by row; the variance is the biased one.
pub fn layer_norm(x: &[f32], width: usize, weight: Option<&[f32]>, bias: Option<&[f32]>, eps: f32, out: &mut [f32]) {
    norm_on(machine().isa, &NormRows { x, width, weight, eps }, Kind::Layer { bias }, out);
}

/// Which norm, and what only one of them has.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind<'a> {
    Rms,
    Layer { bias: Option<&'a [f32]> },
}

/// Both norms on a given instruction set.
pub(crate) fn norm_on(isa: Isa, rows: &NormRows, kind: Kind, out: &mut [f32]) {
    assert_eq!(rows.x.len(), out.len(), "input and output differ in size");
    parallel_chunks(out, row_chunk(rows.width), |start, out| {
        let part = NormRows { x: &rows.x[start..start + out.len()], ..*rows };
        norm_rows(isa, &part, kind, out);
    });
}

for_each_arch! {
    fn norm_rows(rows: &NormRows, kind: Kind, out: &mut [f32]) = norm_body
}

#[inline(always)]
fn norm_body<A: Arch>(_: A, rows: &NormRows, kind: Kind, out: &mut [f32]) {
    for (x, out) in rows.x.chunks_exact(rows.width).zip(out.chunks_exact_mut(rows.width)) {
        match kind {
            Kind::Rms => write_row(x, 0.0, inverse_rms(x, rows.eps), out),
            Kind::Layer { .. } => {
                let (mean, inverse) = moments(x, rows.eps);
                write_row(x, mean, inverse, out);
            }
        }
        if let Some(weight) = rows.weight {
            for (out, w) in out.iter_mut().zip(weight) {
                *out *= w;
            }
        }
        if let Kind::Layer { bias: Some(bias) } = kind {
            for (out, b) in out.iter_mut().zip(bias) {
                *out += b;
            }
        }
    }
}

/// `out = (x - mean) * inverse`, rounded before it is weighted, as the reference does.
#[inline(always)]
fn write_row(x: &[f32], mean: f64, inverse: f64, out: &mut [f32]) {
    for (out, &x) in out.iter_mut().zip(x) {
        *out = ((f64::from(x) - mean) * inverse) as f32;
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

#[inline(always)]
fn inverse_rms(x: &[f32], eps: f32) -> f64 {
    let square = sum(x.len(), |i| f64::from(x[i]) * f64::from(x[i]));
    1.0 / (square / x.len() as f64 + f64::from(eps)).sqrt()
}

/// The mean, and one over the standard deviation.
#[inline(always)]
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

fn accumulate(gradient: &mut Option<&mut [f32]>, term: impl Fn(usize) -> f64) {
    if let Some(gradient) = gradient {
        for (i, slot) in gradient.iter_mut().enumerate() {
            *slot += term(i) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::available;
    use attend_testkit::golden::{Random, assert_close};

    /// Enough rows for several tasks, on every instruction set: as one row alone.
    #[test]
    fn every_instruction_set_and_row_count() {
        let width = 333;
        let mut random = Random(1);
        let (x, weight, bias) = (random.normals(150 * width), random.normals(width), random.normals(width));
        let rows = NormRows { x: &x, width, weight: Some(&weight), eps: 1e-5 };
        for kind in [Kind::Rms, Kind::Layer { bias: Some(&bias) }] {
            for isa in available() {
                let mut out = vec![f32::NAN; x.len()];
                norm_on(isa, &rows, kind, &mut out);
                for (x, out) in x.chunks(width).zip(out.chunks(width)) {
                    let mut alone = vec![f32::NAN; width];
                    norm_on(isa, &NormRows { x, ..rows }, kind, &mut alone);
                    assert_eq!(out, alone);
                    let mut twin = vec![f32::NAN; width];
                    norm_on(Isa::Portable, &NormRows { x, ..rows }, kind, &mut twin);
                    assert_close(&format!("{isa}"), out, &twin, 1e-7, 3e-7);
                }
            }
        }
    }
}
