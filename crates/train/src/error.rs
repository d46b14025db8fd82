//! What can go wrong in training.

use thiserror::Error;

#[derive(Debug, Error)]
pub enum Error {
    #[error(transparent)]
    Model(#[from] attend_nn::Error),
    #[error("{what}: {found} targets for {expected} outputs")]
    Targets { what: &'static str, expected: usize, found: usize },
    #[error("the target {target} is not one of the model's {classes} classes")]
    Class { target: usize, classes: usize },
    #[error("{what} targets need {needs}")]
    Unsuited { what: &'static str, needs: &'static str },
    #[error("nothing is trained: {0}")]
    Nothing(&'static str),
    #[error("step {step}: the loss is {loss} and the norm of the gradients {norm}; the weights are left as they were")]
    NotFinite { step: u64, loss: f64, norm: f64 },
}
