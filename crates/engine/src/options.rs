//! What a caller chooses: how to sample, what is forbidden or forced, when to stop, what to report.

use crate::constrain::Constraint;
use crate::error::Error;
use crate::sampler::SamplerKind;
use crate::vocabulary::{TextStream, Vocabulary};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Everything about one request but its prompt. The defaults change nothing: greedy choice until the model ends by
/// itself or the context is full. Every field can be set by name with [`GenerateOptions::set`].
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GenerateOptions {
    pub sampling: Sampling,
    pub constraints: Constraints,
    pub beam: Beam,
    pub length: Length,
    pub speculation: Speculation,
    pub report: Report,
}

/// How a token is drawn from a row of logits. Order: [`Sampling::samplers`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sampling {
    /// Divides the logits. 0 is greedy: the highest logit, of equal ones the lowest id.
    pub temperature: f32,
    /// Half the width of the dynamic temperature's range; 0 turns it off.
    pub dynatemp_range: f32,
    pub dynatemp_exponent: f32,
    /// Keeps the k most likely tokens and those equal to the k-th; 0 keeps all.
    pub top_k: usize,
    /// Keeps the fewest most likely tokens that together reach this probability; 1 keeps all.
    pub top_p: f32,
    /// Removes tokens less likely than this fraction of the most likely one; 0 keeps all.
    pub min_p: f32,
    /// Locally typical sampling; 1 keeps all.
    pub typical_p: f32,
    /// Keeps logits within this many standard deviations of the highest; 0 keeps all.
    pub top_n_sigma: f32,
    /// Removes tokens less likely than this; 0 keeps all.
    pub epsilon_cutoff: f32,
    /// The entropy-dependent form of `epsilon_cutoff`; 0 keeps all.
    pub eta_cutoff: f32,
    /// How often XTC acts, 0 to 1.
    pub xtc_probability: f32,
    /// What XTC regards as likely; above 0.5 it never acts.
    pub xtc_threshold: f32,
    /// Strength of the DRY penalty; 0 turns it off.
    pub dry_multiplier: f32,
    pub dry_base: f32,
    /// The longest repetition that DRY does not punish.
    pub dry_allowed_length: usize,
    /// How many of the last tokens DRY looks at: -1 all, 0 none.
    pub dry_penalty_last_n: i64,
    /// Texts that a repetition never crosses.
    pub dry_sequence_breakers: Vec<String>,
    /// Divides positive and multiplies negative logits of tokens that occurred, in the prompt too; 1 changes nothing.
    pub repetition_penalty: f32,
    /// Favours tokens of the encoder's input; 1 changes nothing.
    pub encoder_repetition_penalty: f32,
    /// Subtracted once from tokens that were generated before.
    pub presence_penalty: f32,
    /// Subtracted for each time that a token was generated before.
    pub frequency_penalty: f32,
    /// The window of the three penalties. None: repetition looks at prompt and answer, presence and frequency at the
    /// answer. A number: all three look at the last so many tokens of both (-1: all; 0: none).
    pub repeat_last_n: Option<i64>,
    /// 0 for off, 2 for mirostat 2, which then takes the place of every truncating sampler.
    pub mirostat: u32,
    /// The surprise that mirostat aims at, in bits.
    pub mirostat_tau: f32,
    /// How fast mirostat corrects itself.
    pub mirostat_eta: f32,
    /// Which samplers act, in which order; None: the order of Hugging Face transformers.
    pub samplers: Option<Vec<SamplerKind>>,
    /// None: a fresh one, which the answer reports.
    pub seed: Option<u64>,
}

impl Default for Sampling {
    fn default() -> Sampling {
        Sampling {
            temperature: 0.0,
            dynatemp_range: 0.0,
            dynatemp_exponent: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            typical_p: 1.0,
            top_n_sigma: 0.0,
            epsilon_cutoff: 0.0,
            eta_cutoff: 0.0,
            xtc_probability: 0.0,
            xtc_threshold: 0.1,
            dry_multiplier: 0.0,
            dry_base: 1.75,
            dry_allowed_length: 2,
            dry_penalty_last_n: -1,
            dry_sequence_breakers: ["\n", ":", "\"", "*"].map(String::from).to_vec(),
            repetition_penalty: 1.0,
            encoder_repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            repeat_last_n: None,
            mirostat: 0,
            mirostat_tau: 5.0,
            mirostat_eta: 0.1,
            samplers: None,
            seed: None,
        }
    }
}

