//! Ranges of the options, checked before any work is done.

use crate::error::Error;
use crate::options::{Constraints, GenerateOptions, Sampling};

/// Limits that keep one request from taking everything: `stop` strings, their length, alternatives, choices, beams.
const MAX_STOPS: usize = 16;
const MAX_STOP_BYTES: usize = 256;
const MAX_LOGPROBS: usize = 100;
const MAX_CHOICES: usize = 128;
/// The most tokens that are guessed ahead.
const MAX_GUESSES: usize = 64;

impl GenerateOptions {
    /// Checks every value for a model with `vocab` tokens.
    ///
    /// # Errors
    /// [`Error::Parameter`] or [`Error::TokenId`], naming the first parameter that is out of its range.
    pub fn validate(&self, vocab: usize) -> Result<(), Error> {
        self.sampling.validate()?;
        self.constraints.validate(vocab)?;
        let length = &self.length;
        count("n", length.n, 1, MAX_CHOICES)?;
        if length.stop.len() > MAX_STOPS {
            return Err(Error::parameter(
                "stop",
                format!("{} strings", length.stop.len()),
                format!("at most {MAX_STOPS}"),
            ));
        }
        for stop in &length.stop {
            if stop.is_empty() || stop.len() > MAX_STOP_BYTES {
                let value = format!("a string of {} bytes", stop.len());
                return Err(Error::parameter("stop", value, format!("each has 1 to {MAX_STOP_BYTES} bytes")));
            }
        }
        ids("stop_ids", &length.stop_ids, vocab)?;
        if let Some(max) = length.max_tokens
            && length.min_tokens > max
        {
            let expected = format!("max_tokens is {max}, and min_tokens cannot be more");
            return Err(Error::parameter("min_tokens", length.min_tokens, expected));
        }
        count("logprobs", self.report.logprobs.unwrap_or(0), 0, MAX_LOGPROBS)?;
        let speculation = &self.speculation;
        count("prompt_lookup_num_tokens", speculation.prompt_lookup_num_tokens, 0, MAX_GUESSES)?;
        count("max_matching_ngram_size", speculation.max_matching_ngram_size, 1, MAX_GUESSES)?;
        count("num_assistant_tokens", speculation.num_assistant_tokens, 0, MAX_GUESSES)?;
        count("prompt_logprobs", self.report.prompt_logprobs.unwrap_or(0), 0, MAX_LOGPROBS)?;
        self.validate_beam()
    }

    fn validate_beam(&self) -> Result<(), Error> {
        let beam = &self.beam;
        count("num_beams", beam.num_beams, 1, MAX_CHOICES)?;
        count("num_return_sequences", beam.num_return_sequences, 1, beam.num_beams.max(1))?;
        finite("length_penalty", beam.length_penalty)?;
        if beam.num_beams == 1 {
            return Ok(());
        }
        if self.constraints.constraint.is_some() {
            let expected = "a constraint is followed by one sequence at a time: it must be 1";
            return Err(Error::parameter("num_beams", beam.num_beams, expected));
        }
        let deterministic = "beam search chooses the most probable sequences";
        if self.sampling.temperature > 0.0 {
            return Err(Error::parameter(
                "temperature",
                self.sampling.temperature,
                format!("{deterministic}: it must be 0"),
            ));
        }
        if self.length.n > 1 {
            let expected = format!("{deterministic}: use num_return_sequences");
            return Err(Error::parameter("n", self.length.n, expected));
        }
        if !self.length.stop.is_empty() {
            let expected = format!("{deterministic} of tokens: use stop_ids");
            return Err(Error::parameter("stop", format!("{:?}", self.length.stop), expected));
        }
        Ok(())
    }
}

