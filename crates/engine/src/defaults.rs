//! A model's own defaults and the caller's wishes, put together, with where each value came from.

use crate::error::Error;
use crate::options::GenerateOptions;
use attend_model::{EarlyStopping, GenerationDefaults};
use serde_json::{Value, json};

/// A value that is not the neutral default.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    pub name: String,
    pub value: Value,
    /// A file's name, or `given`.
    pub source: String,
}

/// Characters of a value that a line for people has.
const SHOWN: usize = 100;

impl std::fmt::Display for Setting {
    /// `temperature 0.6 (generation_config.json)`
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let value = self.value.to_string();
        match value.char_indices().nth(SHOWN) {
            Some((end, _)) => write!(f, "{} {}… ({})", self.name, &value[..end], self.source),
            None => write!(f, "{} {value} ({})", self.name, self.source),
        }
    }
}

/// Options with the origin of each value that someone chose.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Resolved {
    pub options: GenerateOptions,
    pub settings: Vec<Setting>,
}

impl Resolved {
    /// The model's defaults, over which the caller's values go. `given`: names and values as in
    /// [`GenerateOptions::set`]. `encoder_decoder` says whether the model is one: only there a file's `max_length` is the
    /// answer's limit; in a decoder, where the prompt counts too, the context is. Guesses are made where they pay, unless
    /// `given` says how many.
    ///
    /// # Errors
    /// As [`GenerateOptions::set`]; a file's value of a wrong range shows in [`GenerateOptions::validate`].
    pub fn new(
        defaults: &GenerationDefaults,
        encoder_decoder: bool,
        given: impl IntoIterator<Item = (String, Value)>,
    ) -> Result<Resolved, Error> {
        let mut resolved = Resolved::default();
        for (name, key, value) in wishes(defaults, encoder_decoder) {
            let source = defaults.sources.get(key).cloned().unwrap_or_else(|| "the model's files".into());
            resolved.set(name, value, source)?;
        }
        let from_files = resolved.options.beam.num_beams;
        for (name, value) in given {
            resolved.set(&name, value, "given".into())?;
        }
        resolved.prefer_sampling(from_files)?;
        // Whoever gives a number has decided how to guess.
        let numbers = ["prompt_lookup_num_tokens", "num_assistant_tokens", "guess_when_it_pays"];
        if !resolved.settings.iter().any(|setting| numbers.contains(&setting.name.as_str())) {
            resolved.options.speculation.guess_when_it_pays = true;
        }
        Ok(resolved)
    }

    fn set(&mut self, name: &str, value: Value, source: String) -> Result<(), Error> {
        self.options.set(name, value.clone())?;
        self.settings.retain(|setting| setting.name != name);
        self.settings.push(Setting { name: name.into(), value, source });
        Ok(())
    }

    /// A file's beam search gives way to a caller who asks for what beam search does not do.
    fn prefer_sampling(&mut self, from_files: usize) -> Result<(), Error> {
        let given = |name: &str| self.settings.iter().any(|s| s.name == name && s.source == "given");
        let options = &self.options;
        let sampled = options.sampling.temperature > 0.0 || options.length.n > 1 || !options.length.stop.is_empty();
        let sampled = sampled || options.constraints.constraint.is_some();
        if from_files > 1 && sampled && !given("num_beams") {
            self.set("num_beams", json!(1), "a sampled answer is not searched for".into())?;
            self.set("num_return_sequences", json!(1), "a sampled answer is not searched for".into())?;
        }
        Ok(())
    }
}

