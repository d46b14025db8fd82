//! Activation functions and their derivatives.

use crate::arch::{Arch, Portable, for_each_arch};
use crate::chunks::{CHUNK, parallel_chunks};
use crate::isa::{Isa, machine};
use crate::vecmath::{exp, fma, normal_cdf, sigmoid, tanh};
use std::f32::consts::FRAC_2_SQRT_PI;

/// A pointwise non-linearity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Activation {
    Identity,
    Relu,
    /// `relu(x)^2` (So et al. 2021).
    ReluSquared,
    /// `x * Phi(x)` with the error function (Hendrycks & Gimpel 2016).
    Gelu,
    /// GELU's tanh approximation (`gelu_new`, `gelu_pytorch_tanh`, `gelu_fast`).
    GeluTanh,
    /// `x * sigmoid(1.702 x)`.
    QuickGelu,
    /// GELU clamped to `[-10, 10]` (`gelu_10`).
    GeluClamped,
    /// `x * tanh(ln(1 + e^x))` (Misra 2019).
    Mish,
    /// `x * sigmoid(x)`, also called swish.
    Silu,
    Tanh,
    Sigmoid,
}

impl Activation {
    /// The function's value; absolute error below `3e-7 max(1, |x|)`.
    pub fn apply(self, x: f32) -> f32 {
        self.value::<Portable>(x)
    }

    /// The derivative at `x`; 0 for ReLU at 0. Absolute error below `1e-6`.
    pub fn derivative(self, x: f32) -> f32 {
        self.slope::<Portable>(x)
    }

    /// Applies the function to every element in place.
    pub fn apply_slice(self, values: &mut [f32]) {
        self.apply_slice_on(machine().isa, values);
    }

    /// Applies the function to every element of `gate` and multiplies it by `up`'s: what gated feed-forward parts do.
    ///
    /// # Panics
    /// When the two differ in length.
    pub fn gate_slice(self, gate: &mut [f32], up: &[f32]) {
        self.gate_slice_on(machine().isa, gate, up);
    }

    /// [`Activation::gate_slice`] on a given instruction set.
    pub(crate) fn gate_slice_on(self, isa: Isa, gate: &mut [f32], up: &[f32]) {
        assert_eq!(gate.len(), up.len(), "gates and what they gate differ in number");
        parallel_chunks(gate, CHUNK, |start, chunk| gate_chunk(isa, self, chunk, &up[start..start + chunk.len()]));
    }

    /// [`Activation::apply_slice`] on a given instruction set.
    pub(crate) fn apply_slice_on(self, isa: Isa, values: &mut [f32]) {
        parallel_chunks(values, CHUNK, |_, chunk| apply_chunk(isa, self, chunk));
    }

    /// Multiplies each gradient by the derivative at the input that the forward pass saw: `d[i] *= f'(x[i])`.
    pub fn backward_slice(self, x: &[f32], d: &mut [f32]) {
        self.backward_slice_on(machine().isa, x, d);
    }

    /// [`Activation::backward_slice`] on a given instruction set.
    pub(crate) fn backward_slice_on(self, isa: Isa, x: &[f32], d: &mut [f32]) {
        assert_eq!(x.len(), d.len(), "inputs and gradients differ in number");
        parallel_chunks(d, CHUNK, |start, chunk| backward_chunk(isa, self, &x[start..start + chunk.len()], chunk));
    }

    #[inline(always)]
    fn value<A: Arch>(self, x: f32) -> f32 {
        match self {
            Activation::Identity => x,
            Activation::Relu => relu(x),
            Activation::ReluSquared => relu(x) * relu(x),
            Activation::Gelu => x * normal_cdf::<A>(x),
            // (1 + tanh u) / 2 = sigmoid(2 u), which keeps its digits where tanh u is near -1.
            Activation::GeluTanh => x * sigmoid::<A>(2.0 * gelu_inner::<A>(x)),
            Activation::QuickGelu => x * sigmoid::<A>(1.702 * x),
            Activation::GeluClamped => (x * normal_cdf::<A>(x)).clamp(-GELU_LIMIT, GELU_LIMIT),
            Activation::Mish => x * tanh_softplus::<A>(x),
            Activation::Silu => x * sigmoid::<A>(x),
            Activation::Tanh => tanh::<A>(x),
            Activation::Sigmoid => sigmoid::<A>(x),
        }
    }

