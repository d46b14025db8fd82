//! Arithmetic on slices: the part of Attend that knows numbers and nothing of models.

mod activation;
mod dtype;
mod mask;
mod rope;

pub use activation::Activation;
pub use dtype::DType;
pub use mask::Mask;
pub use rope::Pairing;