/// Our name, the file's key and the value of everything that the files say.
fn wishes(d: &GenerationDefaults, encoder_decoder: bool) -> Vec<(&'static str, &'static str, Value)> {
    let mut list: Vec<(&'static str, &'static str, Value)> = Vec::new();
    let mut put = |name, key, value: Option<Value>| list.extend(value.map(|value| (name, key, value)));
    // Hugging Face files sample only where `do_sample` says so; GGUF's sampling keys are there to be used.
    let of_gguf = d.sources.get("temperature").is_some_and(|source| source.starts_with("general."));
    if d.do_sample == Some(true) || (d.do_sample.is_none() && of_gguf) {
        put(
            "temperature",
            if d.temperature.is_some() { "temperature" } else { "do_sample" },
            Some(number(d.temperature.unwrap_or(1.0))),
        );
    }
    put("top_k", "top_k", d.top_k.map(Value::from));
    put("top_p", "top_p", d.top_p.map(number));
    put("min_p", "min_p", d.min_p.map(number));
    put("typical_p", "typical_p", d.typical_p.map(number));
    put("repetition_penalty", "repetition_penalty", d.repetition_penalty.map(number));
    put("no_repeat_ngram_size", "no_repeat_ngram_size", d.no_repeat_ngram_size.map(Value::from));
    let encoder_ngram = d.encoder_no_repeat_ngram_size.map(Value::from);
    put("encoder_no_repeat_ngram_size", "encoder_no_repeat_ngram_size", encoder_ngram);
    put("min_length", "min_length", d.min_length.map(Value::from));
    put("min_tokens", "min_new_tokens", d.min_new_tokens.map(Value::from));
    put("forced_bos_token_id", "forced_bos_token_id", d.forced_bos.map(Value::from));
    put("forced_eos_token_id", "forced_eos_token_id", some(&d.forced_eos));
    put("suppress_tokens", "suppress_tokens", some(&d.suppress_tokens));
    put("begin_suppress_tokens", "begin_suppress_tokens", some(&d.begin_suppress_tokens));
    put("bad_words_ids", "bad_words_ids", some(&d.bad_words));
    put("num_beams", "num_beams", d.num_beams.map(Value::from));
    put("num_return_sequences", "num_return_sequences", d.num_return_sequences.map(Value::from));
    put("length_penalty", "length_penalty", d.length_penalty.map(number));
    put("early_stopping", "early_stopping", d.early_stopping.map(early));
    match (d.max_new_tokens, d.max_length) {
        (Some(count), _) => put("max_tokens", "max_new_tokens", Some(json!(count))),
        // The start token counts in a file's `max_length`.
        (None, Some(length)) if encoder_decoder => {
            put("max_tokens", "max_length", Some(json!(length.saturating_sub(1))))
        }
        (None, _) => {}
    }
    list
}

fn some<T: serde::Serialize>(items: &[T]) -> Option<Value> {
    if items.is_empty() { None } else { serde_json::to_value(items).ok() }
}

/// The shortest decimal that reads back as the same f32: 0.6, not 0.60000002384.
fn number(value: f32) -> Value {
    value.to_string().parse::<f64>().map_or(Value::Null, Value::from)
}

fn early(value: EarlyStopping) -> Value {
    match value {
        EarlyStopping::Heuristic => json!(false),
        EarlyStopping::First => json!(true),
        EarlyStopping::Never => json!("never"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(change: impl FnOnce(&mut GenerationDefaults)) -> GenerationDefaults {
        let mut defaults = GenerationDefaults::default();
        change(&mut defaults);
        for key in ["temperature", "top_p", "num_beams", "max_new_tokens", "do_sample"] {
            defaults.sources.insert(key, "generation_config.json".into());
        }
        defaults
    }

    fn resolve(defaults: &GenerationDefaults, given: &[(&str, Value)]) -> Resolved {
        let given = given.iter().map(|(name, value)| (name.to_string(), value.clone()));
        Resolved::new(defaults, false, given).unwrap()
    }

    #[test]
    fn files_give_defaults_and_the_caller_overrides_them() {
        let defaults = file(|d| (d.do_sample, d.temperature, d.top_p) = (Some(true), Some(0.6), Some(0.9)));
        let resolved = resolve(&defaults, &[("top_p", json!(0.5))]);
        assert_eq!((resolved.options.sampling.temperature, resolved.options.sampling.top_p), (0.6, 0.5));
        let shown: Vec<String> = resolved.settings.iter().map(Setting::to_string).collect();
        assert_eq!(shown, ["temperature 0.6 (generation_config.json)", "top_p 0.5 (given)"]);
    }

    #[test]
    fn without_do_sample_a_file_is_greedy() {
        let defaults = file(|d| d.temperature = Some(0.6));
        assert_eq!(resolve(&defaults, &[]).options.sampling.temperature, 0.0);
        let mut gguf = defaults.clone();
        gguf.sources.insert("temperature", "general.sampling.temp".into());
        assert_eq!(resolve(&gguf, &[]).options.sampling.temperature, 0.6);
        let sampled = file(|d| d.do_sample = Some(true));
        assert_eq!(resolve(&sampled, &[]).options.sampling.temperature, 1.0);
    }

    #[test]
    fn a_files_beams_give_way_to_a_caller_who_samples() {
        let defaults = file(|d| (d.num_beams, d.num_return_sequences) = (Some(4), Some(2)));
        assert_eq!(resolve(&defaults, &[]).options.beam.num_beams, 4);
        let resolved = resolve(&defaults, &[("temperature", json!(0.8))]);
        assert_eq!(resolved.options.beam.num_beams, 1);
        assert!(resolved.options.validate(10).is_ok());
        let both = resolve(&defaults, &[("temperature", json!(0.8)), ("num_beams", json!(3))]);
        assert!(both.options.validate(10).is_err(), "asking for both is the caller's mistake, and is said");
    }

    #[test]
    fn max_length_limits_the_answer_of_an_encoder_decoder_only() {
        let defaults = file(|d| d.max_length = Some(20));
        assert_eq!(resolve(&defaults, &[]).options.length.max_tokens, None);
        let resolved = Resolved::new(&defaults, true, []).unwrap();
        assert_eq!(resolved.options.length.max_tokens, Some(19));
    }
}