    #[inline(always)]
    fn slope<A: Arch>(self, x: f32) -> f32 {
        match self {
            Activation::Identity => 1.0,
            Activation::Relu => {
                if x > 0.0 {
                    1.0
                } else {
                    0.0
                }
            }
            Activation::ReluSquared => 2.0 * relu(x),
            Activation::Gelu => gelu_slope::<A>(x),
            Activation::GeluClamped => {
                if (x * normal_cdf::<A>(x)).abs() >= GELU_LIMIT {
                    0.0
                } else {
                    gelu_slope::<A>(x)
                }
            }
            Activation::Mish => {
                let t = tanh_softplus::<A>(x);
                t + x * (1.0 - t * t) * sigmoid::<A>(x)
            }
            Activation::GeluTanh => {
                let s = sigmoid::<A>(2.0 * gelu_inner::<A>(x));
                let inner_slope = GELU_SCALE * (1.0 + 3.0 * GELU_CUBIC * x * x);
                s + 2.0 * x * s * (1.0 - s) * inner_slope
            }
            Activation::QuickGelu => {
                let s = sigmoid::<A>(1.702 * x);
                s + 1.702 * x * s * (1.0 - s)
            }
            Activation::Silu => {
                let s = sigmoid::<A>(x);
                s + x * s * (1.0 - s)
            }
            Activation::Tanh => {
                let t = tanh::<A>(x);
                1.0 - t * t
            }
            Activation::Sigmoid => {
                let s = sigmoid::<A>(x);
                s * (1.0 - s)
            }
        }
    }
}

for_each_arch! {
    fn apply_chunk(activation: Activation, values: &mut [f32]) = apply_body
}

for_each_arch! {
    fn gate_chunk(activation: Activation, gate: &mut [f32], up: &[f32]) = gate_body
}

for_each_arch! {
    fn backward_chunk(activation: Activation, x: &[f32], d: &mut [f32]) = backward_body
}

/// Runs the statement with `$f` a constant, so that each function gets a loop of its own that vectorises.
macro_rules! for_each_activation {
    ($value:expr, $f:ident => $loop:block, $($variant:ident)+) => {
        match $value {
            $(Activation::$variant => {
                const $f: Activation = Activation::$variant;
                $loop
            })+
        }
    };
}

#[inline(always)]
fn apply_body<A: Arch>(_: A, activation: Activation, values: &mut [f32]) {
    for_each_activation!(activation, F => {
        for x in values {
            *x = F.value::<A>(*x);
        }
    }, Identity Relu ReluSquared Gelu GeluTanh QuickGelu GeluClamped Mish Silu Tanh Sigmoid);
}

#[inline(always)]
fn gate_body<A: Arch>(_: A, activation: Activation, gate: &mut [f32], up: &[f32]) {
    for_each_activation!(activation, F => {
        for (gate, &up) in gate.iter_mut().zip(up) {
            *gate = F.value::<A>(*gate) * up;
        }
    }, Identity Relu ReluSquared Gelu GeluTanh QuickGelu GeluClamped Mish Silu Tanh Sigmoid);
}

#[inline(always)]
fn backward_body<A: Arch>(_: A, activation: Activation, x: &[f32], d: &mut [f32]) {
    for_each_activation!(activation, F => {
        for (d, &x) in d.iter_mut().zip(x) {
            *d *= F.slope::<A>(x);
        }
    }, Identity Relu ReluSquared Gelu GeluTanh QuickGelu GeluClamped Mish Silu Tanh Sigmoid);
}

/// Not `max`, which would turn a NaN into 0.
#[inline(always)]
fn relu(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x }
}

const GELU_LIMIT: f32 = 10.0;

/// `Phi(x) + x phi(x)`
#[inline(always)]
fn gelu_slope<A: Arch>(x: f32) -> f32 {
    let density = 0.5 * FRAC_2_SQRT_PI * std::f32::consts::FRAC_1_SQRT_2 * exp::<A>(-0.5 * x * x);
    fma::<A>(x, density, normal_cdf::<A>(x))
}

/// `tanh(ln(1 + e^x)) = n / (n + 2)` with `n = e^x (e^x + 2)`; beyond 20 it is 1 in float32.
#[inline(always)]
fn tanh_softplus<A: Arch>(x: f32) -> f32 {
    let e = exp::<A>(if x > 20.0 { 20.0 } else { x });
    let n = e * (e + 2.0);
    n / (n + 2.0)
}

/// `sqrt(2 / pi)`
const GELU_SCALE: f32 = FRAC_2_SQRT_PI * std::f32::consts::FRAC_1_SQRT_2;
const GELU_CUBIC: f32 = 0.044715;

