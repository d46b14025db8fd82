//! The options of generation. Each is absent unless given, so that the model's own defaults stay where nothing is said.

use super::constraint::ConstraintArgs;
use super::values::{self, TokenName};
use clap::Args;
use serde_json::{Value, json};
use std::ffi::OsString;

/// When beam search may end.
pub const WHEN: [&str; 3] = ["true", "false", "never"];

/// One of [`WHEN`] as the engine has it.
pub fn early_stopping(when: &str) -> Value {
    if when == "never" { json!(when) } else { json!(when == "true") }
}

#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Choosing tokens")]
pub struct SamplingArgs {
    /// 0 always takes the most likely token; higher is more varied
    #[arg(long, value_name = "T", value_parser = values::not_negative, allow_negative_numbers = true)]
    pub temperature: Option<f32>,
    /// Lets the temperature move by so much, by how certain the model is
    #[arg(long, value_name = "R", value_parser = values::not_negative, allow_negative_numbers = true)]
    pub dynatemp_range: Option<f32>,
    /// Curve of the moving temperature
    #[arg(long, value_name = "X", value_parser = values::not_negative, allow_negative_numbers = true)]
    pub dynatemp_exponent: Option<f32>,
    /// Keep the K most likely tokens (0: all)
    #[arg(long, value_name = "K", value_parser = values::count, allow_negative_numbers = true)]
    pub top_k: Option<usize>,
    /// Keep the fewest tokens that together reach probability P
    #[arg(long, value_name = "P", value_parser = values::fraction, allow_negative_numbers = true)]
    pub top_p: Option<f32>,
    /// Drop tokens less likely than P times the most likely one
    #[arg(long, value_name = "P", value_parser = values::fraction, allow_negative_numbers = true)]
    pub min_p: Option<f32>,
    /// Locally typical sampling
    #[arg(long, value_name = "P", value_parser = values::fraction, allow_negative_numbers = true)]
    pub typical: Option<f32>,
    /// Keep logits within so many standard deviations of the highest (0: off)
    #[arg(long, value_name = "N", value_parser = values::not_negative, allow_negative_numbers = true)]
    pub top_n_sigma: Option<f32>,
    /// Drop tokens less likely than this (0: off)
    #[arg(long, value_name = "P", value_parser = values::fraction, allow_negative_numbers = true)]
    pub epsilon_cutoff: Option<f32>,
    /// The same, by how certain the model is (0: off)
    #[arg(long, value_name = "P", value_parser = values::fraction, allow_negative_numbers = true)]
    pub eta_cutoff: Option<f32>,
    /// How often XTC removes the most likely tokens
    #[arg(long, value_name = "P", value_parser = values::fraction, allow_negative_numbers = true)]
    pub xtc_probability: Option<f32>,
    /// What XTC takes for likely
    #[arg(long, value_name = "P", value_parser = values::fraction, allow_negative_numbers = true)]
    pub xtc_threshold: Option<f32>,
    /// Strength of the DRY penalty on repeated sequences (0: off)
    #[arg(long, value_name = "X", value_parser = values::not_negative, allow_negative_numbers = true)]
    pub dry_multiplier: Option<f32>,
    /// How fast the DRY penalty grows
    #[arg(long, value_name = "X", value_parser = values::not_negative, allow_negative_numbers = true)]
    pub dry_base: Option<f32>,
    /// Repetitions up to this length are free
    #[arg(long, value_name = "N", value_parser = values::count, allow_negative_numbers = true)]
    pub dry_allowed_length: Option<usize>,
    /// How far back DRY looks (-1: everything)
    #[arg(long, value_name = "N", value_parser = values::look_back, allow_negative_numbers = true)]
    pub dry_penalty_last_n: Option<i64>,
    /// Texts that a repetition does not cross (may be repeated)
    #[arg(long, value_name = "TEXT")]
    pub dry_sequence_breaker: Vec<String>,
    /// Makes tokens that occurred less likely (1: off)
    #[arg(long, value_name = "X", value_parser = values::positive, allow_negative_numbers = true)]
    pub repeat_penalty: Option<f32>,
    /// Subtracted from the logit of a token that was generated before
    #[arg(long, value_name = "X", value_parser = values::finite, allow_negative_numbers = true)]
    pub presence_penalty: Option<f32>,
    /// Subtracted for each time a token was generated before
    #[arg(long, value_name = "X", value_parser = values::finite, allow_negative_numbers = true)]
    pub frequency_penalty: Option<f32>,
    /// How far back the three penalties look (-1: everything)
    #[arg(long, value_name = "N", value_parser = values::look_back, allow_negative_numbers = true)]
    pub repeat_last_n: Option<i64>,
    /// No sequence of N tokens twice (0: off)
    #[arg(long, value_name = "N", value_parser = values::count, allow_negative_numbers = true)]
    pub no_repeat_ngram_size: Option<usize>,
    /// 2 turns mirostat 2 on, which aims at an even surprise
    #[arg(long, value_name = "0|2", value_parser = ["0", "2"], allow_negative_numbers = true)]
    pub mirostat: Option<String>,
    /// The surprise that mirostat aims at, in bits
    #[arg(long, value_name = "X", value_parser = values::positive, allow_negative_numbers = true)]
    pub mirostat_tau: Option<f32>,
    /// How fast mirostat corrects itself
    #[arg(long, value_name = "X", value_parser = values::not_negative, allow_negative_numbers = true)]
    pub mirostat_eta: Option<f32>,
    /// Adds to a token's logit; the token by id or text (may be repeated)
    #[arg(long, value_name = "TOKEN=X", value_parser = values::token_bias, allow_negative_numbers = true)]
    pub logit_bias: Vec<(TokenName, f32)>,
    /// Never generate this token, by id or text (may be repeated)
    #[arg(long, value_name = "TOKEN", value_parser = values::token, allow_negative_numbers = true)]
    pub ban: Vec<TokenName>,
    /// Generate nothing but these tokens, by id or text (may be repeated)
    #[arg(long, value_name = "TOKEN", value_parser = values::token, allow_negative_numbers = true)]
    pub allow: Vec<TokenName>,
    /// Which samplers act, in which order, as in top_k,top_p,temperature
    #[arg(long, value_name = "LIST")]
    pub samplers: Option<String>,
    /// Start of the random numbers: the same seed gives the same answer
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub seed: Option<u64>,
    /// How many answers
    #[arg(long, value_name = "N", value_parser = values::at_least_one, allow_negative_numbers = true)]
    pub n: Option<usize>,
    /// Beam search with so many beams
    #[arg(long, value_name = "N", value_parser = values::at_least_one, allow_negative_numbers = true)]
    pub beams: Option<usize>,
    /// Beam search: above 0 favours long answers
    #[arg(long, value_name = "X", value_parser = values::finite, allow_negative_numbers = true)]
    pub length_penalty: Option<f32>,
    /// Beam search ends: true (with enough answers), false (when no better one is likely), never (when none is possible)
    #[arg(long, value_name = "WHEN", value_parser = WHEN)]
    pub early_stopping: Option<String>,
    /// The first token after a decoder's single start token, by id or text
    #[arg(long, value_name = "TOKEN", value_parser = values::token, allow_negative_numbers = true)]
    pub forced_bos: Option<TokenName>,
    /// The last token of an answer that reaches --max-tokens, by id or text
    #[arg(long, value_name = "TOKEN", value_parser = values::token, allow_negative_numbers = true)]
    pub forced_eos: Option<TokenName>,
    #[command(flatten)]
    pub constraint: ConstraintArgs,
    #[command(flatten)]
    pub length: LengthArgs,
    #[command(flatten)]
    pub speculation: SpeculationArgs,
}

