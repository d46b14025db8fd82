//! Stochastic gradient descent, with momentum (Polyak 1964) and Nesterov's look-ahead (Sutskever et al. 2013).

use super::{Memory, Slot};

/// `v = momentum v + g`, `w -= rate v`; with `nesterov` the step is `g + momentum v`.
///
/// Weight decay adds `decay w` to the gradient.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Sgd {
    /// 0: none, and nothing is remembered.
    pub momentum: f64,
    pub nesterov: bool,
}

impl Sgd {
    pub(super) fn update(&self, slot: Slot, learning_rate: f64, memory: &mut Memory) {
        let pairs = slot.weight.iter_mut().zip(slot.gradient);
        if self.momentum == 0.0 {
            for (weight, gradient) in pairs {
                let d = f64::from(*gradient) + slot.weight_decay * f64::from(*weight);
                *weight = (f64::from(*weight) - learning_rate * d) as f32;
            }
            return;
        }
        let Some([velocity]) = memory.vectors([slot.gradient.len()]) else { return };
        for ((weight, gradient), velocity) in pairs.zip(velocity) {
            let d = f64::from(*gradient) + slot.weight_decay * f64::from(*weight);
            let moved = self.momentum * f64::from(*velocity) + d;
            let step = if self.nesterov { d + self.momentum * moved } else { moved };
            *velocity = moved as f32;
            *weight = (f64::from(*weight) - learning_rate * step) as f32;
        }
    }
}
