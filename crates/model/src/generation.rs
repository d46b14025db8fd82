//! What a checkpoint says about generation, merged from every place that may say it.

use crate::describe::Described;
use crate::error::Error;
use crate::reader::{Log, Reader};
use attend_format::{Checkpoint, Config};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Defaults of generation; `None` and empty where no file says anything. Where several files do,
/// `generation_config.json` outranks `config.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct GenerationDefaults {
    /// Any of these ends the text.
    pub eos: Vec<u32>,
    pub bos: Option<u32>,
    pub pad: Option<u32>,
    pub decoder_start: Option<u32>,
    pub forced_bos: Option<u32>,
    pub forced_eos: Vec<u32>,
    pub max_new_tokens: Option<usize>,
    /// Prompt and new tokens together.
    pub max_length: Option<usize>,
    pub min_new_tokens: Option<usize>,
    pub min_length: Option<usize>,
    pub do_sample: Option<bool>,
    pub temperature: Option<f32>,
    pub top_k: Option<usize>,
    pub top_p: Option<f32>,
    pub min_p: Option<f32>,
    pub typical_p: Option<f32>,
    pub repetition_penalty: Option<f32>,
    pub no_repeat_ngram_size: Option<usize>,
    pub encoder_no_repeat_ngram_size: Option<usize>,
    pub suppress_tokens: Vec<u32>,
    pub begin_suppress_tokens: Vec<u32>,
    pub bad_words: Vec<Vec<u32>>,
    pub num_beams: Option<usize>,
    pub num_return_sequences: Option<usize>,
    pub length_penalty: Option<f32>,
    pub early_stopping: Option<EarlyStopping>,
    /// For each field above that is set, the file that set it.
    pub sources: BTreeMap<&'static str, String>,
}

/// When beam search stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum EarlyStopping {
    /// When no better hypothesis seems likely (`false`).
    Heuristic,
    /// As soon as there are enough hypotheses (`true`).
    First,
    /// When no better hypothesis is possible (`"never"`).
    Never,
}

/// What a configuration says of one task under `task_specific_params`.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskDefaults {
    /// Stands in front of every text.
    pub prefix: Option<String>,
    /// The settings of the task, and behind them those of the model.
    pub generation: GenerationDefaults,
}

impl Described {
    /// The names under `task_specific_params`.
    pub fn tasks(&self) -> Vec<&str> {
        let tasks = self.checkpoint.config().value("task_specific_params").and_then(Value::as_object);
        tasks.into_iter().flatten().map(|(name, _)| name.as_str()).collect()
    }

    /// What the configuration says of a task; `None` where it says nothing.
    ///
    /// # Errors
    /// Values of a type that makes no sense.
    pub fn task(&self, name: &str) -> Result<Option<TaskDefaults>, Error> {
        let Some(tasks) = self.checkpoint.config().object("task_specific_params")? else { return Ok(None) };
        let Some(task) = tasks.object(name)? else { return Ok(None) };
        let log = Log::default();
        let prefix = Reader::new(&self.checkpoint, &task, "", &log).text("prefix")?.map(str::to_owned);
        let mut generation = defaults(&self.checkpoint, Some(&task))?;
        generation.decoder_start = generation.decoder_start.or(self.generation.decoder_start);
        Ok(Some(TaskDefaults { prefix, generation }))
    }
}

/// Reads the defaults, those of `task` before all others. Fields of a type that makes no sense are errors, as in any other
/// configuration.
pub(crate) fn defaults(checkpoint: &Checkpoint, task: Option<&Config>) -> Result<GenerationDefaults, Error> {
    let log = Log::default();
    let mut merged = GenerationDefaults::default();
    let text = checkpoint.config().object("text_config")?;
    let files = [task, checkpoint.generation_config(), Some(checkpoint.config()), text.as_ref()];
    let configs: Vec<&Config> = files.into_iter().flatten().collect();
    for config in configs {
        merged.read(&Reader::new(checkpoint, config, "", &log))?;
    }
    if let Some(metadata) = checkpoint.gguf() {
        merged.metadata(metadata)?;
    }
    Ok(merged)
}

