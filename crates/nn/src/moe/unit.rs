//! What stands between the first projections of a gated feed-forward part and its last, an expert's or a dense one's.

use crate::spec::GatedUnit;

impl GatedUnit {
    /// Turns `gate` into what the down projection reads.
    pub(crate) fn apply(self, gate: &mut [f32], up: &[f32]) {
        match self {
            GatedUnit::Product(activation) => {
                activation.gate_slice(gate, up);
            }
            GatedUnit::ClampedSwish { alpha, limit } => gate.iter_mut().zip(up).for_each(|(gate, up)| {
                let g = gate.min(limit);
                *gate = g * sigmoid(alpha * g) * (up.clamp(-limit, limit) + 1.0);
            }),
        }
    }

    /// The gradients of gate and up from that of what [`GatedUnit::apply`] gave.
    pub(crate) fn backward(self, gate: &[f32], up: &[f32], d: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let places = gate.iter().zip(up).zip(d).map(|((gate, up), d)| (*gate, *up, *d));
        match self {
            GatedUnit::Product(activation) => {
                let mut dup = gate.to_vec();
                activation.apply_slice(&mut dup);
                dup.iter_mut().zip(d).for_each(|(dup, d)| *dup *= d);
                (places.map(|(gate, up, d)| d * (activation.derivative(gate) * up)).collect(), dup)
            }
            GatedUnit::ClampedSwish { alpha, limit } => {
                let slopes = |(gate, up, d): (f32, f32, f32)| {
                    let (g, u) = (gate.min(limit), up.clamp(-limit, limit));
                    let s = sigmoid(alpha * g);
                    let slope = s + alpha * g * s * (1.0 - s);
                    let dgate = if gate <= limit { d * (u + 1.0) * slope } else { 0.0 };
                    (dgate, if up.abs() <= limit { d * g * s } else { 0.0 })
                };
                places.map(slopes).unzip()
            }
        }
    }
}

/// In float64, so that it is the same on every instruction set.
pub(super) fn sigmoid(x: f32) -> f32 {
    (1.0 / (1.0 + (-f64::from(x)).exp())) as f32
}
