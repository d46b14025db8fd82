//! How a position becomes numbers: rotary frequencies, ALiBi slopes, relative buckets, sinusoidal tables.
//!
//! Pure functions of a few numbers. Where the reference computes in float32, so do these: a bucket's edge or an angle
//! at position 100,000 depends on it.

mod alibi;
mod buckets;
mod frequencies;
mod sinusoidal;

pub use alibi::{SlopeOrder, alibi_bias, alibi_slopes};
pub use buckets::{log_bucket, relative_bucket};
pub use frequencies::{RopeScaling, rope_frequencies, rope_tables};
pub use sinusoidal::{SinusoidLayout, sinusoidal};
