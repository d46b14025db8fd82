//! What turns gradients into better weights: optimizers, clipping, learning-rate schedules.
//!
//! Everything here is a pure function of its inputs and runs in one order, so that a run repeated on the same
//! instruction set gives the same bits.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic))]

mod clip;
mod optimizer;
mod schedule;

pub use clip::{clip, global_norm};
pub use optimizer::{Adafactor, Adam, Decay, Optimizer, Rule, Sgd, Slot};
pub use schedule::{DecayShape, Schedule};
