//! Tokens that must, may or must not come.

use super::{History, LogitsProcessor, retain};
use std::collections::{BTreeMap, BTreeSet};

/// Adds a number to each listed token's logit; `-inf` forbids it.
#[derive(Debug, Clone)]
pub struct LogitBias(pub BTreeMap<u32, f32>);

impl LogitsProcessor for LogitBias {
    fn process(&self, _: &History<'_>, logits: &mut [f32]) {
        for (&id, &bias) in &self.0 {
            if let Some(logit) = logits.get_mut(id as usize) {
                *logit += bias;
            }
        }
    }
}

/// When the listed tokens are forbidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum While {
    Always,
    /// Prompt and answer together are shorter than this (Hugging Face `min_length`).
    ShorterThan(usize),
    /// Fewer tokens than this were generated (`min_tokens`, Hugging Face `min_new_tokens`).
    Before(usize),
    /// The decoder's tokens are exactly this many (`begin_suppress_tokens`).
    At(usize),
}

/// Forbids the listed tokens for a time.
#[derive(Debug, Clone)]
pub struct Forbid {
    pub ids: Vec<u32>,
    pub during: While,
}

impl LogitsProcessor for Forbid {
    fn process(&self, history: &History<'_>, logits: &mut [f32]) {
        let length = history.tokens.len();
        let applies = match self.during {
            While::Always => true,
            While::ShorterThan(limit) => length < limit,
            While::Before(count) => history.generated().len() < count,
            While::At(exactly) => length == exactly,
        };
        if !applies {
            return;
        }
        for &id in &self.ids {
            if let Some(logit) = logits.get_mut(id as usize) {
                *logit = f32::NEG_INFINITY;
            }
        }
    }
}

/// Forbids everything but the listed tokens.
#[derive(Debug, Clone)]
pub struct Allow(pub BTreeSet<u32>);

impl LogitsProcessor for Allow {
    fn process(&self, _: &History<'_>, logits: &mut [f32]) {
        retain(logits, |id, _| self.0.contains(&(id as u32)));
    }
}

/// At one length of the decoder's sequence, one of the listed tokens comes: their logits become 0, all others `-inf`.
#[derive(Debug, Clone)]
pub struct Force {
    pub ids: Vec<u32>,
    /// The length (prompt and answer) before the forced token.
    pub at: usize,
}

impl LogitsProcessor for Force {
    fn process(&self, history: &History<'_>, logits: &mut [f32]) {
        if history.tokens.len() == self.at {
            logits.fill(f32::NEG_INFINITY);
            for &id in &self.ids {
                if let Some(logit) = logits.get_mut(id as usize) {
                    *logit = 0.0;
                }
            }
        }
    }
}

/// From `start` generated tokens on, an end token's logit `l` becomes `l + |l| * (factor^(generated - start) - 1)`, so that
/// long answers end (Hugging Face `exponential_decay_length_penalty`).
#[derive(Debug, Clone)]
pub struct EndingGrowsLikely {
    pub start: usize,
    pub factor: f32,
    pub end_ids: Vec<u32>,
}

impl LogitsProcessor for EndingGrowsLikely {
    fn process(&self, history: &History<'_>, logits: &mut [f32]) {
        let Some(beyond) = history.generated().len().checked_sub(self.start).filter(|beyond| *beyond > 0) else {
            return;
        };
        let growth = f64::from(self.factor).powf(beyond as f64) - 1.0;
        for &id in &self.end_ids {
            if let Some(logit) = logits.get_mut(id as usize).filter(|logit| logit.is_finite()) {
                let grown = f64::from(*logit) + f64::from(logit.abs()) * growth;
                *logit = grown.clamp(f64::from(f32::MIN), f64::from(f32::MAX)) as f32;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::chain::tests::{process_after, process_with};
    use super::*;

    const GONE: f32 = f32::NEG_INFINITY;

    #[test]
    fn forbidding_ends_when_it_should() {
        let forbid = |during| Forbid { ids: vec![0, 99], during };
        assert_eq!(process_after(&forbid(While::Always), &[], &[1.0, 1.0]), [GONE, 1.0]);
        for (during, prompt, length, applies) in [
            (While::ShorterThan(3), 0, 2, true),
            (While::ShorterThan(3), 0, 3, false),
            (While::Before(2), 3, 4, true),
            (While::Before(2), 3, 5, false),
            (While::At(3), 3, 3, true),
            (While::At(3), 3, 4, false),
        ] {
            let row = process_with(&forbid(during), &vec![1; length], prompt, &[1.0, 1.0]);
            assert_eq!(row[0] == GONE, applies, "{during:?} {length}");
        }
    }

    #[test]
    fn forcing_and_allowing() {
        let force = Force { ids: vec![1], at: 2 };
        assert_eq!(process_after(&force, &[0, 0], &[5.0, 1.0]), [GONE, 0.0]);
        assert_eq!(process_after(&force, &[0], &[5.0, 1.0]), [5.0, 1.0]);
        assert_eq!(process_after(&Allow([1].into()), &[], &[5.0, 1.0]), [GONE, 1.0]);
        let bias = LogitBias([(0, 2.0), (1, GONE)].into());
        assert_eq!(process_after(&bias, &[], &[5.0, 1.0]), [7.0, GONE]);
    }

    #[test]
    fn ending_grows_likely_for_either_sign() {
        let grow = EndingGrowsLikely { start: 1, factor: 2.0, end_ids: vec![0, 1] };
        assert_eq!(process_with(&grow, &[9, 9], 1, &[1.0, -1.0]), [1.0, -1.0]);
        assert_eq!(process_with(&grow, &[9, 9, 9, 9], 1, &[1.0, -1.0]), [4.0, 2.0]);
        let row = process_with(&grow, &vec![9; 100_000], 1, &[1.0, GONE]);
        assert!(row[0].is_finite() && row[1] == GONE);
    }
}