/// The fields of [`GenerationDefaults`] that files call otherwise.
const RENAMED: [(&str, &str); 7] = [
    ("eos", "eos_token_id"),
    ("bos", "bos_token_id"),
    ("pad", "pad_token_id"),
    ("decoder_start", "decoder_start_token_id"),
    ("forced_bos", "forced_bos_token_id"),
    ("forced_eos", "forced_eos_token_id"),
    ("bad_words", "bad_words_ids"),
];

/// The name that `generation_config.json` has for a field.
fn key_of(field: &str) -> &str {
    RENAMED.iter().find(|(ours, _)| *ours == field).map_or(field, |(_, theirs)| theirs)
}

impl GenerationDefaults {
    /// The fields that a file sets, in the order of the files' names for them: our name for the field, the value as
    /// [`GenerationDefaults::to_json`] has it, and the file.
    pub fn set_fields(&self) -> Vec<(&str, Value, &str)> {
        let mut values = self.to_json();
        let field = |key: &'static str| RENAMED.iter().find(|(_, theirs)| *theirs == key).map_or(key, |(ours, _)| ours);
        let fields = self.sources.iter();
        fields
            .map(|(key, file)| (field(key), values.remove(*key).unwrap_or(Value::Array(Vec::new())), file.as_str()))
            .collect()
    }

    /// As `generation_config.json` has them; what is not set is left out.
    pub fn to_json(&self) -> Map<String, Value> {
        let Ok(Value::Object(fields)) = serde_json::to_value(self) else { return Map::new() };
        let name = |field: String| key_of(&field).to_owned();
        let set = fields.into_iter().filter(|(field, value)| {
            let empty = value.is_null() || value.as_array().is_some_and(Vec::is_empty);
            !empty && field != "sources"
        });
        set.map(|(field, value)| match (field.as_str(), value) {
            ("early_stopping", value) => {
                let value = match self.early_stopping {
                    Some(EarlyStopping::Heuristic) => Value::Bool(false),
                    Some(EarlyStopping::First) => Value::Bool(true),
                    Some(EarlyStopping::Never) => Value::String("never".into()),
                    None => value,
                };
                (field, value)
            }
            // One end of a text is written as a number.
            ("eos" | "forced_eos", Value::Array(ids)) if ids.len() == 1 => {
                (name(field), ids.into_iter().next().unwrap_or_default())
            }
            // 0.7 as f32 would be written 0.699999988079071.
            (_, Value::Number(float)) if float.is_f64() => {
                let short = float.as_f64().map(|float| (float as f32).to_string().parse::<f64>());
                let value = short.and_then(Result::ok).map_or(Value::Null, Value::from);
                (name(field), value)
            }
            (_, value) => (name(field), value),
        })
        .collect()
    }

    /// Fills what is not set yet.
    fn read(&mut self, r: &Reader) -> Result<(), Error> {
        let source = r.config().file().file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let sources = &mut self.sources;
        let mut set = |name: &'static str| drop(sources.insert(name, source.clone()));
        macro_rules! fill {
            ($($field:ident, $read:expr;)*) => {$(
                let key = key_of(stringify!($field));
                if self.$field.is_none() && let Some(value) = $read(r, key)? {
                    self.$field = Some(value);
                    set(key);
                }
            )*};
        }
        macro_rules! list {
            ($($field:ident, $read:expr;)*) => {$(
                let key = key_of(stringify!($field));
                if self.$field.is_empty() && r.value(key).is_some() {
                    self.$field = $read(r, key)?;
                    set(key);
                }
            )*};
        }
        list! {
            eos, ids; forced_eos, ids; suppress_tokens, ids; begin_suppress_tokens, ids; bad_words, words;
        }
        fill! {
            bos, id; pad, id; decoder_start, id; forced_bos, id;
            max_new_tokens, Reader::whole_opt; max_length, Reader::whole_opt;
            min_new_tokens, Reader::whole_opt; min_length, Reader::whole_opt;
            do_sample, flag; temperature, number; top_k, Reader::whole_opt; top_p, number; min_p, number;
            typical_p, number; repetition_penalty, number; no_repeat_ngram_size, Reader::whole_opt;
            encoder_no_repeat_ngram_size, Reader::whole_opt; num_beams, Reader::whole_opt;
            num_return_sequences, Reader::whole_opt; length_penalty, number; early_stopping, early;
        }
        Ok(())
    }

