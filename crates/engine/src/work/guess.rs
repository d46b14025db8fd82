//! Guesses at the end of a choice's tokens: what followed its last tokens where they stood before, or what a draft model says.

use crate::output::Guesses;

/// How many are guessed as long as nothing is known about how well it goes.
const FIRST: usize = 4;

/// Steps without guesses before guesses that did not pay are tried again, at first and at most.
const PAUSE: (usize, usize) = (16, 256);

/// How much of what was known before still counts after a comparison.
const MEMORY: f64 = 0.95;

/// What a guess costs, in tokens that all sequences together lose by it: one that is looked up, and one of a draft model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Price {
    pub lookup: f64,
    pub draft: f64,
}

/// How well guesses of one kind go, and how many of them are allowed in the next step.
#[derive(Debug)]
pub(super) struct Habit {
    /// Guesses that were right, and those that were compared: up to the first wrong one, the older the less.
    right: f64,
    compared: f64,
    pub allowed: usize,
    /// Steps until it is tried again, and how many it will be the next time.
    rest: usize,
    pause: usize,
}

/// How the guessing of one choice goes.
#[derive(Debug)]
pub(super) struct Guess {
    /// How many of the choice's tokens are guesses.
    pub count: usize,
    /// Nothing more is guessed before the next step.
    pub closed: bool,
    /// How many may be guessed: twice as many after all were right, one more than were right after one was not.
    pub trust: usize,
    pub tally: Guesses,
    pub lookup: Habit,
    pub draft: Habit,
    /// Who made the guesses that stand there.
    pub drafted: bool,
}

impl Habit {
    fn new() -> Habit {
        Habit { right: 0.0, compared: 0.0, allowed: usize::MAX, rest: 0, pause: PAUSE.0 }
    }

    /// How likely a guess is right after others that were: hopeful as long as little is known.
    fn rate(&self) -> f64 {
        (self.right + 0.75) / (self.compared + 1.0)
    }

    /// How many guesses are allowed at this price: of a run of guesses the n-th earns `rate^n` tokens, and must earn its price.
    /// Where not even the first does, one is tried now and then, ever more rarely.
    fn consider(&mut self, price: f64) {
        let rate = self.rate().min(0.999);
        self.allowed = match price {
            price if price <= 0.0 => usize::MAX,
            price if price < rate => (price.ln() / rate.ln()) as usize,
            _ => 0,
        };
        if price >= 1.0 {
            // Not even a guess that is surely right earns that.
        } else if self.allowed > 0 {
            (self.rest, self.pause) = (0, PAUSE.0);
        } else if self.rest == 0 {
            (self.allowed, self.rest, self.pause) = (1, self.pause, (self.pause * 2).min(PAUSE.1));
        } else {
            self.rest -= 1;
        }
    }

    fn learn(&mut self, offered: usize, right: usize) {
        if offered == 0 {
            return;
        }
        if right > 0 {
            // Perhaps it pays again: the next try is not put off.
            (self.rest, self.pause) = (0, PAUSE.0);
        }
        let compared = right + usize::from(right < offered);
        self.right = self.right * MEMORY + right as f64;
        self.compared = self.compared * MEMORY + compared as f64;
    }
}

impl Guess {
    pub fn new() -> Guess {
        let (lookup, draft) = (Habit::new(), Habit::new());
        Guess { count: 0, closed: false, trust: FIRST, tally: Guesses::default(), lookup, draft, drafted: false }
    }

    /// Decides how much may be guessed in the next step. None: nothing, so that it shows what a step takes without.
    pub fn consider(&mut self, price: Option<Price>) {
        match price {
            Some(price) => {
                self.lookup.consider(price.lookup);
                self.draft.consider(price.draft);
            }
            None => (self.lookup.allowed, self.draft.allowed) = (0, 0),
        }
    }

    /// The guesses have been compared with what was chosen.
    pub fn learn(&mut self, offered: usize, right: usize) {
        self.tally.offered += offered;
        self.tally.right += right;
        self.closed = false;
        if offered > 0 {
            let habit = if self.drafted { &mut self.draft } else { &mut self.lookup };
            habit.learn(offered, right);
            self.trust = if right == offered { self.trust.max(offered).saturating_mul(2) } else { right + 1 };
        }
    }
}

