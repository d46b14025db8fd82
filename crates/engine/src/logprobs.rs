//! Log-probabilities of tokens under the model's own distribution, before any processor.

use crate::error::Error;
use serde::{Deserialize, Serialize};

/// A token with its log-probability (natural logarithm) and the likeliest tokens at its place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokenLogprob {
    pub id: u32,
    pub logprob: f32,
    /// The likeliest tokens, best first, of equal ones the lowest id first. The token itself is among them only when it
    /// is one of the likeliest.
    pub top: Vec<(u32, f32)>,
}

/// One row of logits, checked, with what turns it into log-probabilities.
#[derive(Debug, Clone, Copy)]
pub struct Distribution<'a> {
    logits: &'a [f32],
    /// `ln(sum(exp(logits)))`
    normaliser: f64,
}

impl<'a> Distribution<'a> {
    /// # Errors
    /// [`Error::NonFinite`] when a logit is NaN or infinite; `position` is the place of the token the row is for.
    pub fn new(logits: &'a [f32], position: usize) -> Result<Distribution<'a>, Error> {
        check_finite(logits, position)?;
        let highest = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        let sum: f64 = logits.iter().map(|&logit| (f64::from(logit) - highest).exp()).sum();
        Ok(Distribution { logits, normaliser: highest + sum.ln() })
    }

    /// The log-probability of a token; `-inf` for one outside the row.
    pub fn logprob(&self, id: u32) -> f32 {
        self.logits.get(id as usize).map_or(f32::NEG_INFINITY, |&logit| (f64::from(logit) - self.normaliser) as f32)
    }

    /// The likeliest token; of equal ones the lowest id.
    pub fn likeliest(&self) -> u32 {
        let best = |best: usize, (id, logit): (usize, &f32)| if *logit > self.logits[best] { id } else { best };
        self.logits.iter().enumerate().fold(0, best) as u32
    }

    /// Kullback-Leibler divergence from `reference`, a row of the same length, in nats: `sum p_ref ln(p_ref / p)`.
    pub fn divergence_from(&self, reference: &Distribution<'_>) -> f64 {
        let pairs = self.logits.iter().zip(reference.logits);
        let parts = pairs.map(|(&ours, &theirs)| {
            let (ours, theirs) = (f64::from(ours) - self.normaliser, f64::from(theirs) - reference.normaliser);
            theirs.exp() * (theirs - ours)
        });
        // Rounding may leave a little below zero.
        parts.sum::<f64>().max(0.0)
    }

    /// A token with its `count` likeliest alternatives.
    pub fn of(&self, id: u32, count: usize) -> TokenLogprob {
        TokenLogprob { id, logprob: self.logprob(id), top: self.top(count) }
    }

    /// The `count` likeliest tokens.
    pub fn top(&self, count: usize) -> Vec<(u32, f32)> {
        let count = count.min(self.logits.len());
        if count == 0 {
            return Vec::new();
        }
        let better = |a: &u32, b: &u32| {
            let by_logit = self.logits[*b as usize].total_cmp(&self.logits[*a as usize]);
            by_logit.then(a.cmp(b))
        };
        let mut ids: Vec<u32> = (0..self.logits.len() as u32).collect();
        ids.select_nth_unstable_by(count - 1, better);
        ids.truncate(count);
        ids.sort_unstable_by(better);
        ids.into_iter().map(|id| (id, self.logprob(id))).collect()
    }
}

/// Damaged weights or an overflow show in the logits first: nothing is chosen from such a row.
pub fn check_finite(logits: &[f32], position: usize) -> Result<(), Error> {
    // Without an early end this is vector code; as good as every row is finite.
    if logits.iter().fold(true, |finite, logit| finite & logit.is_finite()) {
        return Ok(());
    }
    let mut bad = logits.iter().enumerate().filter(|(_, logit)| !logit.is_finite());
    match bad.next() {
        None => Ok(()),
        Some((token, &value)) => {
            Err(Error::NonFinite { position, count: 1 + bad.count(), vocab: logits.len(), token, value })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_sum_to_one_and_the_best_come_first() {
        let row = [1.0, 3.0, 3.0, -80.0, 2.0];
        let distribution = Distribution::new(&row, 0).unwrap();
        let sum: f64 = (0..5).map(|id| f64::from(distribution.logprob(id)).exp()).sum();
        assert!((sum - 1.0).abs() < 1e-6);
        let token = distribution.of(4, 3);
        assert_eq!(token.top.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1, 2, 4]);
        assert_eq!(token.logprob, token.top[2].1);
        assert_eq!(distribution.top(99).len(), 5);
        assert!(distribution.top(0).is_empty());
        assert_eq!(distribution.logprob(5), f32::NEG_INFINITY);
    }

    #[test]
    fn rows_that_are_not_numbers_are_refused_with_their_place() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let error = Distribution::new(&[0.0, bad, bad], 7).unwrap_err();
            assert!(matches!(error, Error::NonFinite { position: 7, count: 2, vocab: 3, token: 1, .. }), "{error}");
            assert!(error.to_string().starts_with("non-finite logits at position 7"), "{error}");
        }
    }
}
