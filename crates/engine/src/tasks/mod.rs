//! What a model is asked beside writing text: vectors, labels, tags, fillings, answers.
//!
//! A task stands over a [`TaskModel`]: a loaded model and its tokenizer. It takes a list of inputs and gives as many
//! answers, in the order of the inputs. Inside, inputs are sorted by length and packed into batches without padding
//! ([`pack`]); as no arithmetic depends on the batch, an answer is bit for bit the one that its input gets alone.

pub mod ability;
pub mod answer;
pub mod classify;
pub mod embed;
pub mod fill;
mod labels;
pub mod pack;
pub mod pooling;
pub mod reader;
pub mod rerank;
pub mod sentence;
pub mod similarity;
pub mod sparse;
pub mod tag;
mod tag_groups;
pub mod zero_shot;

pub use ability::Task;
pub use labels::{Labels, Problem};
pub use pack::{Step, Watch};
pub use pooling::Pooling;
pub use reader::{BATCH_TOKENS, Encoded, Limit, TaskModel, TaskOptions, Text};

use crate::error::Error;
use attend_kernels::softmax;

/// A label with its score.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Labelled {
    pub label: String,
    pub score: f32,
}

/// The largest values with their indices, best first; of equal ones the lowest index first.
pub(crate) fn best(values: &[f32], count: usize) -> Vec<(usize, f32)> {
    let mut all: Vec<(usize, f32)> = values.iter().copied().enumerate().collect();
    let order = |a: &(usize, f32), b: &(usize, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    if count < all.len() && count > 0 {
        all.select_nth_unstable_by(count - 1, order);
    }
    all.truncate(count);
    all.sort_by(order);
    all
}

/// The index of the largest value, the first of equals.
pub(crate) fn argmax(values: &[f32]) -> usize {
    let better = |best: usize, index: usize| if values[index] > values[best] { index } else { best };
    (0..values.len()).reduce(better).unwrap_or(0)
}

pub(crate) fn probabilities(logits: &[f32]) -> Vec<f32> {
    let mut probs = logits.to_vec();
    softmax(&mut probs);
    probs
}

pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// Refuses what a model with damaged weights computes.
pub(crate) fn finite(values: &[f32]) -> Result<(), Error> {
    if values.iter().all(|value| value.is_finite()) { Ok(()) } else { Err(Error::DamagedAnswer) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_come_first_and_ties_in_order() {
        assert_eq!(best(&[1.0, 3.0, 3.0, 2.0], 3), [(1, 3.0), (2, 3.0), (3, 2.0)]);
        assert_eq!(best(&[1.0], 5), [(0, 1.0)]);
        assert_eq!(best(&[1.0, 2.0], 0), []);
        assert_eq!((argmax(&[1.0, 2.0, 2.0]), argmax(&[])), (1, 0));
    }

    #[test]
    fn what_is_no_number_is_refused() {
        assert!(finite(&[0.0, f32::NAN]).is_err() && finite(&[f32::INFINITY]).is_err() && finite(&[1.0]).is_ok());
    }
}
