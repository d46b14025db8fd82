//! Rules about sequences of tokens.

use super::{History, LogitsProcessor};

/// Paulus et al. 2018: forbids the token that would complete a sequence of `size` tokens for the second time.
#[derive(Debug, Clone, Copy)]
pub struct NoRepeatNgram(pub usize);

impl LogitsProcessor for NoRepeatNgram {
    fn process(&self, history: &History<'_>, logits: &mut [f32]) {
        forbid_completions(history.tokens, history.tokens, self.0, logits);
    }
}

/// Forbids the token that would complete a sequence of `size` tokens of the encoder's input.
#[derive(Debug, Clone, Copy)]
pub struct EncoderNoRepeatNgram(pub usize);

impl LogitsProcessor for EncoderNoRepeatNgram {
    fn process(&self, history: &History<'_>, logits: &mut [f32]) {
        forbid_completions(history.encoder, history.tokens, self.0, logits);
    }
}

fn forbid_completions(seen: &[u32], tokens: &[u32], size: usize, logits: &mut [f32]) {
    let Some(prefix_len) = size.checked_sub(1) else { return };
    let Some(start) = tokens.len().checked_sub(prefix_len) else { return };
    let prefix = &tokens[start..];
    for ngram in seen.windows(size) {
        if let Some((&last, before)) = ngram.split_last()
            && before == prefix
            && let Some(logit) = logits.get_mut(last as usize)
        {
            *logit = f32::NEG_INFINITY;
        }
    }
}

/// Adds a bias to the logit of a sequence's last token when the others have just been generated. A bias of `-inf` makes it
/// a sequence that is never completed ("bad words").
#[derive(Debug, Clone)]
pub struct SequenceBias(pub Vec<(Vec<u32>, f32)>);

impl LogitsProcessor for SequenceBias {
    fn process(&self, history: &History<'_>, logits: &mut [f32]) {
        for (sequence, bias) in &self.0 {
            if let Some((&last, before)) = sequence.split_last()
                && history.tokens.ends_with(before)
                && let Some(logit) = logits.get_mut(last as usize)
            {
                *logit += bias;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::chain::tests::{process_after, process_from};
    use super::*;

    const GONE: f32 = f32::NEG_INFINITY;

    #[test]
    fn ngrams_are_not_completed_twice() {
        assert_eq!(process_after(&NoRepeatNgram(2), &[1, 2, 0, 1], &[0.0; 3]), [0.0, 0.0, GONE]);
        assert_eq!(process_after(&NoRepeatNgram(1), &[1, 1], &[0.0; 3]), [0.0, GONE, 0.0]);
        assert_eq!(process_after(&NoRepeatNgram(3), &[1, 2], &[0.0; 3]), [0.0; 3]);
        assert_eq!(process_after(&NoRepeatNgram(9), &[1], &[0.0; 3]), [0.0; 3]);
        assert_eq!(process_from(&EncoderNoRepeatNgram(2), &[1, 2], &[0, 1], &[0.0; 3]), [0.0, 0.0, GONE]);
        assert_eq!(process_from(&EncoderNoRepeatNgram(2), &[], &[0, 1], &[0.0; 3]), [0.0; 3]);
    }

    #[test]
    fn sequences_are_biased_at_their_last_token() {
        let bias = SequenceBias(vec![(vec![2], 1.0), (vec![0, 1], -3.0), (vec![1, 1, 2], GONE)]);
        assert_eq!(process_after(&bias, &[5, 0], &[0.0; 3]), [0.0, -3.0, 1.0]);
        assert_eq!(process_after(&bias, &[1, 1], &[0.0; 3]), [0.0, 0.0, GONE]);
        assert_eq!(process_after(&bias, &[], &[0.0; 3]), [0.0, 0.0, 1.0]);
    }
}
