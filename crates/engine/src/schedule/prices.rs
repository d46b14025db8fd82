//! What a guess costs on this machine, in tokens that all sequences together lose by it: measured step by step.
//!
//! A step of S sequences takes `plain` seconds without guesses; each guess makes it longer by a `share` of that. In the longer
//! time plain steps would have given S times so many tokens, and that is the price that a guess has to earn. It grows with S:
//! few sequences wait for memory, many for arithmetic. Whatever is found here, answers are the same.

use crate::work::Price;
use std::time::Duration;

/// Sequences up to which guessing is thought of at all.
const FEW: usize = 16;

/// Sequences up to which it is known how long a step takes.
const KNOWN: usize = 64;

/// Every so many steps one is plain, because contexts grow and machines have other work.
const AGAIN: usize = 64;

/// What a row and a draft model's token are taken to cost before anything is known: little, so that it is tried.
const FIRST: Price = Price { lookup: 0.05, draft: 0.15 };

/// How much of a new value counts.
const WEIGHT: f64 = 0.25;

/// How much of what a guess cost is forgotten with each step without: a dear one is tried again after a while.
const FORGOTTEN: f64 = 0.005;

/// What was measured.
#[derive(Debug, Default)]
pub(super) struct Prices {
    /// Seconds of a step without guesses, by the number of sequences.
    plain: Vec<Option<f64>>,
    /// By how much of a plain step a guess makes it longer.
    share: Option<f64>,
    /// The same of what the draft model does for it.
    draft: Option<f64>,
    /// Steps since the last plain one.
    guessed: usize,
}

/// A step that read no prompt.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub sequences: usize,
    pub guesses: usize,
    pub took: Duration,
    /// What the draft model took before it.
    pub drafting: Option<Duration>,
}

impl Prices {
    /// The price of a guess in the next step of so many sequences. None: the step is to be plain.
    pub fn of(&self, sequences: usize) -> Option<Price> {
        let known = sequences <= FEW && self.plain.get(sequences).copied().flatten().is_some();
        let price = |share: f64| share * sequences as f64;
        let (row, draft) = (self.share.unwrap_or(FIRST.lookup), self.draft.unwrap_or(FIRST.draft));
        (known && self.guessed < AGAIN).then(|| Price { lookup: price(row), draft: price(row + draft) })
    }

    /// Seconds of a step of so many sequences without guesses, or of the next fewer that is known.
    pub fn plain(&self, sequences: usize) -> Option<f64> {
        self.plain.iter().take(sequences + 1).rev().find_map(|plain| *plain)
    }

    /// Takes in what a step took.
    pub fn learn(&mut self, step: Step) {
        if self.plain.is_empty() {
            self.plain = vec![None; KNOWN + 1];
        }
        let Some(plain) = self.plain.get_mut(step.sequences) else { return };
        let seconds = step.took.as_secs_f64();
        if step.guesses == 0 {
            (*plain, self.guessed) = (mixed(*plain, seconds), 0);
            for (cost, first) in [(&mut self.share, FIRST.lookup), (&mut self.draft, FIRST.draft)] {
                *cost = cost.map(|cost| cost + FORGOTTEN * (first - cost));
            }
            return;
        }
        self.guessed += 1;
        let Some(plain) = plain.filter(|plain| *plain > 0.0) else { return };
        let share = |seconds: f64| (seconds / plain / step.guesses as f64).clamp(0.0, 10.0);
        self.share = mixed(self.share, share((seconds - plain).max(0.0)));
        if let Some(drafting) = step.drafting {
            self.draft = mixed(self.draft, share(drafting.as_secs_f64()));
        }
    }
}

fn mixed(before: Option<f64>, now: f64) -> Option<f64> {
    Some(before.map_or(now, |before| before + WEIGHT * (now - before)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(sequences: usize, guesses: usize, millis: u64, drafting: Option<u64>) -> Step {
        let (took, drafting) = (Duration::from_millis(millis), drafting.map(Duration::from_millis));
        Step { sequences, guesses, took, drafting }
    }

    #[test]
    fn the_first_step_of_so_many_sequences_is_plain() {
        let mut prices = Prices::default();
        assert!(prices.of(1).is_none());
        prices.learn(step(1, 0, 100, None));
        assert_eq!(prices.of(1), Some(FIRST.of_row()));
        assert!(prices.of(2).is_none() && prices.of(17).is_none());
        (0..AGAIN).for_each(|_| prices.learn(step(1, 4, 100, None)));
        assert!(prices.of(1).is_none(), "it is time to measure again");
        prices.learn(step(1, 0, 100, None));
        assert!(prices.of(1).is_some());
    }

    #[test]
    fn what_a_guess_costs_is_what_all_lose() {
        let mut prices = Prices::default();
        for _ in 0..40 {
            prices.learn(step(4, 0, 100, None));
            prices.learn(step(4, 5, 150, Some(200)));
        }
        // A tenth of a step each, in which four sequences would have got a token; the draft takes four tenths.
        let price = prices.of(4).expect("known");
        assert!((price.lookup - 0.4).abs() < 0.01 && (price.draft - 2.0).abs() < 0.05, "{price:?}");
        // A step that is not longer costs nothing.
        let mut prices = Prices::default();
        prices.learn(step(1, 0, 100, None));
        prices.learn(step(1, 3, 90, None));
        assert_eq!(prices.of(1).map(|price| price.lookup), Some(0.0));
    }

    /// A step that took long for another reason does not end guessing for ever.
    #[test]
    fn what_was_dear_once_is_tried_again() {
        let mut prices = Prices::default();
        prices.learn(step(1, 0, 100, None));
        prices.learn(step(1, 1, 2000, None));
        assert!(prices.of(1).is_some_and(|price| price.lookup > 1.0));
        (0..700).for_each(|_| prices.learn(step(1, 0, 100, None)));
        assert!(prices.of(1).is_some_and(|price| price.lookup < 1.0));
    }

    #[test]
    fn a_clock_that_stands_still_is_no_harm() {
        let mut prices = Prices::default();
        prices.learn(step(1, 0, 0, None));
        prices.learn(step(1, 3, 5, Some(1)));
        prices.learn(step(99, 0, 5, None));
        assert_eq!(prices.of(1), Some(FIRST.of_row()));
    }

    impl Price {
        /// Of one sequence: a draft's guess is a row too.
        fn of_row(self) -> Price {
            Price { draft: self.lookup + self.draft, ..self }
        }
    }
}