    /// What GGUF says beyond the fields it shares with config.json: other ends of a text, sampling settings.
    fn metadata(&mut self, metadata: &attend_format::gguf::Metadata) -> Result<(), Error> {
        for key in ["tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"] {
            if let Some(id) = metadata.token_id(key)?.filter(|id| !self.eos.contains(id)) {
                self.eos.push(id);
                self.sources.insert(key_of("eos"), key.to_string());
            }
        }
        let mut number = |field: &mut Option<f32>, name: &'static str, key: &str| -> Result<(), Error> {
            if let (None, Some(value)) = (*field, metadata.f64(key)?.filter(|value| value.is_finite())) {
                *field = Some(value as f32);
                self.sources.insert(name, key.to_string());
            }
            Ok(())
        };
        number(&mut self.temperature, "temperature", "general.sampling.temp")?;
        number(&mut self.top_p, "top_p", "general.sampling.top_p")?;
        number(&mut self.min_p, "min_p", "general.sampling.min_p")?;
        number(&mut self.repetition_penalty, "repetition_penalty", "general.sampling.penalty_repeat")?;
        if let (None, Some(top_k)) = (self.top_k, metadata.i64("general.sampling.top_k")?) {
            // Zero and below mean: not limited.
            self.top_k = Some(usize::try_from(top_k).unwrap_or(0));
            self.sources.insert("top_k", "general.sampling.top_k".into());
        }
        Ok(())
    }
}

/// A token id; -1, which some files write for none, is none.
fn id(r: &Reader, key: &str) -> Result<Option<u32>, Error> {
    match r.value(key) {
        Some(Value::Array(list)) if list.len() == 1 => {
            Ok(id_list(r, key, &Value::Array(list.clone()))?.first().copied())
        }
        Some(value) if value.as_i64() == Some(-1) => Ok(None),
        _ => Ok(r.whole_opt(key)?.map(|id| id as u32)),
    }
}

/// One id or a list of them.
fn ids(r: &Reader, key: &str) -> Result<Vec<u32>, Error> {
    match r.value(key) {
        None => Ok(Vec::new()),
        Some(list @ Value::Array(_)) => id_list(r, key, list),
        Some(_) => Ok(id(r, key)?.into_iter().collect()),
    }
}

fn id_list(r: &Reader, key: &str, value: &Value) -> Result<Vec<u32>, Error> {
    let wrong = || r.wrong(key, format!("must be token ids, found {}", crate::reader::short(value)));
    let list = value.as_array().ok_or_else(wrong)?;
    list.iter().map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok()).ok_or_else(wrong)).collect()
}

/// Words that are not written, each as its ids.
fn words(r: &Reader, key: &str) -> Result<Vec<Vec<u32>>, Error> {
    let words = r.list(key)?.into_iter().flatten();
    words.map(|word| id_list(r, key, word)).collect()
}

fn flag(r: &Reader, key: &str) -> Result<Option<bool>, Error> {
    r.value(key).map(|_| r.flag(key, false)).transpose()
}

fn number(r: &Reader, key: &str) -> Result<Option<f32>, Error> {
    Ok(r.number_opt(key)?.map(|value| value as f32))
}

fn early(r: &Reader, key: &str) -> Result<Option<EarlyStopping>, Error> {
    match r.value(key) {
        None => Ok(None),
        Some(Value::Bool(true)) => Ok(Some(EarlyStopping::First)),
        Some(Value::Bool(false)) => Ok(Some(EarlyStopping::Heuristic)),
        Some(Value::String(text)) if text == "never" => Ok(Some(EarlyStopping::Never)),
        Some(other) => {
            Err(r.wrong(key, format!("must be true, false or \"never\", found {}", crate::reader::short(other))))
        }
    }
}
