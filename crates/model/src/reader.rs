//! A configuration as the architecture files read it: every value checked, every refusal naming file and field.

use crate::error::Error;
use attend_format::{Checkpoint, Config};
use serde_json::Value;
use std::cell::{Cell, RefCell};

/// No count in a configuration may exceed this; products of two of them still fit 64 bits.
const LIMIT: u64 = (1 << 31) - 1;

/// The most layers of a model that is described without its weights.
pub(crate) const MOST_LAYERS: usize = 4096;

/// The configuration of one checkpoint, together with the tensors that stand beside it.
pub struct Reader<'a> {
    pub checkpoint: &'a Checkpoint,
    config: &'a Config,
    /// The class prefix of the architecture, such as `Llama`, that `architectures` entries start with.
    pub(crate) class: &'static str,
    log: &'a Log,
}

/// What an architecture's function leaves beside the description.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub notices: RefCell<Vec<String>>,
    /// A number of layers that the files cannot hold.
    pub claimed_layers: Cell<Option<usize>>,
    /// The token with which the architecture's decoder starts unless a file says otherwise.
    pub decoder_start: Cell<Option<u32>>,
    /// What a decoder reads of a given text begins with the text's last token.
    pub rotates: Cell<bool>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(checkpoint: &'a Checkpoint, config: &'a Config, class: &'static str, log: &'a Log) -> Reader<'a> {
        Reader { checkpoint, config, class, log }
    }

    /// The same reader over a nested object (`text_config`, `attn_config`).
    pub fn nested<'b>(&'b self, config: &'b Config) -> Reader<'b> {
        let Reader { checkpoint, class, log, .. } = *self;
        Reader { checkpoint, config, class, log }
    }

    /// The nested object `key`, if there is one.
    pub fn object(&self, key: &str) -> Result<Option<Config>, Error> {
        Ok(self.config.object(key)?)
    }

    /// The object that is being read.
    pub fn config(&self) -> &'a Config {
        self.config
    }

    /// Whether `key` is written at all, be it as null: in some configurations null differs from absence.
    pub fn mentions(&self, key: &str) -> bool {
        self.config.map().contains_key(key)
    }

    /// Whether the configuration is GGUF's metadata, which has names of its own and no defaults.
    pub fn is_gguf(&self) -> bool {
        !self.checkpoint.has_config_json()
    }

    /// Adds a line that the user will see.
    pub fn notice(&self, text: impl Into<String>) {
        self.log.notices.borrow_mut().push(text.into());
    }

    /// The token with which this architecture's decoder starts where no file says it.
    pub fn starts_with(&self, token: Option<u32>) {
        self.log.decoder_start.set(token);
    }

    /// Says that what the decoder reads of a given text begins with the text's last token.
    pub fn rotates(&self) {
        self.log.rotates.set(true);
    }

    /// An error about `field` of this configuration.
    pub fn wrong(&self, field: &str, problem: impl Into<String>) -> Error {
        let field = self.config.name_of(field);
        Error::Config { file: self.config.file().to_path_buf(), field, problem: problem.into() }
    }

    /// The value of `key`; a JSON null counts as absent.
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.config.value(key).filter(|value| !value.is_null())
    }

    /// The first of `keys` that is there, with its value.
    fn first<'k>(&self, keys: &[&'k str]) -> Option<(&'k str, &Value)> {
        keys.iter().find_map(|key| Some((*key, self.value(key)?)))
    }

    /// A count of at least 1 under the first of `keys` that is there.
    pub fn count_opt(&self, keys: &[&str]) -> Result<Option<usize>, Error> {
        let Some((key, value)) = self.first(keys) else { return Ok(None) };
        match self.whole(key, value)? {
            0 => Err(self.wrong(key, "must be at least 1, found 0")),
            count => Ok(Some(count)),
        }
    }

    pub fn count(&self, keys: &[&str]) -> Result<usize, Error> {
        self.count_opt(keys)?.ok_or_else(|| self.missing(keys))
    }

    /// None of a field's names is there.
    fn missing(&self, keys: &[&str]) -> Error {
        let (first, others) = keys.split_first().unwrap_or((&"", &[]));
        let others: Vec<String> = others.iter().map(|key| format!("`{key}`")).collect();
        let known = if others.is_empty() { String::new() } else { format!(" (and so is {})", others.join(", ")) };
        self.wrong(first, format!("is missing{known}"))
    }

    pub fn count_or(&self, keys: &[&str], default: usize) -> Result<usize, Error> {
        Ok(self.count_opt(keys)?.unwrap_or(default))
    }

    /// A whole number from 0.
    pub fn whole_opt(&self, key: &str) -> Result<Option<usize>, Error> {
        self.value(key).map(|value| self.whole(key, value)).transpose()
    }

    fn whole(&self, key: &str, value: &Value) -> Result<usize, Error> {
        // Some writers store whole numbers as floats (`4.0`).
        let number = value
            .as_u64()
            .or_else(|| value.as_f64().filter(|x| x.fract() == 0.0 && *x >= 0.0 && *x < 1e18).map(|x| x as u64));
        match number {
            Some(number) if number <= LIMIT => Ok(number as usize),
            _ => Err(self.wrong(key, format!("must be a whole number from 0 to {LIMIT}, found {}", short(value)))),
        }
    }

    /// A finite number.
    pub fn number_opt(&self, key: &str) -> Result<Option<f64>, Error> {
        let Some(value) = self.value(key) else { return Ok(None) };
        match value.as_f64().filter(|x| x.is_finite()) {
            Some(number) => Ok(Some(number)),
            None => Err(self.wrong(key, format!("must be a finite number, found {}", short(value)))),
        }
    }

    pub fn number_or(&self, key: &str, default: f64) -> Result<f64, Error> {
        Ok(self.number_opt(key)?.unwrap_or(default))
    }

    /// A finite number greater than zero.
    pub fn positive_opt(&self, key: &str) -> Result<Option<f64>, Error> {
        match self.number_opt(key)? {
            Some(number) if number <= 0.0 => Err(self.wrong(key, format!("must be greater than 0, found {number}"))),
            number => Ok(number),
        }
    }

    pub fn positive_or(&self, key: &str, default: f64) -> Result<f64, Error> {
        Ok(self.positive_opt(key)?.unwrap_or(default))
    }

    /// The epsilon of a norm: the first of `keys` that is there, else the architecture's own default. GGUF has no
    /// defaults, so there it must be written.
    pub fn epsilon(&self, keys: &[&str], default: f32) -> Result<f32, Error> {
        let Some((key, _)) = self.first(keys) else {
            return if self.is_gguf() { Err(self.missing(keys)) } else { Ok(default) };
        };
        let value = self.number_or(key, f64::from(default))?;
        if !(0.0..1.0).contains(&value) {
            return Err(self.wrong(key, format!("must be at least 0 and less than 1, found {value}")));
        }
        Ok(value as f32)
    }

    pub fn flag(&self, key: &str, default: bool) -> Result<bool, Error> {
        match self.value(key) {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => Err(self.wrong(key, format!("must be true or false, found {}", short(other)))),
        }
    }

    /// A flag that GGUF does not write: there, the answer is whether the file has `tensor`.
    pub fn flag_or_tensor(&self, key: &str, default: bool, tensor: &str) -> Result<bool, Error> {
        if self.is_gguf() { Ok(self.has_tensor(tensor)) } else { self.flag(key, default) }
    }

    pub fn text(&self, key: &str) -> Result<Option<&str>, Error> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(key, format!("must be a string, found {}", short(other)))),
        }
    }

    /// A list, its elements still unread.
    pub fn list(&self, key: &str) -> Result<Option<&Vec<Value>>, Error> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Array(list)) => Ok(Some(list)),
            Some(other) => Err(self.wrong(key, format!("must be a list, found {}", short(other)))),
        }
    }

    /// A list of finite numbers.
    pub fn numbers(&self, key: &str) -> Result<Option<Vec<f32>>, Error> {
        let Some(list) = self.list(key)? else { return Ok(None) };
        let numbers = list.iter().map(|value| match value.as_f64().filter(|x| x.is_finite()) {
            Some(number) => Ok(number as f32),
            None => Err(self.wrong(key, format!("must hold finite numbers, found {}", short(value)))),
        });
        numbers.collect::<Result<_, _>>().map(Some)
    }

    /// Refuses `key` by name unless it is absent, null or one of `allowed`.
    pub fn only(&self, key: &str, allowed: &[Value], why: &str) -> Result<(), Error> {
        match self.value(key) {
            Some(value) if !allowed.contains(value) => {
                Err(self.wrong(key, format!("{} is not supported: {why}", short(value))))
            }
            _ => Ok(()),
        }
    }

    /// The number of layers under the first of `keys`.
    ///
    /// A layer has at least one tensor. A claim that the files cannot hold is remembered and answered with 1, so that
    /// what it would cost can be told without building as many layers.
    pub fn layers(&self, keys: &[&str]) -> Result<usize, Error> {
        let claimed = self.count(keys)?;
        Ok(self.bounded_layers(claimed))
    }

    /// As [`Reader::layers`], for a count that is already read.
    pub fn bounded_layers(&self, claimed: usize) -> usize {
        let most = if self.checkpoint.has_weights() { self.checkpoint.tensors().len() } else { MOST_LAYERS };
        if claimed <= most {
            return claimed;
        }
        self.log.claimed_layers.set(Some(claimed));
        1
    }

    /// Refuses `field` where it asks for more weights than the files could hold at a bit each, or, where there are none,
    /// than any model has.
    pub fn holds(&self, field: &str, weights: u128) -> Result<(), Error> {
        const MOST: u64 = 1 << 40;
        let held = if self.checkpoint.has_weights() { self.checkpoint.total_bytes() } else { MOST };
        if weights > u128::from(held).saturating_mul(8) {
            return Err(self.wrong(field, format!("asks for {weights} weights, and the files hold {held} bytes")));
        }
        Ok(())
    }

    /// Whether the file has the tensor, or there is no file that could tell.
    pub fn may_have_tensor(&self, name: &str) -> bool {
        !self.checkpoint.has_weights() || self.has_tensor(name)
    }

    pub fn has_tensor(&self, name: &str) -> bool {
        self.checkpoint.tensor(name).is_some()
    }

    /// The rows of the first of `names` that the file has.
    pub fn rows(&self, names: &[&str]) -> Option<usize> {
        names.iter().find_map(|name| self.checkpoint.tensor(name)?.shape.first().copied())
    }
}

/// A value in a message, cut so that a hostile one does not fill the screen.
pub(crate) fn short(value: &Value) -> String {
    match value {
        Value::Array(list) if list.is_empty() => "[]".into(),
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
        other => {
            let text = other.to_string();
            if text.chars().count() > 60 { text.chars().take(60).chain("...".chars()).collect() } else { text }
        }
    }
}
