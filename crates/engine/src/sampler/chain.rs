//! The processors of one request in their order, and the choice at their end.

use super::constraints::{Allow, EndingGrowsLikely, Forbid, Force, LogitBias, While};
use super::dry::{Breakers, Dry};
use super::mirostat::Mirostat;
use super::ngram::{EncoderNoRepeatNgram, NoRepeatNgram, SequenceBias};
use super::penalties::{CountPenalties, EncoderRepetitionPenalty, RepetitionPenalty};
use super::temperature::{DynamicTemperature, Temperature};
use super::truncation::{Epsilon, Eta, MinP, TopK, TopNSigma, TopP, Typical};
use super::xtc::Xtc;
use super::{History, LogitsProcessor, SamplerKind, argmax, probabilities};
use crate::error::Error;
use crate::options::{Constraints, GenerateOptions, Sampling};
use crate::rng::Purpose;

/// What the chain must know about the request beside its options.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// The tokens that end an answer by themselves.
    pub end_ids: Vec<u32>,
    /// The request's own ending tokens.
    pub stop_ids: Vec<u32>,
    /// Tokens of the decoder's prompt.
    pub prompt_len: usize,
    /// The most tokens that will be generated.
    pub max_tokens: usize,
    pub min_tokens: usize,
    pub breakers: Breakers,
}

/// The processors of a request. What a choice learns on its way is in [`Memory`].
#[derive(Debug)]
pub struct Chain {
    processors: Vec<Box<dyn LogitsProcessor>>,
    greedy: bool,
    mirostat: Option<Mirostat>,
}

/// What one of a request's choices has learned (mirostat's threshold).
#[derive(Debug, Clone, Default)]
pub struct Memory {
    mirostat: Option<Mirostat>,
}

impl Chain {
    /// By default the order is that of Hugging Face `generate`. With [`Sampling::samplers`] the constraints come first, then
    /// the listed samplers; those not listed do not act. Greedy choice uses only constraints and penalties, and mirostat
    /// takes the place of the truncating samplers.
    pub fn new(options: &GenerateOptions, rules: &Rules) -> Chain {
        let sampling = &options.sampling;
        let greedy = sampling.temperature == 0.0;
        let mirostat =
            (sampling.mirostat == 2 && !greedy).then(|| Mirostat::new(sampling.mirostat_tau, sampling.mirostat_eta));
        let mut chain = Chain { processors: Vec::new(), greedy, mirostat };
        chain.add_biases(&options.constraints);
        match &sampling.samplers {
            None => {
                chain.add(SamplerKind::Penalties, sampling, rules);
                chain.add_rules(&options.constraints, rules);
                for kind in SamplerKind::DEFAULT_ORDER.into_iter().filter(|kind| *kind != SamplerKind::Penalties) {
                    chain.add(kind, sampling, rules);
                }
            }
            Some(order) => {
                chain.add_rules(&options.constraints, rules);
                for &kind in order {
                    chain.add(kind, sampling, rules);
                }
            }
        }
        chain
    }

    fn push(&mut self, wanted: bool, processor: impl LogitsProcessor + 'static) {
        if wanted {
            self.processors.push(Box::new(processor));
        }
    }

    fn add_biases(&mut self, constraints: &Constraints) {
        self.push(!constraints.logit_bias.is_empty(), LogitBias(constraints.logit_bias.clone()));
        self.push(!constraints.sequence_bias.is_empty(), SequenceBias(constraints.sequence_bias.clone()));
    }