/// At most `most` tokens that followed the last tokens where they stood before: the longest match of at most `longest`
/// tokens, of equally long ones the latest. Where what followed reaches into the last tokens themselves it goes on from
/// its own beginning, so that what repeats itself goes on repeating.
pub(super) fn look_up(tokens: &[u32], longest: usize, most: usize) -> Vec<u32> {
    let Some(before) = tokens.len().checked_sub(1) else { return Vec::new() };
    for length in (1..=longest.min(before)).rev() {
        let last = &tokens[tokens.len() - length..];
        if let Some(start) = tokens[..before].windows(length).rposition(|window| window == last) {
            return tokens[start + length..].iter().copied().cycle().take(most).collect();
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_followed_before_follows_again() {
        assert_eq!(look_up(&[1, 2, 3, 4, 5, 2, 3], 3, 2), [4, 5]);
        assert_eq!(look_up(&[1, 2, 3, 4, 5, 2, 3], 3, 9), [4, 5, 2, 3, 4, 5, 2, 3, 4]);
        // Of equally long matches the latest, and a longer one before it.
        assert_eq!(look_up(&[7, 1, 7, 2, 7], 3, 1), [2]);
        assert_eq!(look_up(&[6, 7, 1, 9, 7, 2, 6, 7], 3, 1), [1]);
        assert_eq!(look_up(&[6, 7, 1, 9, 7, 2, 6, 7], 1, 1), [2]);
    }

    #[test]
    fn a_run_goes_on() {
        assert_eq!(look_up(&[5, 8, 8, 8], 3, 4), [8, 8, 8, 8]);
        assert_eq!(look_up(&[1, 2, 1, 2, 1], 3, 4), [2, 1, 2, 1]);
    }

    #[test]
    fn what_never_stood_before_is_not_guessed() {
        for (tokens, most) in [(&[][..], 3), (&[1], 3), (&[1, 2, 3], 3), (&[1, 1], 0)] {
            assert!(look_up(tokens, 3, most).is_empty());
        }
    }

    /// Steps in which something may be guessed at a price, where every guess is as good as it is said to be.
    fn guesses(steps: usize, price: f64, right: impl Fn(usize) -> bool) -> Vec<usize> {
        let mut habit = Habit::new();
        let one = |step: usize| {
            habit.consider(price);
            let offered = habit.allowed.min(8);
            habit.learn(offered, (0..offered).take_while(|_| right(step)).count());
            offered
        };
        (0..steps).map(one).collect()
    }

    #[test]
    fn guesses_go_on_as_long_as_they_pay() {
        let good = guesses(100, 0.1, |_| true);
        assert!(good.iter().all(|&offered| offered > 0) && good[99] == 8, "{good:?}");
        // Half a token a guess is earned by none, and one is tried ever more rarely.
        let bad = guesses(1200, 0.5, |_| false);
        let tried: Vec<usize> = (0..1200).filter(|&step| bad[step] > 0).collect();
        assert!(tried.len() < 12, "{tried:?}");
        let gaps: Vec<usize> = tried.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(gaps.last(), Some(&(PAUSE.1 + 1)), "{gaps:?}");
        // Where the text begins to repeat itself they come back.
        let later = guesses(1500, 0.5, |step| step > 300);
        assert!(later[1490..].iter().all(|&offered| offered == 8), "{later:?}");
        // Many sequences lose more than a guess can earn.
        assert_eq!(guesses(400, 1.0, |_| true).iter().sum::<usize>(), 0);
    }

    #[test]
    fn free_guesses_are_always_made() {
        assert!(guesses(50, 0.0, |_| false).iter().all(|&offered| offered == 8));
    }

    #[test]
    fn trust_follows_success() {
        let mut guess = Guess::new();
        guess.learn(4, 4);
        assert_eq!(guess.trust, 8);
        guess.learn(8, 2);
        assert_eq!((guess.trust, guess.tally), (3, Guesses { offered: 12, right: 6 }));
        guess.learn(3, 0);
        guess.learn(0, 0);
        assert_eq!(guess.trust, 1);
        guess.learn(1, 1);
        assert_eq!(guess.trust, 2);
    }
}
