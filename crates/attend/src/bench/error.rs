//! What can keep a benchmark from being made.

use super::work::Work;
use std::path::PathBuf;

/// An error of a benchmark. Each names the row or the file at fault.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An option that means nothing for this kind of model.
    #[error("{0}")]
    Choice(String),

    #[error("{work} is {tokens} tokens long, but {limit} tokens are what {whose}; choose fewer")]
    TooLong { work: Work, tokens: usize, limit: usize, whose: &'static str },

    #[error(
        "{work} takes {} of memory ({} of weights, {} of keys and values, {} for a step), and {} are free; choose fewer or \
         shorter sequences, or a smaller type of cache",
        size(*needed), size(*weights), size(*cache), size(*step), size(*available)
    )]
    DoesNotFit { work: Work, needed: u64, weights: u64, cache: u64, step: u64, available: u64 },

    #[error("{}: {problem}", path.display())]
    Other { path: PathBuf, problem: String },

    /// The user wants no more.
    #[error("interrupted")]
    Stopped,

    #[error(transparent)]
    Engine(#[from] attend_engine::Error),
}

impl From<attend_nn::Error> for Error {
    fn from(error: attend_nn::Error) -> Error {
        Error::Engine(error.into())
    }
}

fn size(bytes: u64) -> String {
    crate::cli::screen::binary(bytes)
}
