//! Labels that nobody trained for: a model of textual entailment judges "this example is LABEL" about the text
//! (Yin et al. 2019).

use super::ability::Task;
use super::labels::Labels;
use super::pack::Watch;
use super::reader::{Encoded, TaskModel, Text};
use super::{Labelled, best, probabilities};
use crate::error::Error;
use attend_nn::spec::Head;
use attend_text::TruncationStrategy;

/// The sentence that a label is put into.
pub const TEMPLATE: &str = "This example is {}.";

/// An entailment model.
#[derive(Debug)]
pub struct ZeroShot<'m> {
    model: TaskModel<'m>,
    entailment: usize,
    /// What is weighed against entailment where labels do not exclude one another.
    contradiction: usize,
}

/// A text with the labels that it may have.
#[derive(Debug, Clone, Copy)]
pub struct Candidates<'t> {
    pub text: &'t str,
    pub labels: &'t [String],
}

/// Scores of one text's labels, the best first.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    pub labels: Vec<Labelled>,
    pub cut: bool,
}

impl<'m> ZeroShot<'m> {
    /// # Errors
    /// A model without a sequence-classification head, or whose labels name no entailment.
    pub fn new(model: TaskModel<'m>) -> Result<ZeroShot<'m>, Error> {
        Task::ZeroShot.check(model.model.spec())?;
        let Head::Sequence { labels: count, .. } = model.model.spec().head else {
            return Err(Error::Unsupported("this model has no sequence-classification head".into()));
        };
        let labels = Labels::of(model.described, count)?;
        let named = |start: &str| labels.names.iter().position(|name| name.to_lowercase().starts_with(start));
        let entailment = named("entail").ok_or_else(|| {
            let names = labels.names.join(", ");
            Error::Unsupported(format!("this model was not trained on entailment: its labels are {names}"))
        })?;
        // Where none is named contradiction it is the first label, or the last when entailment is the first.
        let other = if entailment == 0 { count - 1 } else { 0 };
        Ok(ZeroShot { model, entailment, contradiction: named("contra").unwrap_or(other) })
    }

    /// Scores of each text's labels. `template` has `{}` where the label goes. With `multi` every label is judged by
    /// itself (entailment against contradiction); else the scores of a text's labels sum to 1.
    ///
    /// # Errors
    /// A template without `{}`, texts without labels, inputs that are too long.
    pub fn judge(
        &self,
        texts: &[Candidates<'_>],
        template: &str,
        multi: bool,
        watch: &mut Watch<'_>,
    ) -> Result<Vec<Judged>, Error> {
        self.judged(texts, &self.encode(texts, template)?, multi, watch)
    }

    /// The first half of [`ZeroShot::judge`], which another thread may do: each text with each of its labels.
    ///
    /// # Errors
    /// As [`ZeroShot::judge`].
    pub fn encode(&self, texts: &[Candidates<'_>], template: &str) -> Result<Vec<Encoded>, Error> {
        if !template.contains("{}") {
            return Err(Error::parameter("hypothesis_template", template, "it must contain {} where the label goes"));
        }
        let mut items = Vec::new();
        for (index, Candidates { text, labels }) in texts.iter().enumerate() {
            if labels.is_empty() {
                return Err(Error::parameter("labels", "empty", "at least one label is wanted").of_input(index));
            }
            for label in *labels {
                let hypothesis = template.replacen("{}", label, 1);
                // The hypothesis is whole or means nothing.
                let pair = Text::pair(text, &hypothesis);
                let item = self.model.encode_cutting(pair, false, TruncationStrategy::OnlyFirst);
                items.push(item.map_err(|source| source.of_input(index))?);
            }
        }
        Ok(items)
    }

    /// The second half.
    ///
    /// # Errors
    /// A model that cannot compute, and work that was cancelled.
    pub fn judged(
        &self,
        texts: &[Candidates<'_>],
        items: &[Encoded],
        multi: bool,
        watch: &mut Watch<'_>,
    ) -> Result<Vec<Judged>, Error> {
        let logits = self.model.sequence_logits(&items.iter().collect::<Vec<&Encoded>>(), watch)?;
        let (mut rows, mut items) = (logits.as_slice(), items);
        let judged = texts.iter().map(|Candidates { labels, .. }| {
            let (own, behind) = rows.split_at(labels.len());
            let (read, unread) = items.split_at(labels.len());
            (rows, items) = (behind, unread);
            let scores = self.scores(own, multi || labels.len() == 1);
            let named =
                |(index, score): (usize, f32)| labels.get(index).map(|label| Labelled { label: label.clone(), score });
            let labels = best(&scores, labels.len()).into_iter().filter_map(named).collect();
            Judged { labels, cut: read.iter().any(|item| item.cut) }
        });
        Ok(judged.collect())
    }

    fn scores(&self, rows: &[Vec<f32>], independent: bool) -> Vec<f32> {
        let logit = |row: &[f32], label: usize| row.get(label).copied().unwrap_or(f32::NAN);
        if independent {
            let pair = |row: &Vec<f32>| [logit(row, self.contradiction), logit(row, self.entailment)];
            rows.iter().map(|row| probabilities(&pair(row))[1]).collect()
        } else {
            probabilities(&rows.iter().map(|row| logit(row, self.entailment)).collect::<Vec<f32>>())
        }
    }
}