    fn add_rules(&mut self, constraints: &Constraints, rules: &Rules) {
        let c = constraints;
        self.push(c.no_repeat_ngram_size > 0, NoRepeatNgram(c.no_repeat_ngram_size));
        self.push(c.encoder_no_repeat_ngram_size > 0, EncoderNoRepeatNgram(c.encoder_no_repeat_ngram_size));
        // As in the reference an end token by itself is not a bad word.
        let is_end = |word: &[u32]| matches!(word, [id] if rules.end_ids.contains(id));
        let bad = c.bad_words_ids.iter().filter(|word| !is_end(word)).map(|word| (word.clone(), f32::NEG_INFINITY));
        let bad = SequenceBias(bad.collect());
        self.push(!bad.0.is_empty(), bad);
        self.forbid(&c.banned_tokens, While::Always);
        if c.min_length > rules.prompt_len {
            self.forbid(&rules.end_ids, While::ShorterThan(c.min_length));
        }
        if rules.min_tokens > 0 {
            self.forbid(&[rules.end_ids.as_slice(), &rules.stop_ids].concat(), While::Before(rules.min_tokens));
        }
        self.push(!c.allowed_tokens.is_empty(), Allow(c.allowed_tokens.iter().copied().collect()));
        if let Some(bos) = c.forced_bos_token_id {
            self.push(true, Force { ids: vec![bos], at: 1 });
        }
        let last = rules.prompt_len.saturating_add(rules.max_tokens).saturating_sub(1);
        // An answer that must be something ends where it is that, not where there is no more room.
        let forced_eos = !c.forced_eos_token_id.is_empty() && c.constraint.is_none();
        self.push(forced_eos, Force { ids: c.forced_eos_token_id.clone(), at: last });
        if let Some((start, factor)) = c.exponential_decay_length_penalty {
            self.push(true, EndingGrowsLikely { start, factor, end_ids: rules.end_ids.clone() });
        }
        self.forbid(&c.suppress_tokens, While::Always);
        let forced_first = rules.prompt_len <= 1 && c.forced_bos_token_id.is_some();
        self.forbid(&c.begin_suppress_tokens, While::At(rules.prompt_len + usize::from(forced_first)));
    }

    fn forbid(&mut self, ids: &[u32], during: While) {
        self.push(!ids.is_empty(), Forbid { ids: ids.to_vec(), during });
    }

    fn add(&mut self, kind: SamplerKind, s: &Sampling, rules: &Rules) {
        let draws = !self.greedy;
        let truncates = draws && self.mirostat.is_none();
        match kind {
            SamplerKind::Penalties => self.add_penalties(s),
            SamplerKind::Dry => {
                let dry = Dry {
                    multiplier: s.dry_multiplier,
                    base: s.dry_base,
                    allowed_length: s.dry_allowed_length,
                    last_n: s.dry_penalty_last_n,
                    breakers: rules.breakers.clone(),
                };
                self.push(s.dry_multiplier > 0.0, dry);
            }
            SamplerKind::Temperature if s.dynatemp_range > 0.0 => {
                let (temperature, range, exponent) = (s.temperature, s.dynatemp_range, s.dynatemp_exponent);
                self.push(draws, DynamicTemperature { temperature, range, exponent });
            }
            SamplerKind::Temperature => self.push(draws && s.temperature != 1.0, Temperature(s.temperature)),
            SamplerKind::TopNSigma => self.push(truncates && s.top_n_sigma > 0.0, TopNSigma(s.top_n_sigma)),
            SamplerKind::TopK => self.push(truncates && s.top_k > 0, TopK(s.top_k)),
            SamplerKind::TopP => self.push(truncates && s.top_p < 1.0, TopP::new(s.top_p)),
            SamplerKind::MinP => self.push(truncates && s.min_p > 0.0, MinP(s.min_p)),
            SamplerKind::TypicalP => self.push(truncates && s.typical_p < 1.0, Typical(s.typical_p)),
            SamplerKind::Epsilon => self.push(truncates && s.epsilon_cutoff > 0.0, Epsilon(s.epsilon_cutoff)),
            SamplerKind::Eta => self.push(truncates && s.eta_cutoff > 0.0, Eta(s.eta_cutoff)),
            SamplerKind::Xtc => {
                let xtc = Xtc { probability: s.xtc_probability, threshold: s.xtc_threshold };
                self.push(truncates && s.xtc_probability > 0.0, xtc);
            }
        }
    }

