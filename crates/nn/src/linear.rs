//! A linear layer, forward and backward.

use crate::grads::Gradients;
use crate::row_adapters::{LayerAdapters, RowAdapters};
use attend_kernels::{Matrix, View, gemm, matmul_all};
use std::sync::Arc;

/// `y = x W^T + b`, with `W` [out, in] in any weight type.
#[derive(Debug, Clone)]
pub struct Linear {
    /// The weights' name without `.weight` and `.bias`.
    pub name: String,
    pub weight: Arc<Matrix>,
    pub bias: Option<Arc<[f32]>>,
    /// Adapters beside the weight.
    pub low_rank: LayerAdapters,
}

/// Rows of the weight matrix that backward unpacks at a time.
const PANEL_ROWS: usize = 256;

impl Linear {
    pub fn out_features(&self) -> usize {
        self.weight.rows()
    }

    pub fn in_features(&self) -> usize {
        self.weight.cols()
    }

    /// `x` [N, in] to [N, out].
    pub fn forward(&self, x: &[f32], rows: &RowAdapters) -> Vec<f32> {
        let [out] = Linear::forward_all([self], x, rows);
        out
    }

    /// As [`Linear::forward`] of each of them, with less work: they read the same `x`.
    pub fn forward_all<const N: usize>(layers: [&Linear; N], x: &[f32], rows: &RowAdapters) -> [Vec<f32>; N] {
        let mut outs = matmul_all(layers.map(|layer| (&*layer.weight, layer.bias.as_deref())), x);
        let inputs = layers.first().map_or(0, |layer| layer.in_features());
        rows.add(x, inputs, layers.iter().zip(&mut outs).map(|(layer, out)| (&layer.low_rank, out.as_mut_slice())));
        outs
    }

    /// Adds `dy W` to `dx`, and the gradients of weight and bias to their slots.
    pub fn backward(&self, x: &[f32], dy: &[f32], dx: &mut [f32], grads: &mut Gradients) {
        input_gradient(&self.weight, dy, dx);
        weight_gradient(&self.weight_name(), &self.weight, x, dy, grads);
        for adapter in &self.low_rank.own {
            adapter.backward(x, dy, dx, grads);
        }
        if let Some(bias) = &self.bias
            && let Some(slot) = grads.slot(&format!("{}.bias", self.name), bias.len())
        {
            for row in dy.chunks_exact(bias.len()) {
                slot.iter_mut().zip(row).for_each(|(slot, dy)| *slot += dy);
            }
        }
    }

    /// Makes the slots of weight and bias, for a step in which no row went through.
    pub fn touch(&self, grads: &mut Gradients) {
        grads.slot(&self.weight_name(), self.out_features() * self.in_features());
        if let Some(bias) = &self.bias {
            grads.slot(&format!("{}.bias", self.name), bias.len());
        }
    }

    pub fn weight_name(&self) -> String {
        format!("{}.weight", self.name)
    }
}

/// `dx += dy W`, unpacking the weight panel by panel.
pub(crate) fn input_gradient(weight: &Matrix, dy: &[f32], dx: &mut [f32]) {
    let (out, input) = (weight.rows(), weight.cols());
    let rows = dy.len() / out;
    for start in (0..out).step_by(PANEL_ROWS) {
        let panel = PANEL_ROWS.min(out - start);
        let mut unpacked = vec![0.0; panel * input];
        weight.read_rows(start, &mut unpacked);
        let dy = View { data: &dy[start..], rows, cols: panel, row_stride: out, col_stride: 1 };
        let weight = View { data: &unpacked, rows: panel, cols: input, row_stride: input, col_stride: 1 };
        gemm(dy, weight, dx, true);
    }
}

/// `dW += dy^T x`.
pub(crate) fn weight_gradient(name: &str, weight: &Matrix, x: &[f32], dy: &[f32], grads: &mut Gradients) {
    let (out, input) = (weight.rows(), weight.cols());
    let rows = dy.len() / out;
    if let Some(slot) = grads.slot(name, out * input) {
        let dy = View { data: dy, rows: out, cols: rows, row_stride: 1, col_stride: out };
        let x = View { data: x, rows, cols: input, row_stride: input, col_stride: 1 };
        gemm(dy, x, slot, true);
    }
}
