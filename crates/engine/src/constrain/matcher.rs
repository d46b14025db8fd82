//! One choice on its way through a grammar.

use crate::error::Error;
use llguidance::api::StopReason;
use llguidance::toktrie::SimpleVob;

/// Where a choice stands. What it says depends on the tokens that it has followed alone.
pub(crate) struct Matcher {
    inner: llguidance::Matcher,
    /// The id behind the vocabulary that stands for the end of the answer.
    end: u32,
    /// The tokens that may come next, once they have been looked for.
    next: Option<SimpleVob>,
}

impl std::fmt::Debug for Matcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Matcher").field("end", &self.end).finish_non_exhaustive()
    }
}

impl Matcher {
    pub(super) fn new(inner: llguidance::Matcher, end: u32) -> Matcher {
        Matcher { inner, end, next: None }
    }

    /// Another one at the same place, of which neither notices what the other follows. It has a lexer of its own: states that
    /// one's text has made must not count for another's limits.
    pub fn fork(&self) -> Matcher {
        Matcher { inner: self.inner.deep_clone(), end: self.end, next: self.next.clone() }
    }

    /// Finds the tokens that may come next.
    ///
    /// # Errors
    /// The library's words about a grammar that is too costly here.
    pub(super) fn look(&mut self) -> Result<(), String> {
        if self.next.is_none() {
            let found = self.inner.compute_mask_or_eos();
            self.next = Some(found.map_err(|_| self.inner.get_error().unwrap_or_default())?);
        }
        Ok(())
    }

    /// Forbids every token that cannot come next. `ends` are those that end an answer: they may come where it may end, and
    /// nowhere else.
    ///
    /// # Errors
    /// A grammar that is too costly here.
    pub fn mask(&mut self, position: usize, ends: &[u32], row: &mut [f32]) -> Result<(), Error> {
        self.look().map_err(|_| self.fault(position))?;
        let Some(set) = &self.next else { return Ok(()) };
        let may_end = set.is_allowed(self.end);
        let kept: Vec<Option<f32>> = ends.iter().map(|&id| row.get(id as usize).copied()).collect();
        let (words, vocab) = (set.as_slice(), self.end as usize);
        for (word, logits) in words.iter().zip(row.chunks_mut(32)) {
            if *word != u32::MAX {
                forbid(*word, logits);
            }
        }
        row.iter_mut().skip(vocab).for_each(|logit| *logit = f32::NEG_INFINITY);
        for (&id, kept) in ends.iter().zip(kept) {
            if let (Some(logit), Some(kept)) = (row.get_mut(id as usize), kept) {
                *logit = if may_end { kept } else { f32::NEG_INFINITY };
            }
        }
        Ok(())
    }

    /// Takes a chosen token.
    ///
    /// # Errors
    /// A grammar that is too costly here.
    pub fn follow(&mut self, position: usize, id: u32) -> Result<(), Error> {
        self.next = None;
        self.inner.consume_token(id).map_err(|_| self.fault(position))
    }

    /// Nothing more may follow.
    pub fn is_complete(&self) -> bool {
        matches!(self.inner.stop_reason(), StopReason::NoExtension | StopReason::EndOfSentence)
    }

    fn fault(&self, position: usize) -> Error {
        let reason = self.inner.get_error().unwrap_or_default();
        Error::ConstraintCost { position, reason: reason.lines().next().unwrap_or_default().into() }
    }
}

/// Forbids those of 32 tokens whose bit is not set.
fn forbid(word: u32, logits: &mut [f32]) {
    for (bit, logit) in logits.iter_mut().enumerate() {
        if word >> bit & 1 == 0 {
            *logit = f32::NEG_INFINITY;
        }
    }
}
