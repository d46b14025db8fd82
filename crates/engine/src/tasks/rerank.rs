//! Which documents answer a query: by a cross-encoder that reads both together, or by the likeness of their vectors.

use super::ability::Task;
use super::embed::{Embedder, Embedding, Item, Role};
use super::pack::Watch;
use super::reader::{Encoded, TaskModel, Text, each};
use super::sigmoid;
use crate::error::Error;
use attend_model::Described;
use attend_nn::spec::{Head, ModelSpec};

/// A model that scores documents.
#[derive(Debug)]
pub enum Reranker<'m> {
    /// A sequence head of one score over query and document.
    Cross { model: TaskModel<'m>, sigmoid: bool },
    /// Vectors of query and documents.
    Vectors(Box<Embedder<'m>>),
}

/// Query and documents made ready: together, or each by itself with the query first.
#[derive(Debug)]
pub enum Encodings {
    Pairs(Vec<Encoded>),
    Items(Vec<Item>),
}

impl Encodings {
    /// Tokens of all.
    pub fn tokens(&self) -> usize {
        match self {
            Encodings::Pairs(items) => items.iter().map(|item| item.encoding.len()).sum(),
            Encodings::Items(items) => items.iter().map(|item| item.encoded.encoding.len()).sum(),
        }
    }
}

/// A document with its score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ranked {
    /// The document's place in the list that was given.
    pub index: usize,
    pub score: f32,
    /// Query or document were cut.
    pub cut: bool,
}

/// Whether a model of this description reads query and document together.
pub fn is_cross_encoder(spec: &ModelSpec) -> bool {
    matches!(spec.head, Head::Sequence { labels: 1, .. })
}

impl<'m> Reranker<'m> {
    /// A cross-encoder, whose scores go through the logistic function unless its configuration names another or `raw`
    /// asks for none.
    ///
    /// # Errors
    /// A model with another head.
    pub fn cross(model: TaskModel<'m>, raw: bool) -> Result<Reranker<'m>, Error> {
        Task::Rerank.check(model.model.spec())?;
        let sigmoid = !raw && logistic(model.described)?;
        Ok(Reranker::Cross { model, sigmoid })
    }

    /// The documents' scores for a query, the best first, equal ones in order.
    ///
    /// # Errors
    /// As for the model's kind; an error of an input says which document it is about.
    pub fn rank(&self, query: &str, documents: &[&str], watch: &mut Watch<'_>) -> Result<Vec<Ranked>, Error> {
        self.ranked(&self.encode(query, documents)?, watch)
    }

    /// The first half of [`Reranker::rank`], which another thread may do.
    ///
    /// # Errors
    /// As [`Reranker::rank`].
    pub fn encode(&self, query: &str, documents: &[&str]) -> Result<Encodings, Error> {
        match self {
            Reranker::Cross { model, .. } => {
                let pairs: Vec<Text<'_>> = documents.iter().map(|document| Text::pair(query, document)).collect();
                Ok(Encodings::Pairs(each(&pairs, |pair| model.encode(pair, false))?))
            }
            Reranker::Vectors(embedder) if embedder.per_token() => {
                Err(Error::Unsupported("this model gives a vector for each token; choose a pooling".into()))
            }
            Reranker::Vectors(embedder) => {
                let mut items = embedder.items(&[query], Role::Query)?;
                items.extend(embedder.items(documents, Role::Document)?);
                Ok(Encodings::Items(items))
            }
        }
    }

    /// The second half.
    ///
    /// # Errors
    /// A model that cannot compute, and work that was cancelled.
    pub fn ranked(&self, encodings: &Encodings, watch: &mut Watch<'_>) -> Result<Vec<Ranked>, Error> {
        let mut ranked = match (self, encodings) {
            (Reranker::Cross { model, sigmoid }, Encodings::Pairs(items)) => cross(model, *sigmoid, items, watch)?,
            (Reranker::Vectors(embedder), Encodings::Items(items)) => vectors(embedder, items, watch)?,
            (Reranker::Cross { .. }, Encodings::Items(_)) | (Reranker::Vectors(_), Encodings::Pairs(_)) => {
                return Err(Error::Unsupported("these texts were made ready for another model".into()));
            }
        };
        ranked.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.index.cmp(&b.index)));
        Ok(ranked)
    }
}

fn cross(
    model: &TaskModel<'_>,
    logistic: bool,
    items: &[Encoded],
    watch: &mut Watch<'_>,
) -> Result<Vec<Ranked>, Error> {
    let logits = model.sequence_logits(&items.iter().collect::<Vec<_>>(), watch)?;
    let score = |row: &Vec<f32>| row.first().map_or(f32::NAN, |&x| if logistic { sigmoid(x) } else { x });
    let ranked = logits.iter().zip(items).enumerate();
    Ok(ranked.map(|(index, (row, item))| Ranked { index, score: score(row), cut: item.cut }).collect())
}

/// The first item is the query.
fn vectors(embedder: &Embedder<'_>, items: &[Item], watch: &mut Watch<'_>) -> Result<Vec<Ranked>, Error> {
    let found = embedder.vectors(items, watch)?.into_iter().collect::<Result<Vec<Embedding>, Error>>()?;
    let Some((query, documents)) = found.split_first() else { return Ok(Vec::new()) };
    let score = |values: &[f32]| embedder.similarity().of(&query.values, values);
    let ranked = documents.iter().enumerate();
    Ok(ranked.map(|(index, d)| Ranked { index, score: score(&d.values), cut: d.cut || query.cut }).collect())
}

/// Whether the configuration leaves the scores' function at its default, the logistic one, or names it.
fn logistic(described: &Described) -> Result<bool, Error> {
    let config = described.checkpoint.config();
    const OLD: &str = "sbert_ce_default_activation_function";
    let nested = config.object("sentence_transformers")?;
    let new = nested.as_ref().and_then(|nested| nested.value("activation_fn"));
    let (key, value) = match (new, config.value(OLD)) {
        (Some(value), _) => ("sentence_transformers.activation_fn", value),
        (None, Some(value)) => (OLD, value),
        (None, None) => return Ok(true),
    };
    match value.as_str().and_then(|name| name.rsplit('.').next()) {
        Some("Sigmoid") => Ok(true),
        Some("Identity") => Ok(false),
        _ => Err(config.bad(key, format!("{value} is not known")).into()),
    }
}
