//! The tasks on tiny models with random weights: formulas, orders, shapes of answers, refusals.

#[path = "../common/mod.rs"]
mod common;
mod company;
mod converted;
mod formats;
mod heads;
mod pooling;
mod ranking;
mod recorded;
mod support;
