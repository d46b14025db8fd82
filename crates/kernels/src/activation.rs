//! Activation functions and their derivatives.

use crate::arch::{Arch, Portable};
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
        for x in values {
            *x = self.value::<Portable>(*x);
        }
    }

    /// Multiplies each gradient by the derivative at the input that the forward pass saw: `d[i] *= f'(x[i])`.
    pub fn backward_slice(self, x: &[f32], d: &mut [f32]) {
        for (d, &x) in d.iter_mut().zip(x) {
            *d *= self.slope::<Portable>(x);
        }
    }

    #[inline(always)]
    fn value<A: Arch>(self, x: f32) -> f32 {
        match self {
            Activation::Identity => x,
            Activation::Relu => relu(x),
            Activation::ReluSquared => relu(x) * relu(x),
            Activation::Gelu => x * normal_cdf::<A>(x),
            Activation::GeluTanh => 0.5 * x * (1.0 + tanh::<A>(gelu_inner::<A>(x))),
            Activation::QuickGelu => x * sigmoid::<A>(1.702 * x),
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
            // Phi(x) + x phi(x)
            Activation::Gelu => {
                let density = 0.5 * FRAC_2_SQRT_PI * std::f32::consts::FRAC_1_SQRT_2 * exp::<A>(-0.5 * x * x);
                fma::<A>(x, density, normal_cdf::<A>(x))
            }
            Activation::GeluTanh => {
                let t = tanh::<A>(gelu_inner::<A>(x));
                let inner_slope = GELU_SCALE * (1.0 + 3.0 * GELU_CUBIC * x * x);
                0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner_slope
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

/// Not `max`, which would turn a NaN into 0.
#[inline(always)]
fn relu(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x }
}

/// `sqrt(2 / pi)`
const GELU_SCALE: f32 = FRAC_2_SQRT_PI * std::f32::consts::FRAC_1_SQRT_2;
const GELU_CUBIC: f32 = 0.044715;

#[inline(always)]
fn gelu_inner<A: Arch>(x: f32) -> f32 {
    GELU_SCALE * fma::<A>(GELU_CUBIC * x * x, x, x)
}