    fn add_penalties(&mut self, s: &Sampling) {
        let encoder = s.encoder_repetition_penalty;
        self.push(encoder != 1.0, EncoderRepetitionPenalty(encoder));
        let last_n = s.repeat_last_n.unwrap_or(-1);
        self.push(s.repetition_penalty != 1.0, RepetitionPenalty { penalty: s.repetition_penalty, last_n });
        let counts =
            CountPenalties { presence: s.presence_penalty, frequency: s.frequency_penalty, last_n: s.repeat_last_n };
        self.push(s.presence_penalty != 0.0 || s.frequency_penalty != 0.0, counts);
    }

    /// The state of a new choice.
    pub fn memory(&self) -> Memory {
        Memory { mirostat: self.mirostat }
    }

    /// Applies every processor to a row of raw (or, in beam search, log-softmaxed) logits.
    pub fn process(&self, history: &History<'_>, logits: &mut [f32]) {
        for processor in &self.processors {
            processor.process(history, logits);
        }
    }

    /// Turns a row into a token; the row is left as the processors made it.
    ///
    /// # Errors
    /// [`Error::NothingLeft`] when the request's rules forbid every token.
    pub fn choose(&self, memory: &mut Memory, history: &History<'_>, logits: &mut [f32]) -> Result<u32, Error> {
        self.process(history, logits);
        let (position, vocab) = (history.tokens.len(), logits.len());
        let nothing_left = || Error::NothingLeft { position, vocab };
        if self.greedy {
            return argmax(logits).ok_or_else(nothing_left);
        }
        if argmax(logits).is_none() {
            return Err(nothing_left());
        }
        if let Some(mirostat) = &memory.mirostat {
            mirostat.truncate(logits);
        }
        let chosen = draw(logits, history.draws.uniform(position, Purpose::Token)).ok_or_else(nothing_left)?;
        if let Some(mirostat) = &mut memory.mirostat {
            mirostat.observe(logits, chosen);
        }
        Ok(chosen)
    }
}

/// The token at which the cumulated probability, summed in the order of ids, passes `uniform` (in `[0, 1)`).
fn draw(logits: &[f32], uniform: f64) -> Option<u32> {
    let probs = probabilities(logits);
    let mut last = None;
    let mut cumulated = 0.0;
    for (id, &prob) in probs.iter().enumerate().filter(|(_, prob)| **prob > 0.0) {
        cumulated += prob;
        last = Some(id as u32);
        if cumulated > uniform {
            break;
        }
    }
    last
}

#[cfg(test)]
pub(in crate::sampler) mod tests {
    use super::*;
    use crate::rng::Draws;

    const DRAWS: Draws = Draws { seed: 1, choice: 0 };

    pub fn process(processor: &dyn LogitsProcessor, row: &[f32]) -> Vec<f32> {
        process_after(processor, &[], row)
    }

    pub fn process_after(processor: &dyn LogitsProcessor, tokens: &[u32], row: &[f32]) -> Vec<f32> {
        process_with(processor, tokens, tokens.len(), row)
    }

    pub fn process_with(processor: &dyn LogitsProcessor, tokens: &[u32], prompt_len: usize, row: &[f32]) -> Vec<f32> {
        let mut row = row.to_vec();
        processor.process(&History { tokens, prompt_len, encoder: &[], draws: DRAWS }, &mut row);
        row
    }

    pub fn process_from(processor: &dyn LogitsProcessor, encoder: &[u32], tokens: &[u32], row: &[f32]) -> Vec<f32> {
        let mut row = row.to_vec();
        processor.process(&History { tokens, prompt_len: 0, encoder, draws: DRAWS }, &mut row);
        row
    }

