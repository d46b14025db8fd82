//! Norms with their weights, forward and backward.

use crate::grads::Gradients;
use crate::spec::Norm;
use attend_kernels::{NormRows, layer_norm, layer_norm_backward, rms_norm, rms_norm_backward};

/// A norm over rows of one width, or over groups of it: the weights repeat every `weight.len()` elements.
#[derive(Debug, Clone)]
pub struct NormLayer {
    /// The weights' name without `.weight` and `.bias`.
    pub name: String,
    pub norm: Norm,
    /// The normalised width.
    pub width: usize,
    pub weight: Option<Vec<f32>>,
    pub bias: Option<Vec<f32>>,
    /// Each group's weights have a name of their own, which ends with its number.
    pub each: bool,
}

impl NormLayer {
    /// `x` [N, width].
    pub fn forward(&self, x: &[f32]) -> Vec<f32> {
        let mut out = vec![0.0; x.len()];
        self.each_group(|weight, bias, group| {
            let apply = |x: &[f32], out: &mut [f32]| match self.norm {
                Norm::Rms { eps } => rms_norm(x, self.width, weight, eps, out),
                Norm::Layer { eps, .. } | Norm::Plain { eps } => layer_norm(x, self.width, weight, bias, eps, out),
            };
            match group {
                None => apply(x, &mut out),
                Some((index, groups)) => {
                    let rows = x.chunks_exact(self.width).zip(out.chunks_exact_mut(self.width));
                    rows.skip(index).step_by(groups).for_each(|(x, out)| apply(x, out));
                }
            }
        });
        out
    }

    /// Adds the input's gradient to `dx`, the weights' to their slots.
    pub fn backward(&self, x: &[f32], dy: &[f32], dx: &mut [f32], grads: &mut Gradients) {
        let len = self.weight.as_ref().map_or(0, Vec::len);
        let mut dweight = vec![0.0; len];
        let mut dbias = vec![0.0; self.bias.as_ref().map_or(0, Vec::len)];
        self.each_group(|weight, _, group| {
            let part = group.map_or(0..len, |(index, _)| index * self.width..(index + 1) * self.width);
            let mut apply = |x: &[f32], dy: &[f32], dx: &mut [f32]| {
                let dweight = weight.is_some().then(|| &mut dweight[part.clone()]);
                let dbias = self.bias.is_some().then(|| &mut dbias[part.clone()]);
                let rows = |eps| NormRows { x, width: self.width, weight, eps };
                match self.norm {
                    Norm::Rms { eps } => rms_norm_backward(&rows(eps), dy, dx, dweight),
                    Norm::Layer { eps, .. } | Norm::Plain { eps } => {
                        layer_norm_backward(&rows(eps), dy, dx, dweight, dbias);
                    }
                }
            };
            match group {
                None => apply(x, dy, dx),
                Some((index, groups)) => {
                    let rows = x.chunks_exact(self.width).zip(dy.chunks_exact(self.width));
                    let rows = rows.zip(dx.chunks_exact_mut(self.width));
                    rows.skip(index).step_by(groups).for_each(|((x, dy), dx)| apply(x, dy, dx));
                }
            }
        });
        self.accumulate(".weight", &dweight, grads);
        self.accumulate(".bias", &dbias, grads);
    }

    fn accumulate(&self, suffix: &str, values: &[f32], grads: &mut Gradients) {
        let len = if self.each { self.width } else { values.len().max(1) };
        for (index, part) in values.chunks(len).enumerate() {
            let number = if self.each { format!(".{index}") } else { String::new() };
            if let Some(slot) = grads.slot(&format!("{}{number}{suffix}", self.name), part.len()) {
                slot.iter_mut().zip(part).for_each(|(slot, value)| *slot += value);
            }
        }
    }

    /// Calls `body` once with the weights when they cover one row, else once for each group of `width` weights
    /// with the group's index and the number of groups (a weight for every head).
    fn each_group(&self, mut body: impl FnMut(Option<&[f32]>, Option<&[f32]>, Option<(usize, usize)>)) {
        let groups = self.weight.as_ref().map_or(1, |weight| weight.len() / self.width);
        if groups <= 1 {
            return body(self.weight.as_deref(), self.bias.as_deref(), None);
        }
        for index in 0..groups {
            let part = index * self.width..(index + 1) * self.width;
            let weight = self.weight.as_ref().map(|weight| &weight[part.clone()]);
            let bias = self.bias.as_ref().map(|bias| &bias[part]);
            body(weight, bias, Some((index, groups)));
        }
    }
}