#[inline(always)]
fn gelu_inner<A: Arch>(x: f32) -> f32 {
    GELU_SCALE * fma::<A>(GELU_CUBIC * x * x, x, x)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::available;
    use attend_testkit::golden::assert_same_bits;

    const ALL: [Activation; 11] = {
        use Activation::*;
        [Identity, Relu, ReluSquared, Gelu, GeluTanh, QuickGelu, GeluClamped, Mish, Silu, Tanh, Sigmoid]
    };

    /// Wider than one task, so that pieces meet.
    fn inputs() -> Vec<f32> {
        (0..CHUNK + 5000).map(|i| (i as f32 - 10_000.0) * 2e-3).collect()
    }

    /// The functions from their definitions, in float64; `erf` from its Taylor series or continued fraction.
    fn exact(activation: Activation, x: f64) -> f64 {
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        match activation {
            Activation::Identity => x,
            Activation::Relu => x.max(0.0),
            Activation::ReluSquared => x.max(0.0).powi(2),
            Activation::Gelu => x * crate::vecmath::tests::normal_cdf_f64(x),
            Activation::GeluTanh => {
                0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
            }
            Activation::QuickGelu => x * sigmoid(1.702 * x),
            Activation::GeluClamped => (x * crate::vecmath::tests::normal_cdf_f64(x)).clamp(-10.0, 10.0),
            Activation::Mish => x * x.exp().ln_1p().tanh(),
            Activation::Silu => x * sigmoid(x),
            Activation::Tanh => x.tanh(),
            Activation::Sigmoid => sigmoid(x),
        }
    }

    #[test]
    fn a_gate_is_the_function_times_what_it_gates() {
        let x = inputs();
        let up: Vec<f32> = x.iter().rev().copied().collect();
        for activation in ALL {
            for isa in available() {
                let (mut gate, mut expected) = (x.clone(), x.clone());
                activation.gate_slice_on(isa, &mut gate, &up);
                activation.apply_slice_on(isa, &mut expected);
                expected.iter_mut().zip(&up).for_each(|(x, up)| *x *= up);
                assert_same_bits(&format!("{activation:?} on {isa}"), &gate, &expected);
            }
        }
    }

    #[test]
    fn values_and_slopes_on_every_instruction_set() {
        let x = inputs();
        for activation in ALL {
            for isa in available() {
                let mut y = x.clone();
                activation.apply_slice_on(isa, &mut y);
                let mut d = vec![1.0; x.len()];
                activation.backward_slice_on(isa, &x, &mut d);
                for ((&x, &y), &d) in x.iter().zip(&y).zip(&d) {
                    let wide = f64::from(x);
                    let error = (f64::from(y) - exact(activation, wide)).abs();
                    assert!(
                        error <= 3e-7 * wide.abs().max(1.0).powi(2),
                        "{activation:?}({x}) is {y} on {isa}: {error:e}"
                    );
                    // Not across the corner of the ReLUs, or that of the clamp.
                    if x.abs() > 1e-4 && (x - GELU_LIMIT).abs() > 1e-4 {
                        let slope = (exact(activation, wide + 1e-5) - exact(activation, wide - 1e-5)) / 2e-5;
                        let error = (f64::from(d) - slope).abs();
                        assert!(error <= 1e-6 * wide.abs().max(1.0), "{activation:?}'({x}) is {d} on {isa}: {error:e}");
                    }
                }
            }
        }
    }

    #[test]
    fn an_element_does_not_depend_on_its_neighbours() {
        let x = inputs();
        for activation in ALL {
            for isa in available() {
                let mut together = x.clone();
                activation.apply_slice_on(isa, &mut together);
                let alone: Vec<f32> = x
                    .iter()
                    .map(|&x| {
                        let mut one = [x];
                        activation.apply_slice_on(isa, &mut one);
                        one[0]
                    })
                    .collect();
                assert_same_bits(&format!("{activation:?} {isa}"), &together, &alone);
            }
        }
    }

    #[test]
    fn what_is_not_finite_stays_so_or_has_its_limit() {
        for activation in ALL {
            for isa in available() {
                let mut y = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30, -1e30];
                activation.apply_slice_on(isa, &mut y);
                assert!(y[0].is_nan(), "{activation:?} hides a NaN on {isa}");
                let top = match activation {
                    Activation::Tanh | Activation::Sigmoid => 1.0,
                    Activation::GeluClamped => GELU_LIMIT,
                    _ => f32::INFINITY,
                };
                assert_eq!(y[1], top, "{activation:?} {isa}");
                assert!(
                    y[4].is_finite() || activation == Activation::ReluSquared,
                    "{activation:?}(-1e30) is {} on {isa}",
                    y[4]
                );
            }
        }
    }
}
