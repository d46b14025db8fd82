//! Labels of tokens, and of the words and names that they make up.

use super::ability::Task;
use super::labels::Labels;
use super::pack::Watch;
use super::probabilities;
use super::reader::{Encoded, TaskModel, Text, each};
use super::tag_groups::{Piece, join_words, merge};
use crate::error::Error;
use attend_nn::Nobody;
use attend_nn::spec::Head;
use attend_text::Origin;
use serde::Serialize;

/// How tokens are put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aggregation {
    /// Not at all.
    None,
    /// Neighbouring tokens of one tag become one entity.
    Simple,
    /// Words first, each with the label of its first token; then neighbouring words of one tag.
    First,
    /// The same, each word with the label whose score is highest on average over its tokens.
    Average,
    /// The same, each word with the label of its token of the highest score.
    Max,
}

/// A part of a text with its label.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Entity {
    pub entity: String,
    pub score: f32,
    /// Position of the token, where tokens are not put together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<usize>,
    pub word: String,
    /// First character, counted in code points.
    pub start: usize,
    /// Behind the last character.
    pub end: usize,
}

/// The entities of one text, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Tags {
    pub entities: Vec<Entity>,
    pub tokens: usize,
    pub cut: bool,
}

/// A model with a token-classification head.
#[derive(Debug)]
pub struct Tagger<'m> {
    model: TaskModel<'m>,
    labels: Labels,
}

impl<'m> Tagger<'m> {
    /// # Errors
    /// A model without this head.
    pub fn new(model: TaskModel<'m>) -> Result<Tagger<'m>, Error> {
        Task::Tag.check(model.model.spec())?;
        let Head::Token { labels, .. } = model.model.spec().head else {
            return Err(Error::Unsupported("this model has no token-classification head".into()));
        };
        let labels = Labels::of(model.described, labels)?;
        Ok(Tagger { model, labels })
    }

    /// The tagged parts of each text, without those whose label is in `ignore`.
    ///
    /// # Errors
    /// Texts that are too long or have no tokens; the error says which.
    pub fn tag(
        &self,
        texts: &[&str],
        aggregation: Aggregation,
        ignore: &[String],
        watch: &mut Watch<'_>,
    ) -> Result<Vec<Tags>, Error> {
        self.tags(texts, &self.encode(texts)?, (aggregation, ignore), watch)
    }

    /// The first half of [`Tagger::tag`], which another thread may do.
    ///
    /// # Errors
    /// As [`Tagger::tag`].
    pub fn encode(&self, texts: &[&str]) -> Result<Vec<Encoded>, Error> {
        let inputs: Vec<Text<'_>> = texts.iter().map(|text| Text::one(text)).collect();
        each(&inputs, |text| self.model.encode(text, false))
    }

    /// The second half.
    ///
    /// # Errors
    /// A model that cannot compute, and work that was cancelled.
    pub fn tags(
        &self,
        texts: &[&str],
        items: &[Encoded],
        (aggregation, ignore): (Aggregation, &[String]),
        watch: &mut Watch<'_>,
    ) -> Result<Vec<Tags>, Error> {
        let references: Vec<&Encoded> = items.iter().collect();
        self.model.each_input(&references, watch, &mut |index, rows| {
            let logits = self.model.computing().logits(rows, &mut Nobody)?;
            super::finite(&logits)?;
            let (text, item) = match (texts.get(index), items.get(index)) {
                (Some(text), Some(item)) => (*text, item),
                _ => return Err(Error::EmptyInput),
            };
            let mut entities = self.entities(text, item, &logits, aggregation);
            entities.retain(|entity| !ignore.contains(&entity.entity));
            Ok(Tags { entities, tokens: item.encoding.len(), cut: item.cut })
        })
    }

    fn entities(&self, text: &str, item: &Encoded, logits: &[f32], aggregation: Aggregation) -> Vec<Entity> {
        let characters: Vec<char> = text.chars().collect();
        let rows = logits.chunks_exact(self.labels.names.len());
        let encoding = &item.encoding;
        let mut pieces = Vec::new();
        for (index, row) in rows.enumerate() {
            // What was added around the text; an unknown word is special too, and part of it.
            let special = matches!(encoding.special.get(index), Some(Some(Origin::PostProcessor(_))));
            if let (false, Some(&(start, end)), Some(piece)) =
                (special, encoding.offsets.get(index), encoding.pieces.get(index))
            {
                let own: String = characters.get(start..end).unwrap_or_default().iter().collect();
                let unknown = encoding.ids.get(index).copied() == self.model.tokenizer.unk();
                let continues = !unknown && self.continues(&characters, start, piece, &own);
                let word = if unknown { own } else { piece.clone() };
                pieces.push(Piece { word, scores: probabilities(row), start, end, index, continues });
            }
        }
        let name = |label: usize| self.labels.name(label);
        let join = |words: &[&str]| self.model.tokenizer.join(words.iter().copied());
        match aggregation {
            Aggregation::None => pieces.iter().map(|piece| piece.alone(&name)).collect(),
            Aggregation::Simple => {
                let alone: Vec<Entity> = pieces.iter().map(|piece| piece.alone(&name)).collect();
                merge(&alone, &join)
            }
            Aggregation::First | Aggregation::Average | Aggregation::Max => {
                merge(&join_words(&pieces, aggregation, &name, &join), &join)
            }
        }
    }

    /// Whether a token continues the word before it. Vocabularies that mark such pieces spell them differently from the
    /// text; with others a token that no space parts from the one before belongs to its word.
    fn continues(&self, text: &[char], start: usize, piece: &str, own: &str) -> bool {
        if self.model.tokenizer.marks_continuations() {
            return piece.chars().count() != own.chars().count();
        }
        let around = text.get(start.saturating_sub(1)..(start + 1).min(text.len())).unwrap_or_default();
        start > 0 && !around.contains(&' ')
    }
}