/// What may be guessed, so that one answer comes sooner.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Guessing ahead (the answer stays the same)")]
pub struct SpeculationArgs {
    /// Guess up to N tokens from where the last ones stood before: for answers that repeat their prompt (0: off) [default: as
    /// long as it pays]
    #[arg(long, value_name = "N", value_parser = values::count, allow_negative_numbers = true)]
    pub lookup: Option<usize>,
    /// A smaller model with the same vocabulary that guesses what this one will say
    #[arg(long, value_name = "MODEL")]
    pub draft: Option<OsString>,
    /// How many tokens it guesses at most [default: 8, as long as it pays]
    #[arg(long, value_name = "N", value_parser = values::count, allow_negative_numbers = true, requires = "draft")]
    pub draft_tokens: Option<usize>,
}

#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Length")]
pub struct LengthArgs {
    /// The most tokens to generate (0: only read the prompt) [default: the model's own limit, else until the context is full]
    #[arg(long, value_name = "N", value_parser = values::count, allow_negative_numbers = true)]
    pub max_tokens: Option<usize>,
    /// No end before so many tokens
    #[arg(long, value_name = "N", value_parser = values::count, allow_negative_numbers = true)]
    pub min_tokens: Option<usize>,
    /// A text that ends the answer and is not part of it (may be repeated)
    #[arg(long, value_name = "TEXT")]
    pub stop: Vec<String>,
    /// A token id that ends the answer, beside the model's own (may be repeated)
    #[arg(long, value_name = "ID", allow_negative_numbers = true)]
    pub stop_id: Vec<u32>,
    /// Go on past the model's own end tokens
    #[arg(long)]
    pub ignore_eos: bool,
    /// Show special tokens in the text
    #[arg(long)]
    pub show_special: bool,
    /// Log-probabilities of the answer's tokens, each with N alternatives (with --json)
    #[arg(long, value_name = "N", value_parser = values::count, allow_negative_numbers = true)]
    pub logprobs: Option<usize>,
    /// Log-probabilities of the prompt's tokens, each with N alternatives (with --json)
    #[arg(long, value_name = "N", value_parser = values::count, allow_negative_numbers = true)]
    pub prompt_logprobs: Option<usize>,
}