/// What may, must and must not be generated. Lengths here count the decoder's tokens.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Constraints {
    /// Added to a token's logit. JSON keys are ids in quotes.
    pub logit_bias: BTreeMap<u32, f32>,
    /// Added to the logit of the last token of a sequence whose other tokens have just been generated.
    pub sequence_bias: Vec<(Vec<u32>, f32)>,
    pub banned_tokens: Vec<u32>,
    /// When not empty, nothing else is generated (the end tokens must be listed too, if wanted).
    pub allowed_tokens: Vec<u32>,
    /// Sequences that are never completed.
    pub bad_words_ids: Vec<Vec<u32>>,
    /// No sequence of this many tokens occurs twice; 0 for off.
    pub no_repeat_ngram_size: usize,
    /// No sequence of this many tokens of the encoder's input is generated; 0 for off.
    pub encoder_no_repeat_ngram_size: usize,
    /// No end token before the decoder's sequence (prompt and answer) is this long.
    pub min_length: usize,
    /// The first token after a single start token.
    pub forced_bos_token_id: Option<u32>,
    /// The tokens of which one is generated at the last place that `max_tokens` leaves.
    pub forced_eos_token_id: Vec<u32>,
    pub suppress_tokens: Vec<u32>,
    /// Not generated in the first place.
    pub begin_suppress_tokens: Vec<u32>,
    /// What the answer as a whole must be.
    pub constraint: Option<Constraint>,
    /// From so many generated tokens on, the end tokens' logits grow by this factor for each further token.
    pub exponential_decay_length_penalty: Option<(usize, f32)>,
}

/// Beam search; used when `num_beams` is more than 1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Beam {
    pub num_beams: usize,
    /// How many of the hypotheses are returned, best first.
    pub num_return_sequences: usize,
    /// A hypothesis' log-probability is divided by its generated length to this power.
    pub length_penalty: f32,
    pub early_stopping: EarlyStopping,
}

impl Default for Beam {
    fn default() -> Beam {
        Beam { num_beams: 1, num_return_sequences: 1, length_penalty: 1.0, early_stopping: EarlyStopping::Heuristic }
    }
}

/// When beam search ends although hypotheses are still open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EarlyStopping {
    /// When the best open one, scored as if it ended now, is no better than the worst finished one (`false`).
    #[default]
    Heuristic,
    /// As soon as there are `num_beams` finished ones (`true`).
    First,
    /// When no open one can become better than the worst finished one (`"never"`).
    Never,
}

impl Serialize for EarlyStopping {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            EarlyStopping::Heuristic => serializer.serialize_bool(false),
            EarlyStopping::First => serializer.serialize_bool(true),
            EarlyStopping::Never => serializer.serialize_str("never"),
        }
    }
}

impl<'de> Deserialize<'de> for EarlyStopping {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<EarlyStopping, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Bool(false) => Ok(EarlyStopping::Heuristic),
            Value::Bool(true) => Ok(EarlyStopping::First),
            Value::String(text) if text == "never" => Ok(EarlyStopping::Never),
            other => Err(serde::de::Error::custom(format!("expected true, false or \"never\", not {other}"))),
        }
    }
}

/// How long an answer may be and what ends it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Length {
    /// The most tokens to generate. None: until the context is full. 0: the prompt is only read (for its log-probabilities).
    pub max_tokens: Option<usize>,
    /// No end token or stop string counts before so many tokens.
    pub min_tokens: usize,
    /// Texts that end the answer; they are not part of it.
    pub stop: Vec<String>,
    /// Token ids that end the answer, beside the model's own.
    pub stop_ids: Vec<u32>,
    /// The model's own end tokens do not end the answer.
    pub ignore_eos: bool,
    /// How many answers to generate.
    pub n: usize,
}

impl Default for Length {
    fn default() -> Length {
        Length { max_tokens: None, min_tokens: 0, stop: Vec::new(), stop_ids: Vec::new(), ignore_eos: false, n: 1 }
    }
}

/// Guessing ahead of one sequence: tokens that may follow are fed in the step of the token before them, and kept as long as
/// they are what is chosen there anyway (Leviathan et al. 2023; lookup: Saxena 2023). The answer stays the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Speculation {
    /// The most tokens guessed from the text so far: those that followed its last tokens where they stood before; 0 for
    /// off.
    pub prompt_lookup_num_tokens: usize,
    /// How many last tokens are looked for at most.
    pub max_matching_ngram_size: usize,
    /// The most tokens that a draft model guesses, where there is one.
    pub num_assistant_tokens: usize,
    /// Guesses are made as long as they pay, from the text so far too where `prompt_lookup_num_tokens` is 0. Without it they
    /// are made as the numbers say.
    pub guess_when_it_pays: bool,
}

/// Tokens that are looked up at most where no number is given.
const LOOKED_UP: usize = 10;

impl Speculation {
    /// The most tokens guessed from the text so far.
    pub(crate) fn looked_up(&self) -> usize {
        match self.prompt_lookup_num_tokens {
            0 if self.guess_when_it_pays => LOOKED_UP,
            tokens => tokens,
        }
    }
}

