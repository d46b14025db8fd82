//! How much of prompts a step reads beside sequences that go on (chunked prefill; Agrawal et al. 2023, Sarathi): so much that
//! the step takes not much longer than it would without, because everyone else waits for it.
//!
//! Where few read, a step may take half as long again as a plain one, or read for a tenth of a second: short prompts are read
//! whole, because a pause now and then is better than many steps that are all longer. Where there is more than one that reads
//! for every four sequences that go on, a step reads for a fifth of a second: the sooner all of them go on, the more tokens a
//! step gives. What a token costs to read is measured step by step. Answers do not depend on any of it.

use std::time::Duration;

/// By how much of a plain step one that reads may be longer.
const LONGER: f64 = 0.5;

/// Seconds for which a step may read in any case.
const SHORT: f64 = 0.1;

/// Seconds for which a step may read where many do.
const MANY: f64 = 0.2;

/// Sequences that go on for each request that reads, from which on these are few.
const FEW: usize = 4;

/// Tokens that are read in any case: fewer make poor use of the weights that a step reads anyway.
const LEAST: usize = 32;

/// Steps that read less say little about what a token costs.
const TELLING: usize = 8;

/// How much of a new value counts.
const WEIGHT: f64 = 0.25;

/// What is known of reading.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Seconds that a token which is read makes a step longer.
    token: Option<f64>,
}

/// Who takes part in a step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Company {
    /// Sequences that go on.
    pub going_on: usize,
    /// Requests that read.
    pub reading: usize,
    /// Seconds of a step of so many sequences that reads nothing.
    pub plain: Option<f64>,
}

impl Pace {
    /// Tokens that the next step reads, at most `most`.
    pub fn of(&self, company: Company, most: usize) -> usize {
        let Company { going_on, reading, plain } = company;
        let (Some(plain), Some(token), 1..) = (plain, self.token, going_on) else { return most };
        let few = reading * FEW < going_on;
        let longer = (plain * LONGER).max(if few { SHORT } else { MANY });
        // A clock that stands still gives no number, or an endless one: it is no reason to read less.
        let fits = longer / token;
        if fits.is_finite() { (fits as usize).max(LEAST).min(most) } else { most }
    }

    /// Takes in what a step took that read so many tokens.
    pub fn learn(&mut self, read: usize, company: Company, took: Duration) {
        if read < TELLING {
            return;
        }
        let plain = if company.going_on == 0 { Some(0.0) } else { company.plain };
        let Some(plain) = plain else { return };
        let now = (took.as_secs_f64() - plain).max(0.0) / read as f64;
        self.token = Some(self.token.map_or(now, |before| before + WEIGHT * (now - before)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn company(going_on: usize, reading: usize, millis: Option<f64>) -> Company {
        Company { going_on, reading, plain: millis.map(|millis| millis / 1e3) }
    }

    /// Tokens cost a millisecond each.
    fn known() -> Pace {
        let mut pace = Pace::default();
        pace.learn(100, company(0, 1, None), Duration::from_millis(100));
        pace
    }

    #[test]
    fn a_step_gets_longer_by_what_its_company_bears() {
        let pace = known();
        assert_eq!(pace.of(company(16, 1, Some(100.0)), 512), 100);
        assert_eq!(pace.of(company(16, 1, Some(300.0)), 512), 150);
        assert_eq!(pace.of(company(16, 3, Some(300.0)), 512), 150);
        assert_eq!(pace.of(company(16, 4, Some(300.0)), 512), 200);
        assert_eq!(pace.of(company(1, 1, Some(20.0)), 512), 200);
        assert_eq!(pace.of(company(1, 1, Some(900.0)), 512), 450);
        // Never less than costs little, never more than a chunk.
        assert_eq!(pace.of(company(16, 1, Some(10.0)), 512), 100);
        assert_eq!(pace.of(company(16, 1, Some(9000.0)), 512), 512);
        let mut slow = Pace::default();
        slow.learn(100, company(0, 1, None), Duration::from_secs(1));
        assert_eq!(slow.of(company(16, 1, Some(10.0)), 512), LEAST);
        assert_eq!(pace.of(company(16, 1, Some(10.0)), 5), 5);
    }

    #[test]
    fn whoever_reads_alone_takes_a_whole_chunk() {
        assert_eq!(known().of(company(0, 4, Some(100.0)), 512), 512);
    }

    #[test]
    fn nothing_is_held_back_before_costs_are_known() {
        assert_eq!(Pace::default().of(company(4, 1, Some(1.0)), 512), 512);
        assert_eq!(known().of(company(4, 1, None), 512), 512);
        let mut still = Pace::default();
        still.learn(100, company(0, 1, None), Duration::ZERO);
        assert_eq!(still.of(company(4, 1, Some(0.0)), 512), 512);
    }

    #[test]
    fn what_reading_costs_is_what_it_adds() {
        let mut pace = Pace::default();
        (0..40).for_each(|_| pace.learn(20, company(8, 1, Some(60.0)), Duration::from_millis(100)));
        // Two milliseconds a token.
        assert_eq!(pace.of(company(8, 1, Some(402.0)), 512), 100);
        pace.learn(TELLING - 1, company(8, 1, Some(60.0)), Duration::from_secs(9));
        assert_eq!(pace.of(company(8, 1, Some(402.0)), 512), 100);
        // A step that was faster than a plain one costs nothing, not less.
        let mut quick = Pace::default();
        quick.learn(20, company(8, 1, Some(60.0)), Duration::from_millis(10));
        assert_eq!(quick.of(company(8, 1, Some(100.0)), 512), 512);
    }
}
