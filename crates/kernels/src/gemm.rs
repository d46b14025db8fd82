//! `c (+)= a . b` over strided views: what training multiplies with.

/// A matrix `[rows, cols]` seen through strides; element `(i, j)` is `data[i * row_stride + j * col_stride]`.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    pub data: &'a [f32],
    pub rows: usize,
    pub cols: usize,
    pub row_stride: usize,
    pub col_stride: usize,
}

/// `c [m, n] (+)= a [m, k] . b [k, n]`, `c` contiguous.
///
/// # Panics
/// When the shapes do not fit.
pub fn gemm(a: View<'_>, b: View<'_>, c: &mut [f32], accumulate: bool) {
    assert_eq!(a.cols, b.rows, "inner lengths");
    assert_eq!(c.len(), a.rows * b.cols, "length of the result");
    if !accumulate {
        c.fill(0.0);
    }
    for i in 0..a.rows {
        let c = &mut c[i * b.cols..(i + 1) * b.cols];
        for k in 0..a.cols {
            let x = a.data[i * a.row_stride + k * a.col_stride];
            for (j, c) in c.iter_mut().enumerate() {
                *c += x * b.data[k * b.row_stride + j * b.col_stride];
            }
        }
    }
}