impl Sampling {
    fn validate(&self) -> Result<(), Error> {
        not_negative("temperature", self.temperature)?;
        not_negative("dynatemp_range", self.dynatemp_range)?;
        not_negative("dynatemp_exponent", self.dynatemp_exponent)?;
        fraction("top_p", self.top_p)?;
        fraction("min_p", self.min_p)?;
        fraction("typical_p", self.typical_p)?;
        not_negative("top_n_sigma", self.top_n_sigma)?;
        below_one("epsilon_cutoff", self.epsilon_cutoff)?;
        below_one("eta_cutoff", self.eta_cutoff)?;
        fraction("xtc_probability", self.xtc_probability)?;
        fraction("xtc_threshold", self.xtc_threshold)?;
        not_negative("dry_multiplier", self.dry_multiplier)?;
        not_negative("dry_base", self.dry_base)?;
        positive("repetition_penalty", self.repetition_penalty)?;
        positive("encoder_repetition_penalty", self.encoder_repetition_penalty)?;
        finite("presence_penalty", self.presence_penalty)?;
        finite("frequency_penalty", self.frequency_penalty)?;
        for (name, value) in
            [("repeat_last_n", self.repeat_last_n.unwrap_or(-1)), ("dry_penalty_last_n", self.dry_penalty_last_n)]
        {
            if value < -1 {
                return Err(Error::parameter(name, value, "a number of tokens, or -1 for all of them"));
            }
        }
        if self.mirostat != 0 && self.mirostat != 2 {
            return Err(Error::parameter("mirostat", self.mirostat, "0 (off) or 2"));
        }
        positive("mirostat_tau", self.mirostat_tau)?;
        not_negative("mirostat_eta", self.mirostat_eta)
    }
}

impl Constraints {
    fn validate(&self, vocab: usize) -> Result<(), Error> {
        let biased: Vec<u32> = self.logit_bias.keys().copied().collect();
        ids("logit_bias", &biased, vocab)?;
        for value in self.logit_bias.values() {
            bias("logit_bias", *value)?;
        }
        for (sequence, value) in &self.sequence_bias {
            words("sequence_bias", sequence, vocab)?;
            bias("sequence_bias", *value)?;
        }
        for sequence in &self.bad_words_ids {
            words("bad_words_ids", sequence, vocab)?;
        }
        ids("banned_tokens", &self.banned_tokens, vocab)?;
        ids("allowed_tokens", &self.allowed_tokens, vocab)?;
        ids("forced_bos_token_id", self.forced_bos_token_id.as_slice(), vocab)?;
        ids("forced_eos_token_id", &self.forced_eos_token_id, vocab)?;
        ids("suppress_tokens", &self.suppress_tokens, vocab)?;
        ids("begin_suppress_tokens", &self.begin_suppress_tokens, vocab)?;
        match self.exponential_decay_length_penalty {
            Some((_, factor)) => positive("exponential_decay_length_penalty", factor),
            None => Ok(()),
        }
    }
}

/// Checks that every id is in the vocabulary.
pub(crate) fn ids(place: &'static str, ids: &[u32], vocab: usize) -> Result<(), Error> {
    match ids.iter().find(|&&id| id as usize >= vocab) {
        Some(&id) => Err(Error::TokenId { place, id, last: vocab.saturating_sub(1) }),
        None => Ok(()),
    }
}

fn words(place: &'static str, sequence: &[u32], vocab: usize) -> Result<(), Error> {
    if sequence.is_empty() {
        return Err(Error::parameter(place, "a sequence without tokens", "each has at least one"));
    }
    ids(place, sequence, vocab)
}

fn check(name: &str, value: f32, good: bool, expected: &str) -> Result<(), Error> {
    if good { Ok(()) } else { Err(Error::parameter(name, value, expected)) }
}

fn finite(name: &str, value: f32) -> Result<(), Error> {
    check(name, value, value.is_finite(), "a finite number is wanted")
}

fn not_negative(name: &str, value: f32) -> Result<(), Error> {
    check(name, value, value.is_finite() && value >= 0.0, "a number of at least 0 is wanted")
}

fn positive(name: &str, value: f32) -> Result<(), Error> {
    check(name, value, value.is_finite() && value > 0.0, "a number above 0 is wanted")
}

fn fraction(name: &str, value: f32) -> Result<(), Error> {
    check(name, value, (0.0..=1.0).contains(&value), "a number from 0 to 1 is wanted")
}

fn below_one(name: &str, value: f32) -> Result<(), Error> {
    check(name, value, (0.0..1.0).contains(&value), "a number from 0 to below 1 is wanted")
}

/// A bias may be minus infinity, which forbids.
fn bias(name: &str, value: f32) -> Result<(), Error> {
    check(name, value, value < f32::INFINITY, "a finite number, or minus infinity, is wanted")
}

