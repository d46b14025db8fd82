//! Arithmetic on slices: the part of Attend that knows numbers and nothing of models.

mod activation;
mod dtype;
mod mask;
mod positions;
mod rope;

pub use activation::Activation;
pub use dtype::DType;
pub use mask::Mask;
pub use positions::{
    RopeScaling, SinusoidLayout, SlopeOrder, alibi_bias, alibi_slopes, log_bucket, relative_bucket, rope_frequencies,
    rope_tables, sinusoidal,
};
pub use rope::Pairing;
