//! Labels of whole texts, or of pairs.

use super::ability::Task;
use super::labels::{Labels, Problem};
use super::pack::Watch;
use super::reader::{Encoded, TaskModel, Text, each};
use super::{Labelled, best, probabilities, sigmoid};
use crate::error::Error;
use attend_nn::spec::Head;

/// How logits become scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    /// Scores that sum to 1.
    Softmax,
    /// Each by itself, `1 / (1 + exp(-x))`.
    Sigmoid,
    /// As they stand.
    None,
}

/// A model with a sequence-classification head.
#[derive(Debug)]
pub struct Classifier<'m> {
    model: TaskModel<'m>,
    labels: Labels,
    function: Function,
}

/// The labels of one input, the best first.
#[derive(Debug, Clone, PartialEq)]
pub struct Classes {
    pub labels: Vec<Labelled>,
    pub tokens: usize,
    pub cut: bool,
}

impl<'m> Classifier<'m> {
    /// `function`: how logits become scores; None: as the model's `problem_type` says.
    ///
    /// # Errors
    /// A model without this head.
    pub fn new(model: TaskModel<'m>, function: Option<Function>) -> Result<Classifier<'m>, Error> {
        Task::Classify.check(model.model.spec())?;
        let Head::Sequence { labels, .. } = model.model.spec().head else {
            return Err(Error::Unsupported("this model has no sequence-classification head".into()));
        };
        let labels = Labels::of(model.described, labels)?;
        let function = function.unwrap_or(match labels.problem {
            Problem::SingleLabel => Function::Softmax,
            Problem::MultiLabel => Function::Sigmoid,
            Problem::Regression => Function::None,
        });
        Ok(Classifier { model, labels, function })
    }

    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    /// The `top` best labels of each input.
    ///
    /// # Errors
    /// Inputs that are too long or have no tokens; the error says which.
    pub fn classify(&self, texts: &[Text<'_>], top: usize, watch: &mut Watch<'_>) -> Result<Vec<Classes>, Error> {
        self.classes(&self.encode(texts)?, top, watch)
    }

    /// The first half of [`Classifier::classify`], which another thread may do.
    ///
    /// # Errors
    /// As [`Classifier::classify`].
    pub fn encode(&self, texts: &[Text<'_>]) -> Result<Vec<Encoded>, Error> {
        each(texts, |text| self.model.encode(text, false))
    }

    /// The second half.
    ///
    /// # Errors
    /// A model that cannot compute, and work that was cancelled.
    pub fn classes(&self, items: &[Encoded], top: usize, watch: &mut Watch<'_>) -> Result<Vec<Classes>, Error> {
        let rows = self.model.sequence_logits(&items.iter().collect::<Vec<_>>(), watch)?;
        let classes = rows.into_iter().zip(items).map(|(logits, item)| {
            let scores = match self.function {
                Function::Softmax => probabilities(&logits),
                Function::Sigmoid => logits.iter().map(|&x| sigmoid(x)).collect(),
                Function::None => logits,
            };
            let labels = best(&scores, top).into_iter();
            let labels = labels.map(|(index, score)| Labelled { label: self.labels.name(index), score }).collect();
            Classes { labels, tokens: item.encoding.len(), cut: item.cut }
        });
        Ok(classes.collect())
    }
}
