//! "Don't repeat yourself".

use super::{History, LogitsProcessor};
use std::collections::BTreeMap;

/// P. E. Weidmann 2024: a token that would prolong a repetition of what came before loses
/// `multiplier * base^(length - allowed_length)`, where `length` is how many tokens before it already repeat (the longest
/// such repetition counts), if that is at least `allowed_length`. A repetition is not followed across a breaker.
#[derive(Debug, Clone)]
pub struct Dry {
    pub multiplier: f32,
    pub base: f32,
    pub allowed_length: usize,
    /// How many of the last tokens are looked at; -1: all.
    pub last_n: i64,
    pub breakers: Breakers,
}

/// Token sequences that no repetition crosses, by their last token.
#[derive(Debug, Clone, Default)]
pub struct Breakers {
    by_last: BTreeMap<u32, Vec<Vec<u32>>>,
}

impl Breakers {
    /// `sequences`: each at least one token; empty ones are ignored.
    pub fn new(sequences: impl IntoIterator<Item = Vec<u32>>) -> Breakers {
        let mut by_last: BTreeMap<u32, Vec<Vec<u32>>> = BTreeMap::new();
        for sequence in sequences {
            if let Some(&last) = sequence.last() {
                let list = by_last.entry(last).or_default();
                if !list.contains(&sequence) {
                    list.push(sequence);
                }
            }
        }
        Breakers { by_last }
    }

    /// Where the text after the last breaker of `tokens` begins.
    fn after_last(&self, tokens: &[u32]) -> usize {
        let ends_with_breaker = |end: &usize| {
            let seen = &tokens[..*end];
            let last = seen.last().and_then(|last| self.by_last.get(last));
            last.is_some_and(|list| list.iter().any(|sequence| seen.ends_with(sequence)))
        };
        (1..=tokens.len()).rev().find(ends_with_breaker).unwrap_or(0)
    }
}

impl LogitsProcessor for Dry {
    fn process(&self, history: &History<'_>, logits: &mut [f32]) {
        let tokens = history.window(self.last_n);
        let longest = tokens.len() - self.breakers.after_last(tokens);
        if longest < self.allowed_length {
            return;
        }
        let lengths = repeats(tokens);
        let mut worst: BTreeMap<u32, usize> = BTreeMap::new();
        for (end, length) in lengths.into_iter().enumerate() {
            let length = length.min(longest);
            if length >= self.allowed_length.max(1) {
                let entry = worst.entry(tokens[end]).or_default();
                *entry = length.max(*entry);
            }
        }
        for (id, length) in worst {
            if let Some(logit) = logits.get_mut(id as usize) {
                let exponent = (length - self.allowed_length) as f32;
                // A finite penalty however long the repetition: infinity times a zero elsewhere would be NaN.
                *logit -= (self.multiplier * self.base.powf(exponent)).min(f32::MAX / 2.0);
            }
        }
    }
}

/// For each `end`, how many tokens before `end` equal the tokens at the end of the whole: the longest common suffix of
/// `tokens[..end]` and `tokens`. The Z function (Gusfield 1997, section 1.3) of the reversed tokens: linear time.
fn repeats(tokens: &[u32]) -> Vec<usize> {
    let count = tokens.len();
    let reversed: Vec<u32> = tokens.iter().rev().copied().collect();
    let mut z = vec![0; count];
    let (mut left, mut right) = (0, 0);
    for i in 1..count {
        let mut length = if i < right { z[i - left].min(right - i) } else { 0 };
        while i + length < count && reversed[length] == reversed[i + length] {
            length += 1;
        }
        z[i] = length;
        if i + length > right {
            (left, right) = (i, i + length);
        }
    }
    // Reversed index i is where the first `count - i` tokens end.
    (0..count).map(|end| z.get(count - end).copied().unwrap_or(0)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::chain::tests::process_after;
    use super::*;

    fn dry(breakers: &[u32]) -> Dry {
        let breakers = Breakers::new(breakers.iter().map(|&id| vec![id]));
        Dry { multiplier: 0.5, base: 2.0, allowed_length: 2, last_n: -1, breakers }
    }

    #[test]
    fn longer_repetitions_cost_more() {
        // "1 2 3 ... 1 2": 3 would prolong a repetition of two.
        assert_eq!(process_after(&dry(&[]), &[1, 2, 3, 0, 1, 2], &[0.0; 5]), [0.0, 0.0, 0.0, -0.5, 0.0]);
        // Three tokens repeat: twice the penalty.
        assert_eq!(process_after(&dry(&[]), &[1, 2, 3, 4, 0, 1, 2, 3], &[0.0; 5]), [0.0, 0.0, 0.0, 0.0, -1.0]);
        // One is allowed.
        assert_eq!(process_after(&dry(&[]), &[1, 2, 0, 1], &[0.0; 3]), [0.0; 3]);
        // The longest repetition of several counts.
        let tokens = [4, 1, 2, 3, 0, 1, 2, 3, 4, 1, 2];
        assert_eq!(process_after(&dry(&[]), &tokens, &[0.0; 5])[3], -1.0);
    }

    #[test]
    fn breakers_and_windows_limit_the_reach() {
        let tokens = [1, 2, 3, 4, 0, 1, 2, 3];
        assert_eq!(process_after(&dry(&[1]), &tokens, &[0.0; 5])[4], -0.5, "only 2 3 after the breaker count");
        assert_eq!(process_after(&dry(&[3]), &tokens, &[0.0; 5]), [0.0; 5]);
        let mut several = dry(&[]);
        several.breakers = Breakers::new([vec![1, 2], vec![]]);
        assert_eq!(process_after(&several, &tokens, &[0.0; 5]), [0.0; 5]);
        let short = Dry { last_n: 4, ..dry(&[]) };
        assert_eq!(process_after(&short, &tokens, &[0.0; 5]), [0.0; 5]);
    }

    /// The linear-time table against its definition.
    #[test]
    fn repeats_equal_the_obvious_count() {
        for seed in 0..50 {
            let draws = crate::rng::Draws { seed, choice: 0 };
            let token = |i| (draws.uniform(i, crate::rng::Purpose::Token) * 2.5) as u32;
            let tokens: Vec<u32> = (0..40).map(token).collect();
            let obvious = |end: usize| {
                let pairs = tokens[..end].iter().rev().zip(tokens.iter().rev());
                pairs.take_while(|(a, b)| a == b).count()
            };
            assert_eq!(repeats(&tokens), (0..40).map(obvious).collect::<Vec<_>>());
        }
        assert!(repeats(&[]).is_empty());
    }

    #[test]
    fn an_endless_repetition_stays_finite() {
        let row = process_after(&dry(&[]), &vec![1; 5000], &[0.0, 0.0]);
        assert!(row[1].is_finite() && row[1] < -1e30);
    }
}