fn count(name: &str, value: usize, low: usize, high: usize) -> Result<(), Error> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(Error::parameter(name, value, format!("a whole number from {low} to {high} is wanted")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(change: impl FnOnce(&mut GenerateOptions)) -> String {
        let mut options = GenerateOptions::default();
        change(&mut options);
        options.validate(10).expect_err("refused").to_string()
    }

    #[test]
    fn bad_numbers_are_refused_by_name() {
        type Field = fn(&mut Sampling) -> &mut f32;
        let fields: [(&str, Field); 20] = [
            ("temperature", |s| &mut s.temperature),
            ("dynatemp_range", |s| &mut s.dynatemp_range),
            ("dynatemp_exponent", |s| &mut s.dynatemp_exponent),
            ("top_p", |s| &mut s.top_p),
            ("min_p", |s| &mut s.min_p),
            ("typical_p", |s| &mut s.typical_p),
            ("top_n_sigma", |s| &mut s.top_n_sigma),
            ("epsilon_cutoff", |s| &mut s.epsilon_cutoff),
            ("eta_cutoff", |s| &mut s.eta_cutoff),
            ("xtc_probability", |s| &mut s.xtc_probability),
            ("xtc_threshold", |s| &mut s.xtc_threshold),
            ("dry_multiplier", |s| &mut s.dry_multiplier),
            ("dry_base", |s| &mut s.dry_base),
            ("repetition_penalty", |s| &mut s.repetition_penalty),
            ("encoder_repetition_penalty", |s| &mut s.encoder_repetition_penalty),
            ("presence_penalty", |s| &mut s.presence_penalty),
            ("frequency_penalty", |s| &mut s.frequency_penalty),
            ("mirostat_tau", |s| &mut s.mirostat_tau),
            ("mirostat_eta", |s| &mut s.mirostat_eta),
            ("top_p", |s| &mut s.top_p),
        ];
        for (name, field) in fields {
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let message = error(|options| *field(&mut options.sampling) = bad);
                assert!(message.starts_with(name), "{name} {bad}: {message}");
            }
            if !name.ends_with("_penalty") || name.contains("repetition") {
                let message = error(|options| *field(&mut options.sampling) = -0.5);
                assert!(message.starts_with(name), "{name}: {message}");
            }
        }
        assert!(error(|o| o.sampling.top_p = 1.01).starts_with("top_p"));
        assert!(error(|o| o.sampling.repetition_penalty = 0.0).starts_with("repetition_penalty"));
    }

    #[test]
    fn bad_counts_ids_and_combinations_are_refused_by_name() {
        assert!(error(|o| o.sampling.mirostat = 1).starts_with("mirostat"));
        assert!(error(|o| o.sampling.repeat_last_n = Some(-2)).starts_with("repeat_last_n"));
        assert!(error(|o| o.length.n = 0).starts_with("n is 0"));
        assert!(error(|o| o.length.n = 1 << 30).starts_with("n is"));
        assert!(error(|o| o.length.stop = vec![String::new()]).starts_with("stop"));
        assert!(error(|o| o.length.stop = vec!["a".into(); 17]).starts_with("stop"));
        assert!(error(|o| o.length.stop = vec!["a".repeat(257)]).starts_with("stop"));
        assert!(error(|o| o.report.logprobs = Some(usize::MAX)).starts_with("logprobs"));
        assert!(error(|o| o.beam.num_beams = 0).starts_with("num_beams"));
        assert!(error(|o| o.beam.num_return_sequences = 2).starts_with("num_return_sequences"));
        assert!(error(|o| o.length.stop_ids = vec![10]).contains("stop_ids has token id 10"));
        assert!(error(|o| o.constraints.logit_bias = [(10, 1.0)].into()).contains("logit_bias has token id 10"));
        assert!(error(|o| o.constraints.logit_bias = [(1, f32::NAN)].into()).starts_with("logit_bias"));
        assert!(error(|o| o.constraints.bad_words_ids = vec![vec![]]).starts_with("bad_words_ids"));
        assert!(error(|o| (o.length.max_tokens, o.length.min_tokens) = (Some(3), 4)).starts_with("min_tokens"));
        assert!(error(|o| (o.beam.num_beams, o.sampling.temperature) = (2, 1.0)).starts_with("temperature"));
        assert!(error(|o| (o.beam.num_beams, o.length.n) = (2, 2)).starts_with("n is 2"));
        assert!(GenerateOptions::default().validate(10).is_ok());
    }
}
