//! Norms with their weights, forward and backward.

use crate::grads::Gradients;
use crate::spec::Norm;
use attend_kernels::{NormRows, layer_norm, layer_norm_backward, rms_norm, rms_norm_backward};
use std::sync::Arc;

/// A norm over rows of one width.
#[derive(Debug, Clone)]
pub struct NormLayer {
    pub norm: Norm,
    /// The normalised width.
    pub width: usize,
    /// One for all rows; or several that take turns, row by row (a weight for every head).
    pub weights: Vec<NormWeights>,
}

/// The weights of a norm, as far as its kind has them.
#[derive(Debug, Clone)]
pub struct NormWeights {
    /// Their name without `.weight` and `.bias`.
    pub name: String,
    pub weight: Option<Arc<[f32]>>,
    pub bias: Option<Arc<[f32]>>,
}

impl NormLayer {
    /// `x` [N, width].
    pub fn forward(&self, x: &[f32]) -> Vec<f32> {
        let mut out = vec![0.0; x.len()];
        self.write(x, &mut out);
        out
    }

    /// [`NormLayer::forward`] into `out`, of the length of `x`.
    pub(crate) fn write(&self, x: &[f32], out: &mut [f32]) {
        for (index, weights) in self.weights.iter().enumerate() {
            let (weight, bias) = (weights.weight.as_deref(), weights.bias.as_deref());
            let apply = |x: &[f32], out: &mut [f32]| match self.norm {
                Norm::Rms { eps } => rms_norm(x, self.width, weight, eps, out),
                Norm::Layer { eps, .. } | Norm::Plain { eps } => layer_norm(x, self.width, weight, bias, eps, out),
            };
            let rows = x.chunks_exact(self.run(x)).zip(out.chunks_exact_mut(self.run(x)));
            rows.skip(index).step_by(self.weights.len()).for_each(|(x, out)| apply(x, out));
        }
    }

    /// Adds the input's gradient to `dx`, the weights' to their slots.
    pub fn backward(&self, x: &[f32], dy: &[f32], dx: &mut [f32], grads: &mut Gradients) {
        let run = self.run(x);
        for (index, weights) in self.weights.iter().enumerate() {
            let zeros = |weight: &Option<Arc<[f32]>>| weight.as_ref().map(|weight| vec![0.0; weight.len()]);
            let (mut dweight, mut dbias) = (zeros(&weights.weight), zeros(&weights.bias));
            let rows = x.chunks_exact(run).zip(dy.chunks_exact(run)).zip(dx.chunks_exact_mut(run));
            for ((x, dy), dx) in rows.skip(index).step_by(self.weights.len()) {
                let rows = |eps| NormRows { x, width: self.width, weight: weights.weight.as_deref(), eps };
                match self.norm {
                    Norm::Rms { eps } => rms_norm_backward(&rows(eps), dy, dx, dweight.as_deref_mut()),
                    Norm::Layer { eps, .. } | Norm::Plain { eps } => {
                        layer_norm_backward(&rows(eps), dy, dx, dweight.as_deref_mut(), dbias.as_deref_mut());
                    }
                }
            }
            weights.accumulate("weight", dweight, grads);
            weights.accumulate("bias", dbias, grads);
        }
    }

    /// How many values of `x` go through the same weights one after the other: all of them, unless weights take turns.
    fn run(&self, x: &[f32]) -> usize {
        if self.weights.len() == 1 { x.len().max(1) } else { self.width }
    }
}

impl NormWeights {
    fn accumulate(&self, suffix: &str, values: Option<Vec<f32>>, grads: &mut Gradients) {
        let Some(values) = values else { return };
        if let Some(slot) = grads.slot(&format!("{}.{suffix}", self.name), values.len()) {
            slot.iter_mut().zip(values).for_each(|(slot, value)| *slot += value);
        }
    }
}
