//! Training: losses of batches, optimizers, clipping, learning-rate schedules, and the step that joins them.
//!
//! Everything here is a pure function of its inputs and runs in one order, so that a run repeated on the same
//! instruction set gives the same bits.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic))]

mod clip;
mod error;
mod objective;
mod optimizer;
mod schedule;
mod trainer;

pub use clip::{clip, global_norm};
pub use error::Error;
pub use objective::{Count, LossOptions, Targets, TrainBatch, loss_and_gradients};
pub use optimizer::{Adafactor, Adam, Decay, Optimizer, Rule, Sgd, Slot};
pub use schedule::{DecayShape, Schedule};
pub use trainer::{StepReport, TrainOptions, Trainer};
