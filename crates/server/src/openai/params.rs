//! The parameters that completions of both kinds share, as the engine's options.

use crate::constraint;
use crate::failure::Failure;
use crate::fields::{Fields, unknown, wrong};
use crate::host::no_infill;
use crate::limits::Limits;
use attend_engine::GenerateOptions;
use attend_text::{Infill, Tokenizer};
use serde_json::{Map, Value, json};

/// Fields that clients send and that change no answer here.
const IGNORED: &[&str] =
    &["user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"];

/// The engine's own parameters that a request may name. Left out are those whose cost grows with lists of a request's.
const OWN: &[&str] = &[
    "dynatemp_range",
    "dynatemp_exponent",
    "top_k",
    "min_p",
    "typical_p",
    "top_n_sigma",
    "epsilon_cutoff",
    "eta_cutoff",
    "xtc_probability",
    "xtc_threshold",
    "dry_multiplier",
    "dry_base",
    "dry_allowed_length",
    "dry_penalty_last_n",
    "repetition_penalty",
    "encoder_repetition_penalty",
    "repeat_last_n",
    "mirostat",
    "mirostat_tau",
    "mirostat_eta",
    "samplers",
    "stop_ids",
    "banned_tokens",
    "no_repeat_ngram_size",
    "min_length",
    "min_tokens",
    "ignore_eos",
    "num_beams",
    "length_penalty",
    "early_stopping",
    "prompt_lookup_num_tokens",
    "max_matching_ngram_size",
    "num_assistant_tokens",
    "skip_special",
];

/// What is known of a request beside its prompt.
#[derive(Debug, Default)]
pub struct Params {
    /// By the engine's names.
    pub given: Vec<(String, Value)>,
    pub choices: usize,
    pub stream: bool,
    /// A stream ends with what it cost.
    pub usage: bool,
    /// The field that says what answers must be.
    pub constrained: Option<String>,
    /// Whose requests alone share their pasts with this one.
    pub salt: Option<String>,
    /// How soon it is worked on while others wait: the lower the sooner.
    pub priority: i64,
}

impl Params {
    pub fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.given.push((name.into(), value.into()));
    }

    fn set_some(&mut self, name: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.set(name, value);
        }
    }
}

/// Takes the shared parameters.
///
/// # Errors
/// Values of wrong types or ranges.
pub fn take(fields: &mut Fields, limits: &Limits) -> Result<Params, Failure> {
    let mut params = Params::default();
    params.set_some("temperature", fields.number("temperature", 0.0, 100.0)?);
    params.set_some("top_p", fields.number("top_p", 0.0, 1.0)?);
    for name in ["presence_penalty", "frequency_penalty"] {
        params.set_some(name, fields.number(name, -2.0, 2.0)?);
    }
    params.set_some("seed", seed(fields)?);
    params.choices = fields.count("n", 1, limits.choices)?.unwrap_or(1);
    if let Some(stops) = stops(fields, "stop", limits)? {
        params.set("stop", stops);
    }
    if let Some(biases) = fields.object("logit_bias")? {
        params.set("logit_bias", logit_bias(biases.rest(), limits)?);
    }
    params.stream = fields.flag("stream")?.unwrap_or(false);
    if let Some(mut options) = fields.object("stream_options")? {
        if !params.stream {
            return Err(Failure::field("stream_options", "stream_options mean something only with stream"));
        }
        params.usage = options.flag("include_usage")?.unwrap_or(false);
        options.ignore(&["include_obfuscation"]);
        options.end()?;
    }
    if let Some(wanted) = constraint::take(fields)? {
        params.given.push(wanted.given()?);
        params.constrained = Some(wanted.place);
    }
    params.salt = fields.text("cache_salt")?;
    if params.salt.as_ref().is_some_and(|salt| salt.is_empty() || salt.len() > limits.stop_bytes) {
        let message = format!("cache_salt must have 1 to {} bytes", limits.stop_bytes);
        return Err(Failure::field("cache_salt", message));
    }
    params.priority = fields.signed("priority", -1000, 1000)?.unwrap_or(0);
    fields.ignore(IGNORED);
    Ok(params)
}

/// A request that fills a gap ends where such an answer ends, beside where it ends anyway.
///
/// # Errors
/// A model that fills none.
pub fn fill_gap(given: &mut Vec<(String, Value)>, tokenizer: &Tokenizer) -> Result<(), Failure> {
    let infill = Infill::of(tokenizer).ok_or_else(no_infill)?;
    let ends = infill.ends().iter().map(|id| json!(id));
    match given.iter_mut().find(|(name, _)| name == "stop_ids") {
        Some((_, Value::Array(ids))) => ids.extend(ends),
        // Whatever else it is has been refused.
        Some(_) => {}
        None => given.push(("stop_ids".into(), ends.collect())),
    }
    Ok(())
}

