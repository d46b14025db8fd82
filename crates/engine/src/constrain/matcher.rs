//! One choice on its way through a grammar.

use super::ledger::{Ledger, Share};
use super::walker::Walker;
use crate::error::Error;
use llguidance::panic_utils::catch_unwind;
use llguidance::toktrie::SimpleVob;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long finding the next tokens may take where a step waits for it. What a thread costs that is woken for it is some
/// tens of microseconds, and common schemas take one or two.
const MOMENT: Duration = Duration::from_micros(200);

/// How many times in a row it must have been quick until it is expected to be.
const CALM: u32 = 64;

/// Where a choice stands. What it says depends on the tokens that it has followed alone.
pub(crate) struct Matcher {
    inner: Box<dyn Walker>,
    /// The id behind the vocabulary that stands for the end of the answer.
    end: u32,
    /// The tokens that may come next, once they have been looked for.
    next: Option<SimpleVob>,
    /// Why it cannot go on.
    trouble: Option<Trouble>,
    pace: Pace,
    share: Share,
}

/// How long finding the next tokens takes, of all matchers of one grammar together: how many more times it must be quick
/// before it is waited for again. It changes when a mask is made and nothing else.
#[derive(Clone, Default)]
struct Pace(Arc<AtomicU32>);

/// Why a matcher cannot go on.
#[derive(Debug, Clone)]
enum Trouble {
    Cost(String),
    Panic(String),
}

impl std::fmt::Debug for Matcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Matcher").field("bytes", &self.share.bytes()).finish_non_exhaustive()
    }
}

impl Matcher {
    pub(super) fn new(inner: Box<dyn Walker>, end: u32, ledger: &Arc<Ledger>) -> Matcher {
        let share = ledger.share(inner.bytes());
        Matcher { inner, end, next: None, trouble: None, pace: Pace::default(), share }
    }

    /// One that takes its time from the beginning.
    #[cfg(test)]
    pub fn slow(inner: Box<dyn Walker>, end: u32, grammars: &super::Grammars) -> Matcher {
        Matcher { pace: Pace(Arc::new(AtomicU32::new(u32::MAX))), ..Matcher::new(inner, end, grammars.ledger()) }
    }

    /// Another one at the same place, of which neither notices what the other follows.
    pub fn fork(&self) -> Matcher {
        let (next, trouble, pace) = (self.next.clone(), self.trouble.clone(), self.pace.clone());
        let share = self.share.ledger().share(self.share.bytes());
        Matcher { inner: self.inner.fork(), end: self.end, next, trouble, pace, share }
    }

    /// Bytes that it holds, about.
    pub fn bytes(&self) -> u64 {
        self.share.bytes()
    }

    /// Counts what it holds now.
    fn weigh(&mut self) {
        let masks = self.next.as_ref().map_or(0, |next| size_of_val(next.as_slice()) as u64);
        if self.trouble.is_none() {
            self.share.set(self.inner.bytes() + masks);
        }
    }

    /// Whether a step should not wait for it to find what may come next.
    pub fn is_slow(&self) -> bool {
        self.pace.is_slow()
    }

    /// What the inner one says, unless it has said before that it cannot go on.
    fn ask<T>(&mut self, what: impl FnOnce(&mut dyn Walker) -> Result<T, String>) -> Option<T> {
        if self.trouble.is_some() {
            return None;
        }
        let inner = &mut self.inner;
        match catch_unwind(AssertUnwindSafe(|| Ok(what(inner.as_mut())))) {
            Ok(Ok(found)) => return Some(found),
            Ok(Err(reason)) if reason.starts_with("panic: ") => self.trouble = Some(Trouble::Panic(reason)),
            Ok(Err(reason)) => self.trouble = Some(Trouble::Cost(reason)),
            Err(panic) => self.trouble = Some(Trouble::Panic(panic.to_string())),
        }
        None
    }

    /// Finds the tokens that may come next. What is wrong with that is said by [`Matcher::mask`].
    pub fn look(&mut self) {
        if self.next.is_none() {
            let begun = Instant::now();
            self.next = self.ask(|inner| inner.look());
            self.pace.learn(begun.elapsed());
            self.weigh();
        }
    }

    /// The same for a grammar that has followed nothing yet. It makes the first states of a lexer, which says nothing of
    /// those that come.
    ///
    /// # Errors
    /// The library's words about a grammar that is too costly here.
    pub(super) fn look_first(&mut self) -> Result<(), String> {
        self.next = self.ask(|inner| inner.look());
        self.weigh();
        match &self.trouble {
            Some(Trouble::Cost(reason) | Trouble::Panic(reason)) => Err(reason.clone()),
            None => Ok(()),
        }
    }

    /// Forbids every token that cannot come next. `ends` are those that end an answer: they may come where it may end, and
    /// nowhere else.
    ///
    /// # Errors
    /// A grammar that is too costly here.
    pub fn mask(&mut self, position: usize, ends: &[u32], row: &mut [f32]) -> Result<(), Error> {
        self.look();
        self.check(position)?;
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
        self.ask(|inner| inner.follow(id));
        self.check(position)
    }

    /// Nothing more may follow.
    pub fn is_complete(&self) -> bool {
        self.inner.is_complete()
    }

    fn check(&self, position: usize) -> Result<(), Error> {
        let line = |reason: &str| reason.lines().next().unwrap_or_default().to_owned();
        match &self.trouble {
            None => Ok(()),
            Some(Trouble::Cost(reason)) => Err(Error::ConstraintCost { position, reason: line(reason) }),
            Some(Trouble::Panic(reason)) => Err(Error::ConstraintFault { position, reason: line(reason) }),
        }
    }
}

impl Pace {
    fn is_slow(&self) -> bool {
        self.0.load(Relaxed) > 0
    }

    fn learn(&self, took: Duration) {
        let calmer = |left: u32| Some(left.saturating_sub(1));
        // A count that several change at once is as good as any.
        match took > MOMENT {
            true => self.0.store(CALM, Relaxed),
            false => _ = self.0.fetch_update(Relaxed, Relaxed, calmer),
        }
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
