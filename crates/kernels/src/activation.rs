//! Activation functions and their derivatives.

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