impl Default for Speculation {
    fn default() -> Speculation {
        Speculation {
            prompt_lookup_num_tokens: 0,
            max_matching_ngram_size: 3,
            num_assistant_tokens: 8,
            guess_when_it_pays: false,
        }
    }
}

/// What is reported beside the text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Report {
    /// Log-probabilities of the generated tokens, each with so many alternatives (0: only its own).
    pub logprobs: Option<usize>,
    /// Log-probabilities of the prompt's tokens, likewise.
    pub prompt_logprobs: Option<usize>,
    /// Special tokens leave no text.
    pub skip_special: bool,
    /// Those that do nevertheless: marks that somebody reads.
    pub show_special: Vec<u32>,
}

impl Default for Report {
    fn default() -> Report {
        Report { logprobs: None, prompt_logprobs: None, skip_special: true, show_special: Vec::new() }
    }
}

impl Report {
    /// A decoder for one answer.
    pub(crate) fn stream<'v>(&self, vocabulary: &'v dyn Vocabulary) -> Box<dyn TextStream + 'v> {
        vocabulary.stream(self.skip_special, &self.show_special)
    }
}

impl GenerateOptions {
    /// Sets one field by its name (`"temperature"`, `"max_tokens"`, ...), whichever section it is in.
    ///
    /// # Errors
    /// [`Error::UnknownParameter`], or [`Error::Parameter`] when the value's type is wrong. Ranges are checked by
    /// [`GenerateOptions::validate`].
    pub fn set(&mut self, name: &str, value: Value) -> Result<(), Error> {
        let mut sections = self.sections();
        let Some((section, fields)) = sections.iter_mut().find(|(_, fields)| fields.contains_key(name)) else {
            let known = sections.iter().flat_map(|(_, fields)| fields.keys().cloned()).collect::<Vec<_>>().join(", ");
            return Err(Error::UnknownParameter { name: name.into(), known });
        };
        fields.insert(name.into(), value.clone());
        let whole = Value::Object(Map::from_iter([(section.clone(), Value::Object(fields.clone()))]));
        let read: GenerateOptions =
            serde_json::from_value(whole).map_err(|error| Error::parameter(name, value, error.to_string()))?;
        match section.as_str() {
            "sampling" => self.sampling = read.sampling,
            "constraints" => self.constraints = read.constraints,
            "beam" => self.beam = read.beam,
            "length" => self.length = read.length,
            "speculation" => self.speculation = read.speculation,
            _ => self.report = read.report,
        }
        Ok(())
    }

    /// The value of a field by its name.
    pub fn get(&self, name: &str) -> Option<Value> {
        self.sections().into_iter().find_map(|(_, mut fields)| fields.remove(name))
    }

    fn sections(&self) -> Vec<(String, Map<String, Value>)> {
        // Plain data always serialises; were it not so, no name would be known and `set` would say so.
        let Ok(Value::Object(sections)) = serde_json::to_value(self) else { return Vec::new() };
        let fields = |(name, value)| match value {
            Value::Object(fields) => Some((name, fields)),
            _ => None,
        };
        sections.into_iter().filter_map(fields).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_are_set_by_name() {
        let mut options = GenerateOptions::default();
        options.set("temperature", json!(0.7)).unwrap();
        options.set("max_tokens", json!(5)).unwrap();
        options.set("early_stopping", json!("never")).unwrap();
        options.set("stop", json!(["a", "b"])).unwrap();
        options.set("logit_bias", json!({"7": -1.5})).unwrap();
        options.set("samplers", json!(["top_k", "temperature"])).unwrap();
        assert_eq!(options.sampling.temperature, 0.7);
        assert_eq!(options.length.max_tokens, Some(5));
        assert_eq!(options.beam.early_stopping, EarlyStopping::Never);
        assert_eq!(options.length.stop, ["a", "b"]);
        assert_eq!(options.constraints.logit_bias[&7], -1.5);
        assert_eq!(options.sampling.samplers.as_ref().map(Vec::len), Some(2));
        assert_eq!(options.get("max_tokens"), Some(json!(5)));
        let again: GenerateOptions = serde_json::from_str(&serde_json::to_string(&options).unwrap()).unwrap();
        assert_eq!(again, options);
    }

    #[test]
    fn errors_name_the_parameter() {
        let mut options = GenerateOptions::default();
        for (name, value) in [
            ("temperature", json!("hot")),
            ("top_k", json!(-1)),
            ("max_tokens", json!(1.5)),
            ("stop", json!("x")),
            ("early_stopping", json!("later")),
            ("samplers", json!(["top_z"])),
            ("seed", json!(-1)),
        ] {
            let error = options.set(name, value).unwrap_err().to_string();
            assert!(error.starts_with(name), "{error}");
        }
        let error = options.set("temprature", json!(1)).unwrap_err().to_string();
        assert!(error.contains("\"temprature\"") && error.contains("temperature"), "{error}");
        assert_eq!(options, GenerateOptions::default());
    }
}
