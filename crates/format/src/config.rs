//! A configuration file: a JSON object that knows its file, read through getters that check type and range.

mod bounds;
mod lists;
mod rope;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::{Error, Source, json};
use bounds::bounds;

/// The largest TOML file, which people write by hand.
const MAX_TOML: u64 = 4 << 20;

/// A JSON object of a checkpoint. Every getter names the file and the field when a value is missing, of the wrong
/// type or out of range; counts are held to the bounds of [`Config::usize`]. `null` counts as absent, as in the
/// library that writes these files.
#[derive(Debug, Clone)]
pub struct Config {
    file: Arc<Path>,
    /// Where the object lies in its file: empty, or `rope_scaling.` and the like.
    prefix: String,
    map: Map<String, Value>,
    /// The field's own name where `map` holds it under another (GGUF).
    origins: Arc<BTreeMap<String, String>>,
}

impl Config {
    /// Reads a configuration file: JSON, or TOML where its name ends so. The `text_config` (or `llm_config`, `language_config`) of a multimodal model is
    /// unwrapped: its fields come to the top and win over outer ones; the outer `model_type` stays readable as
    /// `outer_model_type`.
    pub fn open(path: &Path) -> Result<Config, Error> {
        Config::from_source(&Source::open(path)?)
    }

    pub(crate) fn from_source(source: &Source) -> Result<Config, Error> {
        let toml = source.path().extension().is_some_and(|ending| ending == "toml");
        let limit = if toml { MAX_TOML } else { json::Limits::CONFIG.bytes };
        let text = json::text_of(source, limit)?;
        if toml { Config::parse_toml(source.path(), &text) } else { Config::parse(source.path(), &text) }
    }

    /// Parses the same fields written as TOML.
    pub fn parse_toml(file: &Path, text: &str) -> Result<Config, Error> {
        let map: Map<String, Value> = toml::from_str(text).map_err(|error| {
            let line =
                error.span().and_then(|span| text.get(..span.start)).map_or(1, |before| before.lines().count().max(1));
            let problem = format!("{} in line {line}", crate::error::shown(error.message()));
            Error::Toml { file: file.to_path_buf(), problem }
        })?;
        Config::from_map(file, map).unwrap_text_config()
    }

    /// Parses the text of a configuration that errors attribute to `file`.
    pub fn parse(file: &Path, text: &str) -> Result<Config, Error> {
        match json::parse(file, text, json::Limits::CONFIG)? {
            Value::Object(map) => Config::from_map(file, map).unwrap_text_config(),
            other => Err(Error::Json {
                file: file.to_path_buf(),
                problem: format!("an object is wanted, found {}", describe(&other)),
            }),
        }
    }

    /// A configuration of given fields.
    pub fn from_map(file: &Path, map: Map<String, Value>) -> Config {
        Config { file: file.into(), prefix: String::new(), map, origins: Arc::default() }
    }

    pub(crate) fn with_origins(mut self, origins: BTreeMap<String, String>) -> Config {
        self.origins = Arc::new(origins);
        self
    }

    fn unwrap_text_config(mut self) -> Result<Config, Error> {
        for key in ["text_config", "llm_config", "language_config"] {
            let Some(inner) = self.map.remove(key) else { continue };
            let Value::Object(inner) = inner else {
                if inner.is_null() {
                    continue;
                }
                return Err(self.bad(key, format!("must be an object, found {}", describe(&inner))));
            };
            if let Some(outer) = self.map.get("model_type").cloned() {
                self.map.insert("outer_model_type".into(), outer);
            }
            // A `null` inside says "default" and hides nothing of the outer object.
            self.map.extend(inner.into_iter().filter(|(_, value)| !value.is_null()));
            break;
        }
        Ok(self)
    }

    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The raw object.
    pub fn map(&self) -> &Map<String, Value> {
        &self.map
    }

    /// The raw value of a field; `None` when absent or `null`.
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// Whether the field is there and not `null`.
    pub fn has(&self, key: &str) -> bool {
        self.value(key).is_some()
    }

    /// The error of a field that is not there.
    pub fn missing(&self, key: &str) -> Error {
        Error::MissingField { file: self.file.to_path_buf(), field: self.name_of(key) }
    }