/// A seed. Negative ones stand for the large numbers with the same bits.
fn seed(fields: &mut Fields) -> Result<Option<u64>, Failure> {
    let Some(value) = fields.take("seed") else { return Ok(None) };
    let read = value.as_u64().or_else(|| value.as_i64().map(i64::cast_unsigned));
    read.map(Some).ok_or_else(|| wrong("seed", "a whole number of 64 bits", &value))
}

/// Stop strings, within their limits.
///
/// # Errors
/// More or longer ones, and empty ones.
pub fn stops(fields: &mut Fields, name: &str, limits: &Limits) -> Result<Option<Vec<String>>, Failure> {
    let Some(stops) = fields.texts(name, limits.stops)? else { return Ok(None) };
    match stops.iter().find(|stop| stop.is_empty() || stop.len() > limits.stop_bytes) {
        Some(stop) => {
            let message = format!("{name} holds a string of {} bytes; each has 1 to {}", stop.len(), limits.stop_bytes);
            Err(Failure::field(name, message))
        }
        None => Ok(Some(stops)),
    }
}

fn logit_bias(biases: Map<String, Value>, limits: &Limits) -> Result<Value, Failure> {
    if biases.len() > limits.biases {
        let message = format!("logit_bias has {} tokens; at most {} are taken", biases.len(), limits.biases);
        return Err(Failure::field("logit_bias", message));
    }
    let mut read = Map::new();
    for (id, value) in biases {
        let number = id.parse::<u32>().ok().filter(|number| number.to_string() == id);
        let Some(number) = number else {
            let shown: String = id.chars().take(40).collect();
            let message = format!("logit_bias has the key {shown:?}; ids of tokens are wanted");
            return Err(Failure::field("logit_bias", message));
        };
        let bias = value.as_f64().filter(|bias| (-100.0..=100.0).contains(bias));
        let place = format!("logit_bias.{number}");
        let bias = bias.ok_or_else(|| wrong(&place, "a number from -100 to 100", &value))?;
        read.insert(id, json!(bias));
    }
    Ok(Value::Object(read))
}

/// Takes what is left: the engine's own parameters, and nothing else.
///
/// # Errors
/// Fields that nobody knows, and values of wrong types or ranges.
pub fn finish(fields: Fields, mut params: Params, limits: &Limits) -> Result<Params, Failure> {
    for (name, value) in fields.rest() {
        if value.is_null() {
            continue;
        }
        if !OWN.contains(&name.as_str()) {
            return Err(unknown(&name));
        }
        if let Value::Array(list) = &value
            && list.len() > limits.biases
        {
            let message = format!("{name} has {} items; at most {} are taken", list.len(), limits.biases);
            return Err(Failure::field(name, message));
        }
        if name == "num_beams" && value.as_u64().is_some_and(|beams| beams > limits.choices as u64) {
            return Err(wrong("num_beams", &format!("a whole number from 1 to {}", limits.choices), &value));
        }
        params.given.push((name, value));
    }
    let searched = params.given.iter().any(|(name, beams)| name == "num_beams" && beams.as_u64() > Some(1));
    let name = if searched { "num_return_sequences" } else { "n" };
    if params.choices > 1 {
        params.set(name, params.choices);
    }
    check(&params.given)?;
    Ok(params)
}

/// Types and ranges are the engine's to check, and what is wrong must be known before a request takes a place in a queue.
///
/// # Errors
/// Values that the engine does not take.
pub fn check(given: &[(String, Value)]) -> Result<(), Failure> {
    let mut options = GenerateOptions::default();
    for (name, value) in given {
        options.set(name, value.clone())?;
    }
    Ok(options.validate(usize::MAX)?)
}

/// A list of token ids.
///
/// # Errors
/// Anything else in it.
pub fn token_ids(list: &[Value], place: &str) -> Result<Vec<u32>, Failure> {
    let id = |(index, value): (usize, &Value)| {
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
        id.ok_or_else(|| wrong(&format!("{place}[{index}]"), "a token id", value))
    };
    list.iter().enumerate().map(id).collect()
}

/// A text or tokens, or a list of such.
#[derive(Debug)]
pub enum Text {
    Words(String),
    Tokens(Vec<u32>),
}

