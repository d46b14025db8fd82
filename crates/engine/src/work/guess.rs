//! Guesses at the end of a choice's tokens: what followed its last tokens where they stood before, or what a draft model says.

use crate::output::Guesses;

/// How many are guessed as long as nothing is known about how well it goes.
const FIRST: usize = 4;

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
}

impl Guess {
    pub fn new() -> Guess {
        Guess { count: 0, closed: false, trust: FIRST, tally: Guesses::default() }
    }

    /// The guesses have been compared with what was chosen.
    pub fn learn(&mut self, offered: usize, right: usize) {
        self.tally.offered += offered;
        self.tally.right += right;
        self.closed = false;
        if offered > 0 {
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
