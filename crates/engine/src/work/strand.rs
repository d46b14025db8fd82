//! One sequence of a request as it is fed: its prompt, or one of the answers to it.

use super::Around;
use crate::error::Error;
use crate::logprobs::{Distribution, TokenLogprob};
use crate::prefix::Past;
use crate::source::{Feed, LogitsSource};
use attend_nn::BLOCK_TOKENS;

/// A sequence with its past. The tokens to feed are in a list that the owner keeps: the prompt's, or those generated after it.
#[derive(Debug)]
pub(crate) struct Strand<T> {
    pub state: T,
    /// Tokens of the list that the state holds.
    pub fed: usize,
    /// The rows of logits after the list's last token (and after those before it that are guesses), once they are there.
    pub rows: Vec<Vec<f32>>,
    /// Log-probabilities of the list's tokens from the second on, where they are wanted.
    pub scores: Vec<TokenLogprob>,
    /// Tokens of the list as far as they were kept for others.
    kept: usize,
    failure: Option<Error>,
}

/// What a strand wants of its next step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'w> {
    pub list: &'w [u32],
    /// Where the list begins in the sequence.
    pub offset: usize,
    /// How many of the list's tokens are fed in all.
    pub until: usize,
    /// How many of its last tokens are guesses: the row before each is wanted too.
    pub guesses: usize,
    /// Whether the list's tokens are scored, each with so many alternatives.
    pub top: Option<usize>,
}

/// A strand's part of a step.
#[derive(Debug)]
pub(crate) struct Part<'w, T> {
    pub feed: Feed<'w, T>,
    pub target: Target<'w>,
}

/// Where a part's rows go.
#[derive(Debug)]
pub(crate) struct Target<'w> {
    /// The place in the sequence of the token that the first row is for.
    position: usize,
    /// The tokens that follow each fed one, where the list has them.
    following: &'w [u32],
    top: Option<usize>,
    rows: &'w mut Vec<Vec<f32>>,
    scores: &'w mut Vec<TokenLogprob>,
    failure: &'w mut Option<Error>,
}

impl<T> Strand<T> {
    /// Keeps the first `fed` of the list's tokens, where the list begins with the sequence.
    pub fn keep<S: LogitsSource<State = T>>(&mut self, source: &S, fed: usize) {
        if self.fed > fed {
            source.truncate(&mut self.state, fed);
            self.fed = fed;
        }
    }

    /// One whose state holds `fed` of its list's tokens.
    pub fn fed(state: T, fed: usize) -> Strand<T> {
        Strand { state, fed, rows: Vec::new(), scores: Vec::new(), kept: fed, failure: None }
    }

    /// Lets the source give back what no later token sees, as none of those that are fed will be taken back. Whole blocks of
    /// `past`, which is fed, are kept for others before.
    pub fn pass<S: LogitsSource<State = T>>(&mut self, around: Around<'_, S>, past: Past<'_>) {
        if let Some(prefixes) = around.prefixes.filter(|_| self.fed / BLOCK_TOKENS > self.kept / BLOCK_TOKENS) {
            prefixes.keep(&self.state, past);
            self.kept = self.fed;
        }
        around.source.pass(&mut self.state);
    }

    /// Whether it feeds one token and guesses behind it: nothing has to be read before its next token is drawn.
    pub fn goes_on(&self, wanted: &Wanted<'_>) -> bool {
        wanted.until <= self.fed + 1 + wanted.guesses
    }

    /// Takes the next tokens to a step, at most `most` of them.
    pub fn part<'w>(&'w mut self, wanted: Wanted<'w>, most: usize) -> Option<Part<'w, T>> {
        let (start, end) = (self.fed, wanted.until.min(self.fed.saturating_add(most)));
        let tokens = wanted.list.get(start..end).filter(|tokens| !tokens.is_empty())?;
        let rows_from = match wanted.top {
            Some(_) => 0,
            None if end == wanted.list.len() => tokens.len().saturating_sub(wanted.guesses + 1),
            None => tokens.len(),
        };
        self.fed = end;
        let target = Target {
            position: wanted.offset + start + 1,
            following: wanted.list.get(start + 1..).unwrap_or_default(),
            top: wanted.top,
            rows: &mut self.rows,
            scores: &mut self.scores,
            failure: &mut self.failure,
        };
        Some(Part { feed: Feed { state: &mut self.state, tokens, rows_from }, target })
    }

    /// What a row of the last step was at fault for.
    pub fn check(&mut self) -> Result<(), Error> {
        self.failure.take().map_or(Ok(()), Err)
    }
}

impl Target<'_> {
    /// Takes the row after the part's token `index`.
    pub fn take(&mut self, index: usize, row: &[f32]) {
        match (self.following.get(index), self.top) {
            (None, _) | (Some(_), None) => self.rows.push(row.to_vec()),
            (Some(&id), Some(top)) => match Distribution::new(row, self.position + index) {
                Ok(distribution) => self.scores.push(distribution.of(id, top)),
                Err(error) => *self.failure = self.failure.take().or(Some(error)),
            },
        }
    }
}

/// What a step has room for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// Tokens that are read, of prompts and of what is fed again.
    pub reading: usize,
}

impl Room {
    /// A strand's next part. The one token of a sequence that goes on, and guesses behind it, need no room; what is read takes as much as is left.
    pub fn part<'w, T>(&mut self, strand: &'w mut Strand<T>, wanted: Wanted<'w>) -> Option<Part<'w, T>> {
        if strand.goes_on(&wanted) {
            return strand.part(wanted, usize::MAX);
        }
        let part = strand.part(wanted, self.reading)?;
        self.reading -= part.feed.tokens.len();
        Some(part)
    }
}
