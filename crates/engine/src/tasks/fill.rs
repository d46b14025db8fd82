//! Filling the gaps of a text: the likeliest tokens for each mask.

use super::ability::Task;
use super::pack::Watch;
use super::reader::{Encoded, TaskModel, Text, each};
use super::{best, probabilities};
use crate::error::Error;
use attend_nn::Nobody;
use serde::Serialize;

/// A token for a gap.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Filling {
    /// The token's text.
    pub token: String,
    pub id: u32,
    /// Its probability.
    pub score: f32,
    /// The whole text with this token in the gap; other gaps stay.
    pub sequence: String,
}

/// The fillings of one text: a list for each of its masks, the likeliest first.
#[derive(Debug, Clone, PartialEq)]
pub struct Filled {
    pub masks: Vec<Vec<Filling>>,
    pub tokens: usize,
    pub cut: bool,
}

/// A masked language model.
#[derive(Debug)]
pub struct Filler<'m> {
    model: TaskModel<'m>,
    mask: u32,
}

impl<'m> Filler<'m> {
    /// # Errors
    /// A model without a masked-language-model head, a tokenizer without a mask.
    pub fn new(model: TaskModel<'m>) -> Result<Filler<'m>, Error> {
        Task::Fill.check(model.model.spec())?;
        let usual = || ["[MASK]", "<mask>"].into_iter().find_map(|token| model.tokenizer.id(token));
        let mask = model.tokenizer.mask().or_else(usual);
        let mask = mask.ok_or_else(|| Error::Unsupported("the model's tokenizer has no mask token".into()))?;
        Ok(Filler { model, mask })
    }

    /// The mask as texts spell it.
    pub fn mask(&self) -> String {
        self.model.tokenizer.token(self.mask).unwrap_or_default()
    }

    /// The `top` likeliest tokens for every mask of each text. Special tokens that are spelled in a text count as such.
    ///
    /// # Errors
    /// Texts without a mask, or too long; the error says which.
    pub fn fill(&self, texts: &[&str], top: usize, watch: &mut Watch<'_>) -> Result<Vec<Filled>, Error> {
        self.fillings(&self.encode(texts)?, top, watch)
    }

    /// The first half of [`Filler::fill`], which another thread may do.
    ///
    /// # Errors
    /// As [`Filler::fill`].
    pub fn encode(&self, texts: &[&str]) -> Result<Vec<Encoded>, Error> {
        let texts: Vec<Text<'_>> = texts.iter().map(|text| Text::one(text)).collect();
        each(&texts, |text| {
            let item = self.model.encode(text, true)?;
            if item.encoding.ids.contains(&self.mask) {
                return Ok(item);
            }
            let wanted = format!("the text must contain {} where a token is wanted", self.mask());
            Err(Error::Unsupported(wanted))
        })
    }

    /// The second half.
    ///
    /// # Errors
    /// A model that cannot compute, and work that was cancelled.
    pub fn fillings(&self, items: &[Encoded], top: usize, watch: &mut Watch<'_>) -> Result<Vec<Filled>, Error> {
        let width = self.model.width();
        self.model.each_input(&items.iter().collect::<Vec<&Encoded>>(), watch, &mut |index, rows| {
            let Some(item) = items.get(index) else { return Err(Error::EmptyInput) };
            let ids = &item.encoding.ids;
            let places: Vec<usize> = (0..ids.len()).filter(|&place| ids.get(place) == Some(&self.mask)).collect();
            let masked = |place: &usize| rows.get(place * width..(place + 1) * width).unwrap_or_default().to_vec();
            let masked: Vec<f32> = places.iter().flat_map(masked).collect();
            let logits = self.model.computing().logits(&masked, &mut Nobody)?;
            super::finite(&logits)?;
            let rows = logits.chunks_exact(logits.len() / places.len().max(1));
            let several = places.len() > 1;
            let fill = |(&place, row): (&usize, &[f32])| {
                let found = best(&probabilities(row), top).into_iter();
                found.map(|(id, score)| self.filling(ids, place, id as u32, score, several)).collect()
            };
            let masks = places.iter().zip(rows).map(fill).collect();
            Ok(Filled { masks, tokens: ids.len(), cut: item.cut })
        })
    }

    /// With several masks the others stay visible, and with them the other special tokens.
    fn filling(&self, ids: &[u32], place: usize, id: u32, score: f32, several: bool) -> Filling {
        let tokenizer = self.model.tokenizer;
        let mut filled = ids.to_vec();
        if let Some(slot) = filled.get_mut(place) {
            *slot = id;
        }
        filled.retain(|id| Some(*id) != tokenizer.pad());
        Filling { token: tokenizer.decode(&[id], false), id, score, sequence: tokenizer.decode(&filled, !several) }
    }
}
