//! Penalties on tokens that occurred before.

use super::{History, LogitsProcessor};
use std::collections::{BTreeMap, BTreeSet};

/// Keskar et al. 2019 (CTRL), section 4.1, with the sign rule of Hugging Face: the logit of each distinct token that
/// occurred is divided by the penalty when positive and multiplied when negative, once.
#[derive(Debug, Clone, Copy)]
pub struct RepetitionPenalty {
    pub penalty: f32,
    /// How many of the last tokens count; -1: all of prompt and answer.
    pub last_n: i64,
}

impl LogitsProcessor for RepetitionPenalty {
    fn process(&self, history: &History<'_>, logits: &mut [f32]) {
        penalise(history.window(self.last_n), self.penalty, logits);
    }
}

/// The opposite of [`RepetitionPenalty`] for tokens of the encoder's input: a penalty above 1 makes them likelier.
#[derive(Debug, Clone, Copy)]
pub struct EncoderRepetitionPenalty(pub f32);

impl LogitsProcessor for EncoderRepetitionPenalty {
    fn process(&self, history: &History<'_>, logits: &mut [f32]) {
        // As in the reference the reciprocal is formed in double precision and rounded once.
        penalise(history.encoder, (1.0 / f64::from(self.0)) as f32, logits);
    }
}

fn penalise(tokens: &[u32], penalty: f32, logits: &mut [f32]) {
    let distinct: BTreeSet<u32> = tokens.iter().copied().collect();
    for id in distinct {
        if let Some(logit) = logits.get_mut(id as usize) {
            *logit = if *logit < 0.0 { *logit * penalty } else { *logit / penalty };
        }
    }
}

/// `logit - presence * (occurred at all) - frequency * (times occurred)`, the two penalties of the OpenAI API.
#[derive(Debug, Clone, Copy)]
pub struct CountPenalties {
    pub presence: f32,
    pub frequency: f32,
    /// None: only the generated tokens count. A number: the last so many of prompt and answer; -1: all.
    pub last_n: Option<i64>,
}

impl LogitsProcessor for CountPenalties {
    fn process(&self, history: &History<'_>, logits: &mut [f32]) {
        let window = self.last_n.map_or_else(|| history.generated(), |last_n| history.window(last_n));
        let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
        for &id in window {
            *counts.entry(id).or_default() += 1;
        }
        for (id, count) in counts {
            if let Some(logit) = logits.get_mut(id as usize) {
                *logit -= self.presence + self.frequency * count as f32;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::chain::tests::{process_after, process_with};
    use super::*;

    #[test]
    fn repetition_makes_repeats_less_likely_whatever_the_sign_and_once() {
        let penalty = RepetitionPenalty { penalty: 2.0, last_n: -1 };
        assert_eq!(process_after(&penalty, &[0, 1], &[2.0, -2.0, 0.0]), [1.0, -4.0, 0.0]);
        assert_eq!(process_after(&penalty, &[0, 0, 1, 0, 1], &[2.0, -2.0, 0.0]), [1.0, -4.0, 0.0]);
        assert_eq!(process_after(&penalty, &[99], &[2.0]), [2.0], "an id beyond the row is ignored");
    }

    #[test]
    fn windows() {
        let last = |last_n| RepetitionPenalty { penalty: 2.0, last_n };
        let row = [2.0, 2.0, 2.0];
        assert_eq!(process_after(&last(2), &[0, 1, 2], &row), [2.0, 1.0, 1.0]);
        assert_eq!(process_after(&last(0), &[0, 1, 2], &row), row);
        assert_eq!(process_after(&last(100), &[0, 1, 2], &row), [1.0; 3]);
    }

    #[test]
    fn presence_and_frequency_count_the_answer_unless_a_window_is_given() {
        let mut counted = CountPenalties { presence: 0.5, frequency: 0.25, last_n: None };
        // The prompt is [0, 0], the answer [1, 1, 2].
        assert_eq!(process_with(&counted, &[0, 0, 1, 1, 2], 2, &[0.0; 3]), [0.0, -1.0, -0.75]);
        counted.last_n = Some(-1);
        assert_eq!(process_with(&counted, &[0, 0, 1, 1, 2], 2, &[0.0; 3]), [-1.0, -1.0, -0.75]);
        counted.last_n = Some(1);
        assert_eq!(process_with(&counted, &[0, 0, 1, 1, 2], 2, &[0.0; 3]), [0.0, 0.0, -0.75]);
    }
}