/// A setting under the engine's name, with the flag it came from.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    pub flag: &'static str,
    pub name: &'static str,
    pub value: Value,
}

impl SamplingArgs {
    /// What was given, except for the options that name tokens: those need a tokenizer first.
    pub fn settings(&self) -> Vec<Setting> {
        let mut list = Settings::default();
        list.number("temperature", "temperature", self.temperature);
        list.number("dynatemp-range", "dynatemp_range", self.dynatemp_range);
        list.number("dynatemp-exponent", "dynatemp_exponent", self.dynatemp_exponent);
        list.add("top-k", "top_k", self.top_k);
        list.number("top-p", "top_p", self.top_p);
        list.number("min-p", "min_p", self.min_p);
        list.number("typical", "typical_p", self.typical);
        list.number("top-n-sigma", "top_n_sigma", self.top_n_sigma);
        list.number("epsilon-cutoff", "epsilon_cutoff", self.epsilon_cutoff);
        list.number("eta-cutoff", "eta_cutoff", self.eta_cutoff);
        list.number("xtc-probability", "xtc_probability", self.xtc_probability);
        list.number("xtc-threshold", "xtc_threshold", self.xtc_threshold);
        list.number("dry-multiplier", "dry_multiplier", self.dry_multiplier);
        list.number("dry-base", "dry_base", self.dry_base);
        list.add("dry-allowed-length", "dry_allowed_length", self.dry_allowed_length);
        list.add("dry-penalty-last-n", "dry_penalty_last_n", self.dry_penalty_last_n);
        list.list("dry-sequence-breaker", "dry_sequence_breakers", &self.dry_sequence_breaker);
        list.number("repeat-penalty", "repetition_penalty", self.repeat_penalty);
        list.number("presence-penalty", "presence_penalty", self.presence_penalty);
        list.number("frequency-penalty", "frequency_penalty", self.frequency_penalty);
        list.add("repeat-last-n", "repeat_last_n", self.repeat_last_n);
        list.add("no-repeat-ngram-size", "no_repeat_ngram_size", self.no_repeat_ngram_size);
        list.add("mirostat", "mirostat", self.mirostat.as_ref().map(|value| u32::from(value == "2") * 2));
        list.number("mirostat-tau", "mirostat_tau", self.mirostat_tau);
        list.number("mirostat-eta", "mirostat_eta", self.mirostat_eta);
        let names = self
            .samplers
            .as_ref()
            .map(|list| list.split([',', ';']).map(|name| json!(name.trim())).collect::<Vec<_>>());
        list.add("samplers", "samplers", names);
        list.add("seed", "seed", self.seed);
        // Of a search, several answers are its best ones.
        let searched = self.beams.is_some_and(|beams| beams > 1);
        list.add("n", if searched { "num_return_sequences" } else { "n" }, self.n);
        list.add("beams", "num_beams", self.beams);
        list.number("length-penalty", "length_penalty", self.length_penalty);
        list.add("early-stopping", "early_stopping", self.early_stopping.as_deref().map(early_stopping));
        self.length.add_to(&mut list);
        if let Some((flag, constraint)) = self.constraint.wanted() {
            list.add(flag, "constraint", serde_json::to_value(constraint).ok());
        }
        list.add("lookup", "prompt_lookup_num_tokens", self.speculation.lookup);
        list.add("draft-tokens", "num_assistant_tokens", self.speculation.draft_tokens);
        list.0
    }
}

