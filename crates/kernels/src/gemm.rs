//! `c (+)= a . b` over strided views: what training multiplies with.

use crate::isa::{Machine, machine};
use crate::lanes::WIDTH;
use crate::matrix::float::{Rows, Source, Tile, product};
use std::ops::Range;

/// A matrix `[rows, cols]` seen through strides; element `(i, j)` is `data[i * row_stride + j * col_stride]`.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    pub data: &'a [f32],
    pub rows: usize,
    pub cols: usize,
    pub row_stride: usize,
    pub col_stride: usize,
}

impl<'a> View<'a> {
    /// A contiguous `[rows, cols]`.
    pub fn new(data: &'a [f32], rows: usize, cols: usize) -> View<'a> {
        View { data, rows, cols, row_stride: cols, col_stride: 1 }
    }

    /// The same elements with rows and columns exchanged.
    pub fn transposed(self) -> View<'a> {
        View { rows: self.cols, cols: self.rows, row_stride: self.col_stride, col_stride: self.row_stride, ..self }
    }

    /// Whether every element lies in the data.
    fn fits(&self) -> bool {
        let reach = |count: usize, stride: usize| (count - 1).checked_mul(stride);
        self.rows == 0
            || self.cols == 0
            || reach(self.rows, self.row_stride)
                .zip(reach(self.cols, self.col_stride))
                .and_then(|(row, col)| row.checked_add(col))
                .is_some_and(|last| last < self.data.len())
    }
}

/// `c [m, n] (+)= a [m, k] . b [k, n]`, with `c` contiguous.
///
/// Each element is a sum over `k` in an order that depends on `k` alone.
///
/// # Panics
/// When the shapes do not fit each other or the data.
pub fn gemm(a: View<'_>, b: View<'_>, c: &mut [f32], accumulate: bool) {
    gemm_on(*machine(), a, b, c, accumulate);
}

/// [`gemm`] on a chosen instruction set.
pub(crate) fn gemm_on(machine: Machine, a: View<'_>, b: View<'_>, c: &mut [f32], accumulate: bool) {
    assert_eq!(a.cols, b.rows, "inner lengths of a product");
    assert_eq!(c.len(), a.rows * b.cols, "length of a product of {} x {}", a.rows, b.cols);
    assert!(a.fits() && b.fits(), "a view reaches outside its data");
    if a.cols == 0 && !accumulate {
        c.fill(0.0);
    } else if a.cols > 0 && !c.is_empty() {
        product(machine, &Columns(b), &Rows::of(machine, a), c, accumulate);
    }
}

/// The columns of `b`, sixteen at a time, as panels of weights.
struct Columns<'a>(View<'a>);

impl Source for Columns<'_> {
    fn widen(&self, panel: usize, inputs: Range<usize>, out: &mut Tile) {
        let b = self.0;
        let first = panel * WIDTH;
        let width = WIDTH.min(b.cols - first);
        for (k, out) in inputs.zip(out.iter_mut()) {
            let row = &b.data[k * b.row_stride + first * b.col_stride..];
            if b.col_stride == 1 {
                out[..width].copy_from_slice(&row[..width]);
            } else {
                out[..width].iter_mut().enumerate().for_each(|(j, out)| *out = row[j * b.col_stride]);
            }
            out[width..].fill(0.0);
        }
    }
}

#[cfg(test)]
mod tests;
