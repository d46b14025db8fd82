//! The tokens that are read: drawn from the vocabulary by a seed, so that a run can be repeated.

use attend_engine::rng::{Draws, Purpose};

/// Token ids as a function of the seed, the sequence and the place.
#[derive(Debug, Clone, Copy)]
pub struct Prompts {
    pub seed: u64,
    /// Tokens of the input vocabulary.
    pub vocab: usize,
}

impl Prompts {
    /// The first `count` tokens of a sequence; a longer one begins with the same tokens.
    pub fn tokens(&self, sequence: usize, count: usize) -> Vec<u32> {
        let draws = Draws { seed: self.seed, choice: sequence as u32 };
        (0..count).map(|place| (draws.uniform(place, Purpose::Token) * self.vocab as f64) as u32).collect()
    }

    /// Several sequences of equal length.
    pub fn batch(&self, sequences: usize, count: usize) -> Vec<Vec<u32>> {
        (0..sequences).map(|sequence| self.tokens(sequence, count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_decides_and_sequences_differ() {
        let prompts = Prompts { seed: 3, vocab: 50 };
        let tokens = prompts.tokens(0, 200);
        assert!(tokens.iter().all(|id| *id < 50) && tokens.contains(&0) && tokens.contains(&49));
        assert_eq!(tokens[..100], prompts.tokens(0, 100)[..]);
        assert_ne!(tokens, prompts.tokens(1, 200));
        assert_ne!(tokens, Prompts { seed: 4, vocab: 50 }.tokens(0, 200));
        assert_eq!(prompts.batch(2, 3), [prompts.tokens(0, 3), prompts.tokens(1, 3)]);
    }
}
