//! What stands between an expert's first projections and its last.

use crate::spec::GatedUnit;

impl GatedUnit {
    /// Turns `gate` into what the down projection reads.
    pub(super) fn apply(self, gate: &mut [f32], up: &[f32]) {
        match self {
            GatedUnit::Product(activation) => {
                activation.apply_slice(gate);
                gate.iter_mut().zip(up).for_each(|(gate, up)| *gate *= up);
            }
            GatedUnit::ClampedSwish { alpha, limit } => gate.iter_mut().zip(up).for_each(|(gate, up)| {
                let g = gate.min(limit);
                *gate = g * sigmoid(alpha * g) * (up.clamp(-limit, limit) + 1.0);
            }),
        }
    }

    /// The gradients of gate and up from that of what [`GatedUnit::apply`] gave.
    pub(super) fn backward(self, gate: &[f32], up: &[f32], d: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let mut dgate = Vec::with_capacity(d.len());
        let mut dup = Vec::with_capacity(d.len());
        for ((&gate, &up), &d) in gate.iter().zip(up).zip(d) {
            match self {
                GatedUnit::Product(activation) => {
                    dgate.push(d * up * activation.derivative(gate));
                    dup.push(d * activation.apply(gate));
                }
                GatedUnit::ClampedSwish { alpha, limit } => {
                    let (g, u) = (gate.min(limit), up.clamp(-limit, limit));
                    let s = sigmoid(alpha * g);
                    let slope = s + alpha * g * s * (1.0 - s);
                    dgate.push(if gate <= limit { d * (u + 1.0) * slope } else { 0.0 });
                    dup.push(if up.abs() <= limit { d * g * s } else { 0.0 });
                }
            }
        }
        (dgate, dup)
    }
}

/// In float64, so that it is the same on every instruction set.
pub(super) fn sigmoid(x: f32) -> f32 {
    (1.0 / (1.0 + (-f64::from(x)).exp())) as f32
}