    fn frequencies(options: &GenerateOptions, row: &[f32], rounds: usize) -> Vec<f64> {
        let chain = Chain::new(options, &Rules::default());
        let mut counts = vec![0.0; row.len()];
        for position in 0..rounds {
            let tokens = vec![0; position % 50];
            let draws = Draws { seed: position as u64 / 50, choice: 3 };
            let history = History { tokens: &tokens, prompt_len: tokens.len(), encoder: &[], draws };
            let chosen = chain.choose(&mut chain.memory(), &history, &mut row.to_vec()).unwrap();
            counts[chosen as usize] += 1.0 / rounds as f64;
        }
        counts
    }

    #[test]
    fn tokens_are_drawn_as_often_as_their_probability_says() {
        let mut options = GenerateOptions::default();
        options.sampling.temperature = 1.0;
        let row: Vec<f32> = [0.5f32, 0.2, 0.3].map(f32::ln).to_vec();
        let seen = frequencies(&options, &row, 20_000);
        for (seen, expected) in seen.iter().zip([0.5, 0.2, 0.3]) {
            assert!((seen - expected).abs() < 0.012, "{seen} {expected}");
        }
        options.sampling.temperature = 0.0;
        assert!((frequencies(&options, &row, 10)[0] - 1.0).abs() < 1e-9);
    }

    #[test]
    fn order_matters_and_unlisted_samplers_do_not_act() {
        // At temperature 1 the second token has 0.27 and survives min_p 0.3 (0.37 of the best); at 0.5 it has 0.135 of the best.
        let row = [1.0, 0.0];
        let count = |samplers: Option<&str>| {
            let mut options = GenerateOptions::default();
            (options.sampling.temperature, options.sampling.min_p) = (0.5, 0.3);
            options.sampling.samplers = samplers.map(|list| SamplerKind::parse_list(list).unwrap());
            let mut row = row.to_vec();
            let history = History { tokens: &[], prompt_len: 0, encoder: &[], draws: DRAWS };
            Chain::new(&options, &Rules::default()).process(&history, &mut row);
            (row.iter().filter(|x| x.is_finite()).count(), row[0])
        };
        assert_eq!(count(None), (1, 2.0));
        assert_eq!(count(Some("min_p;temperature")), (2, 2.0));
        assert_eq!(count(Some("temperature;min_p")), (1, 2.0));
        assert_eq!(count(Some("min_p")), (2, 1.0));
        assert_eq!(count(Some("top_k")), (2, 1.0));
    }

    #[test]
    fn forbidding_everything_is_an_error() {
        let mut options = GenerateOptions::default();
        options.constraints.allowed_tokens = vec![1];
        options.constraints.banned_tokens = vec![1];
        for temperature in [0.0, 1.0] {
            options.sampling.temperature = temperature;
            let chain = Chain::new(&options, &Rules::default());
            let history = History { tokens: &[0, 0], prompt_len: 2, encoder: &[], draws: DRAWS };
            let error = chain.choose(&mut chain.memory(), &history, &mut [1.0, 2.0]).unwrap_err();
            assert!(matches!(error, Error::NothingLeft { position: 2, vocab: 2 }), "{error}");
        }
    }

    #[test]
    fn mirostat_replaces_truncation_and_reaches_its_aim() {
        let mut options = GenerateOptions::default();
        let s = &mut options.sampling;
        (s.temperature, s.mirostat, s.mirostat_tau, s.top_k) = (1.0, 2, 3.0, 1);
        let chain = Chain::new(&options, &Rules::default());
        let mut memory = chain.memory();
        let row: Vec<f32> = (0..1000).map(|id| -((1 + id) as f32).ln()).collect();
        let probs = probabilities(&row);
        let (mut tokens, mut surprise) = (Vec::new(), 0.0);
        for _ in 0..2000 {
            let history = History { tokens: &tokens, prompt_len: 0, encoder: &[], draws: DRAWS };
            let mut row = row.clone();
            let chosen = chain.choose(&mut memory, &history, &mut row).unwrap();
            surprise += -probabilities(&row)[chosen as usize].log2() / 2000.0;
            assert!(probs[chosen as usize] > 0.0);
            tokens.push(chosen);
        }
        assert!((surprise - 3.0).abs() < 0.1, "{surprise}");
    }
}