    /// An error about a field's value, for checks that go beyond type and range ("must divide hidden_size").
    pub fn bad(&self, key: &str, problem: impl Into<String>) -> Error {
        Error::BadField { file: self.file.to_path_buf(), field: self.name_of(key), problem: problem.into() }
    }

    /// A field's name as it stands in the file: with the objects around it, or GGUF's own key.
    pub fn name_of(&self, key: &str) -> String {
        match self.origins.get(key) {
            Some(origin) => origin.clone(),
            None => format!("{}{key}", self.prefix),
        }
    }

    /// A count or size. Known fields are held to sane bounds (heads 1 to 65536, layers 1 to 10000, widths 1 to 2^24,
    /// vocabularies 1 to 2^26, contexts 1 to 2^40, ...), others to 0 to 2^40.
    pub fn usize(&self, key: &str) -> Result<usize, Error> {
        self.usize_opt(key)?.ok_or_else(|| self.missing(key))
    }

    /// As [`Config::usize`]; `None` when absent.
    pub fn usize_opt(&self, key: &str) -> Result<Option<usize>, Error> {
        self.value(key).map(|value| self.to_usize(key, value)).transpose()
    }

    /// The first of several names of one field that is there.
    pub fn usize_any(&self, keys: &[&str]) -> Result<usize, Error> {
        self.usize_any_opt(keys)?.ok_or_else(|| self.missing(&keys.join("` or `")))
    }

    pub fn usize_any_opt(&self, keys: &[&str]) -> Result<Option<usize>, Error> {
        self.first(keys).map_or(Ok(None), |key| self.usize_opt(key))
    }

    pub fn usize_or(&self, key: &str, default: usize) -> Result<usize, Error> {
        Ok(self.usize_opt(key)?.unwrap_or(default))
    }

    /// A finite number.
    pub fn f64(&self, key: &str) -> Result<f64, Error> {
        self.f64_opt(key)?.ok_or_else(|| self.missing(key))
    }

    pub fn f64_opt(&self, key: &str) -> Result<Option<f64>, Error> {
        self.value(key).map(|value| self.to_f64(key, value)).transpose()
    }

    pub fn f64_any(&self, keys: &[&str]) -> Result<f64, Error> {
        self.f64_any_opt(keys)?.ok_or_else(|| self.missing(&keys.join("` or `")))
    }

    pub fn f64_any_opt(&self, keys: &[&str]) -> Result<Option<f64>, Error> {
        self.first(keys).map_or(Ok(None), |key| self.f64_opt(key))
    }

    pub fn f64_or(&self, key: &str, default: f64) -> Result<f64, Error> {
        Ok(self.f64_opt(key)?.unwrap_or(default))
    }

    /// A number that is finite in single precision too.
    pub fn f32(&self, key: &str) -> Result<f32, Error> {
        self.f32_opt(key)?.ok_or_else(|| self.missing(key))
    }

    pub fn f32_opt(&self, key: &str) -> Result<Option<f32>, Error> {
        self.value(key).map(|value| self.to_f32(key, value)).transpose()
    }

    pub fn f32_any(&self, keys: &[&str]) -> Result<f32, Error> {
        self.f32_any_opt(keys)?.ok_or_else(|| self.missing(&keys.join("` or `")))
    }

    pub fn f32_any_opt(&self, keys: &[&str]) -> Result<Option<f32>, Error> {
        self.first(keys).map_or(Ok(None), |key| self.f32_opt(key))
    }

    pub fn f32_or(&self, key: &str, default: f32) -> Result<f32, Error> {
        Ok(self.f32_opt(key)?.unwrap_or(default))
    }

    pub fn bool(&self, key: &str) -> Result<bool, Error> {
        self.bool_opt(key)?.ok_or_else(|| self.missing(key))
    }

    pub fn bool_opt(&self, key: &str) -> Result<Option<bool>, Error> {
        self.value(key).map(|value| self.to_bool(key, value)).transpose()
    }

    pub fn bool_or(&self, key: &str, default: bool) -> Result<bool, Error> {
        Ok(self.bool_opt(key)?.unwrap_or(default))
    }

