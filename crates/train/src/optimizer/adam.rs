//! Adam (Kingma and Ba 2015), AMSGrad (Reddi et al. 2018) and decoupled weight decay (AdamW, Loshchilov and Hutter 2019).

use super::{Memory, Slot};

/// How weight decay enters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Decay {
    /// `w -= rate decay w`, beside the step (AdamW).
    #[default]
    Decoupled,
    /// `decay w` is added to the gradient (Adam).
    Gradient,
}

/// `m = b1 m + (1 - b1) g`, `v = b2 v + (1 - b2) g^2`, `w -= rate m' / (sqrt(v') + eps)`, where `m'` and `v'` are
/// divided by `1 - b1^t` and `1 - b2^t`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Adam {
    pub betas: (f64, f64),
    pub eps: f64,
    pub decay: Decay,
    /// The largest `v` so far stands in the denominator.
    pub amsgrad: bool,
}

impl Default for Adam {
    fn default() -> Adam {
        Adam { betas: (0.9, 0.999), eps: 1e-8, decay: Decay::Decoupled, amsgrad: false }
    }
}

impl Adam {
    pub(super) fn update(&self, slot: Slot, learning_rate: f64, memory: &mut Memory) {
        let (steps, len) = (memory.steps as f64, slot.gradient.len());
        let Some([means, squares, largest]) = memory.vectors([len, len, if self.amsgrad { len } else { 0 }]) else {
            return;
        };
        let (first, second) = self.betas;
        let (mean_scale, square_scale) = (1.0 - first.powf(steps), 1.0 - second.powf(steps));
        let mut largest = largest.iter_mut();
        for (((weight, gradient), mean), square) in slot.weight.iter_mut().zip(slot.gradient).zip(means).zip(squares) {
            let (mut w, mut d) = (f64::from(*weight), f64::from(*gradient));
            match self.decay {
                Decay::Decoupled => w -= learning_rate * slot.weight_decay * w,
                Decay::Gradient => d += slot.weight_decay * w,
            }
            let m = first * f64::from(*mean) + (1.0 - first) * d;
            let mut v = second * f64::from(*square) + (1.0 - second) * d * d;
            (*mean, *square) = (m as f32, v as f32);
            if let Some(largest) = largest.next() {
                v = v.max(f64::from(*largest));
                *largest = v as f32;
            }
            *weight = (w - learning_rate * (m / mean_scale) / ((v / square_scale).sqrt() + self.eps)) as f32;
        }
    }
}