impl LengthArgs {
    fn add_to(&self, list: &mut Settings) {
        list.add("max-tokens", "max_tokens", self.max_tokens);
        list.add("min-tokens", "min_tokens", self.min_tokens);
        list.list("stop", "stop", &self.stop);
        if !self.stop_id.is_empty() {
            list.add("stop-id", "stop_ids", Some(self.stop_id.clone()));
        }
        list.add("ignore-eos", "ignore_eos", self.ignore_eos.then_some(true));
        list.add("show-special", "skip_special", self.show_special.then_some(false));
        list.add("logprobs", "logprobs", self.logprobs);
        list.add("prompt-logprobs", "prompt_logprobs", self.prompt_logprobs);
    }
}

#[derive(Default)]
struct Settings(Vec<Setting>);

impl Settings {
    fn add(&mut self, flag: &'static str, name: &'static str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.0.push(Setting { flag, name, value: value.into() });
        }
    }

    fn number(&mut self, flag: &'static str, name: &'static str, value: Option<f32>) {
        self.add(flag, name, value.map(|value| json!(value)));
    }

    fn list(&mut self, flag: &'static str, name: &'static str, values: &[String]) {
        self.add(flag, name, (!values.is_empty()).then(|| json!(values)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_given_is_nothing_set() {
        assert_eq!(SamplingArgs::default().settings(), []);
    }

    #[test]
    fn flags_reach_the_engine_under_its_names() {
        let args = SamplingArgs {
            temperature: Some(0.5),
            typical: Some(0.9),
            mirostat: Some("2".into()),
            length: LengthArgs { stop: vec!["\n".into()], stop_id: vec![3], show_special: true, ..Default::default() },
            ..Default::default()
        };
        let mut options = attend_engine::GenerateOptions::default();
        for setting in args.settings() {
            options.set(setting.name, setting.value).expect("the engine knows it");
        }
        assert_eq!(
            (options.sampling.temperature, options.sampling.typical_p, options.sampling.mirostat),
            (0.5, 0.9, 2)
        );
        assert_eq!(
            (options.length.stop, options.length.stop_ids, options.report.skip_special),
            (vec!["\n".into()], vec![3], false)
        );
    }
}