    pub fn str(&self, key: &str) -> Result<&str, Error> {
        self.str_opt(key)?.ok_or_else(|| self.missing(key))
    }

    pub fn str_opt(&self, key: &str) -> Result<Option<&str>, Error> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.bad(key, format!("must be a string, found {}", describe(other)))),
        }
    }

    pub fn str_any_opt(&self, keys: &[&str]) -> Result<Option<&str>, Error> {
        self.first(keys).map_or(Ok(None), |key| self.str_opt(key))
    }

    pub fn str_or<'a>(&'a self, key: &str, default: &'a str) -> Result<&'a str, Error> {
        Ok(self.str_opt(key)?.unwrap_or(default))
    }

    /// An object inside this one, as a configuration whose errors say where it lies.
    pub fn object(&self, key: &str) -> Result<Option<Config>, Error> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(self.inner(key, map.clone()))),
            Some(other) => Err(self.bad(key, format!("must be an object, found {}", describe(other)))),
        }
    }

    /// The type the weights were saved in: `dtype`, or `torch_dtype` in older files, without a `torch.` before it.
    pub fn dtype(&self) -> Result<Option<&str>, Error> {
        let name = self.str_any_opt(&["dtype", "torch_dtype"])?;
        Ok(name.map(|name| name.strip_prefix("torch.").unwrap_or(name)).filter(|&name| name != "auto"))
    }

    fn inner(&self, key: &str, map: Map<String, Value>) -> Config {
        let prefix = format!("{}.", self.name_of(key));
        Config { file: self.file.clone(), prefix, map, origins: Arc::default() }
    }

    fn first<'k>(&self, keys: &[&'k str]) -> Option<&'k str> {
        keys.iter().copied().find(|key| self.has(key))
    }

    fn to_usize(&self, key: &str, value: &Value) -> Result<usize, Error> {
        let (least, most) = bounds(key);
        let whole = match value {
            Value::Number(number) => number.as_u64().or_else(|| {
                // Python writes 4096.0 where a size was computed; a fraction or a huge power is no count.
                let float = number.as_f64().filter(|float| float.fract() == 0.0 && (0.0..=9e15).contains(float));
                float.map(|float| float as u64)
            }),
            _ => None,
        };
        whole.filter(|&whole| (least..=most).contains(&whole)).and_then(|whole| usize::try_from(whole).ok()).ok_or_else(
            || self.bad(key, format!("must be a whole number from {least} to {most}, found {}", describe(value))),
        )
    }

    fn to_f64(&self, key: &str, value: &Value) -> Result<f64, Error> {
        value
            .as_f64()
            .filter(|float| float.is_finite())
            .ok_or_else(|| self.bad(key, format!("must be a finite number, found {}", describe(value))))
    }

    fn to_f32(&self, key: &str, value: &Value) -> Result<f32, Error> {
        let narrow = self.to_f64(key, value)? as f32;
        if narrow.is_finite() {
            return Ok(narrow);
        }
        Err(self.bad(key, format!("must be within the range of a 32-bit float, found {}", describe(value))))
    }

    fn to_bool(&self, key: &str, value: &Value) -> Result<bool, Error> {
        value.as_bool().ok_or_else(|| self.bad(key, format!("must be true or false, found {}", describe(value))))
    }
}

/// A value as a message shows it, shortened.
pub(crate) fn describe(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Array(list) => format!("a list of {}", list.len()),
        Value::Object(_) => "an object".into(),
        // The stand-ins of Python's words, which are no strings in the file.
        Value::String(text) if ["NaN", "Infinity", "-Infinity"].contains(&text.as_str()) => text.clone(),
        Value::String(text) => format!("the string \"{}\"", crate::error::shown(text)),
        other => other.to_string(),
    }
}

/// The folder's file `name` as a configuration, `None` when there is none.
pub(crate) fn open_beside(folder: &crate::folder::Folder, name: &str) -> Result<Option<Config>, Error> {
    let path: Option<PathBuf> = folder.find(name)?;
    path.map(|path| Config::open(&path)).transpose()
}
