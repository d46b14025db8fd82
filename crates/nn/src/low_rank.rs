//! Low-rank adapters of linear layers and embedding tables (LoRA, Hu et al. 2021, section 4).
//!
//! Beside a frozen `W` [out, in] stand two small matrices, and the layer gives `x W^T + scale (x A^T) B^T`.

use crate::grads::Gradients;
use crate::linear::{input_gradient, weight_gradient};
use attend_kernels::Matrix;
use std::sync::Arc;

/// An adapter of one linear layer, or of a token table.
#[derive(Debug, Clone)]
pub struct LowRank {
    /// The names of the matrices' gradients. Layers that share `A`, parts of one fused projection, share its name.
    pub a_name: String,
    pub b_name: String,
    /// [r, in]; of a token table [vocab, r], one row a token.
    pub a: Arc<Matrix>,
    /// [out, r]
    pub b: Arc<Matrix>,
    pub scale: f32,
}

impl LowRank {
    pub fn rank(&self) -> usize {
        self.b.cols()
    }

    /// Adds the adapter's part for `x` [N, in] to `out` [N, out].
    pub(crate) fn add(&self, x: &[f32], out: &mut [f32]) {
        self.add_inner(&self.inner(x), out);
    }

    /// Adds the adapter's part for tokens to their embeddings `out` [N, out].
    pub(crate) fn add_tokens(&self, ids: &[u32], out: &mut [f32]) {
        self.add_inner(&self.gathered(ids), out);
    }

    /// From the gradient `dy` [N, out] to those of `x` (added to `dx`), `A` and `B`.
    pub(crate) fn backward(&self, x: &[f32], dy: &[f32], dx: &mut [f32], grads: &mut Gradients) {
        let dinner = self.backward_inner(&self.inner(x), dy, grads);
        input_gradient(&self.a, &dinner, dx);
        weight_gradient(&self.a_name, &self.a, x, &dinner, grads);
    }

    /// From the gradient `dy` [N, out] of the tokens' embeddings to those of `A` and `B`.
    pub(crate) fn backward_tokens(&self, ids: &[u32], dy: &[f32], grads: &mut Gradients) {
        let dinner = self.backward_inner(&self.gathered(ids), dy, grads);
        let rank = self.rank();
        if let Some(slot) = grads.slot(&self.a_name, self.a.rows() * rank) {
            for (id, d) in ids.iter().zip(dinner.chunks_exact(rank)) {
                let row = &mut slot[*id as usize * rank..(*id as usize + 1) * rank];
                row.iter_mut().zip(d).for_each(|(slot, d)| *slot += d);
            }
        }
    }

    /// `scale B A`, what merging adds to the weight [out, in] (of a token table [vocab, out]).
    pub fn delta(&self, table: bool) -> Vec<f32> {
        let unpack = |matrix: &Matrix| {
            let mut values = vec![0.0; matrix.rows() * matrix.cols()];
            matrix.read_rows(0, &mut values);
            values
        };
        let (a, b, rank) = (unpack(&self.a), unpack(&self.b), self.rank());
        let inputs = if table { self.a.rows() } else { self.a.cols() };
        let outputs = self.b.rows();
        // Summed in double precision: it is done once, and what it is compared with is the two-step product.
        let at = |input: usize, output: usize| {
            let a_at = |r: usize| if table { input * rank + r } else { r * inputs + input };
            let sum: f64 = (0..rank).map(|r| f64::from(a[a_at(r)]) * f64::from(b[output * rank + r])).sum();
            (sum * f64::from(self.scale)) as f32
        };
        match table {
            true => (0..inputs).flat_map(|i| (0..outputs).map(move |o| (i, o))).map(|(i, o)| at(i, o)).collect(),
            false => (0..outputs).flat_map(|o| (0..inputs).map(move |i| (i, o))).map(|(i, o)| at(i, o)).collect(),
        }
    }

    /// `scale x A^T`, [N, r]
    fn inner(&self, x: &[f32]) -> Vec<f32> {
        let mut inner = vec![0.0; x.len() / self.a.cols() * self.rank()];
        self.a.matmul(x, &mut inner);
        self.scaled(inner)
    }

    /// The tokens' rows of `A`, scaled, [N, r].
    fn gathered(&self, ids: &[u32]) -> Vec<f32> {
        let mut inner = vec![0.0; ids.len() * self.rank()];
        for (id, row) in ids.iter().zip(inner.chunks_exact_mut(self.rank())) {
            self.a.read_rows(*id as usize, row);
        }
        self.scaled(inner)
    }

    fn scaled(&self, mut inner: Vec<f32>) -> Vec<f32> {
        inner.iter_mut().for_each(|value| *value *= self.scale);
        inner
    }

    fn add_inner(&self, inner: &[f32], out: &mut [f32]) {
        let mut part = vec![0.0; out.len()];
        self.b.matmul(inner, &mut part);
        out.iter_mut().zip(part).for_each(|(out, part)| *out += part);
    }

    /// The gradient of what lies between `A` and `B`, before the scale.
    fn backward_inner(&self, inner: &[f32], dy: &[f32], grads: &mut Gradients) -> Vec<f32> {
        weight_gradient(&self.b_name, &self.b, inner, dy, grads);
        let mut dinner = vec![0.0; inner.len()];
        input_gradient(&self.b, dy, &mut dinner);
        self.scaled(dinner)
    }
}