/// Reads a field that is a string, a list of token ids, or a list of either.
///
/// # Errors
/// Anything else, empty lists, and more than `most`.
pub fn texts(fields: &mut Fields, name: &str, most: usize) -> Result<Vec<Text>, Failure> {
    let list = match fields.take(name) {
        None => return Err(fields.missing(name)),
        Some(Value::String(text)) => return Ok(vec![Text::Words(text)]),
        Some(Value::Array(list)) => list,
        Some(other) => return Err(wrong(name, "a string, a list of strings, or token ids", &other)),
    };
    match list.first() {
        None => return Err(Failure::field(name, format!("{name} is an empty list"))),
        Some(Value::Number(_)) => return Ok(vec![Text::Tokens(token_ids(&list, name)?)]),
        Some(_) => {}
    }
    if list.len() > most {
        return Err(Failure::field(name, format!("{name} has {} items; at most {most} are taken", list.len())));
    }
    let one = |(index, value): (usize, Value)| match value {
        Value::String(text) => Ok(Text::Words(text)),
        Value::Array(ids) if ids.is_empty() => {
            Err(Failure::field(name, format!("{name}[{index}] is an empty list of tokens")))
        }
        Value::Array(ids) => Ok(Text::Tokens(token_ids(&ids, &format!("{name}[{index}]"))?)),
        other => Err(wrong(&format!("{name}[{index}]"), "a string or a list of token ids", &other)),
    };
    list.into_iter().enumerate().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: Value) -> Result<Params, Failure> {
        let mut fields = Fields::within(body, "").map(|fields| Fields::new(fields.rest()))?;
        let params = take(&mut fields, &Limits::default())?;
        finish(fields, params, &Limits::default())
    }

    #[test]
    fn good_parameters_reach_the_engine_under_its_names() {
        let body = json!({
            "temperature": 0.5, "top_p": 0.9, "n": 2, "seed": -1, "stop": "x", "logit_bias": {"7": -100},
            "stream": true, "stream_options": {"include_usage": true}, "user": "me", "top_k": 5, "presence_penalty": null, "priority": -3,
        });
        let params = read(body).expect("read");
        let get = |name: &str| params.given.iter().find(|(own, _)| own == name).map(|(_, value)| value.clone());
        assert_eq!(get("seed"), Some(json!(u64::MAX)));
        assert_eq!((get("stop"), get("n"), get("top_k")), (Some(json!(["x"])), Some(json!(2)), Some(json!(5))));
        assert_eq!(get("logit_bias"), Some(json!({"7": -100.0})));
        assert_eq!(params.priority, -3);
        assert!(params.stream && params.usage && get("presence_penalty").is_none());
        let searched = read(json!({"num_beams": 4, "n": 2})).expect("read");
        assert!(searched.given.contains(&("num_return_sequences".into(), json!(2))));
    }

    #[test]
    fn bad_ones_are_named() {
        for (body, param) in [
            (json!({"temperature": -1}), "temperature"),
            (json!({"temperature": "hot"}), "temperature"),
            (json!({"top_p": 1.5}), "top_p"),
            (json!({"n": 17}), "n"),
            (json!({"n": 1e6}), "n"),
            (json!({"seed": 1.5}), "seed"),
            (json!({"seed": 1e30}), "seed"),
            (json!({"stop_ids": "x"}), "stop_ids"),
            (json!({"stop": ""}), "stop"),
            (json!({"stop": "x".repeat(257)}), "stop"),
            (json!({"logit_bias": {"-1": 1}}), "logit_bias"),
            (json!({"logit_bias": {"07": 1}}), "logit_bias"),
            (json!({"logit_bias": {"7": 1e9}}), "logit_bias.7"),
            (json!({"logit_bias": [1]}), "logit_bias"),
            (json!({"top_k": -1}), "top_k"),
            (json!({"repetition_penalty": 0}), "repetition_penalty"),
            (json!({"num_beams": 17}), "num_beams"),
            (json!({"sequence_bias": []}), "sequence_bias"),
            (json!({"priority": 1001}), "priority"),
            (json!({"priority": 0.5}), "priority"),
            (json!({"surprise": 1}), "surprise"),
            (json!({"stream_options": {}}), "stream_options"),
            (json!({"stream": true, "stream_options": {"x": 1}}), "stream_options.x"),
        ] {
            let failure = read(body.clone()).expect_err("refused");
            assert_eq!((failure.status.as_u16(), failure.param.as_deref()), (400, Some(param)), "{body}: {failure:?}");
        }
    }
}
