//! Lists and token ids of a configuration.

use serde_json::Value;

use super::{Config, describe};
use crate::Error;

impl Config {
    /// A list of counts, each held to the bounds of [`Config::usize`] under the list's name.
    pub fn usize_list(&self, key: &str) -> Result<Option<Vec<usize>>, Error> {
        self.list(key, Config::to_usize)
    }

    pub fn f64_list(&self, key: &str) -> Result<Option<Vec<f64>>, Error> {
        self.list(key, Config::to_f64)
    }

    pub fn f32_list(&self, key: &str) -> Result<Option<Vec<f32>>, Error> {
        self.list(key, Config::to_f32)
    }

    pub fn bool_list(&self, key: &str) -> Result<Option<Vec<bool>>, Error> {
        self.list(key, Config::to_bool)
    }

    pub fn str_list(&self, key: &str) -> Result<Option<Vec<String>>, Error> {
        self.list(key, |config, key, value| match value {
            Value::String(text) => Ok(text.clone()),
            other => Err(config.bad(key, format!("must be a string, found {}", describe(other)))),
        })
    }

    /// One count for all layers, or a list with one per layer: `layers` values either way.
    pub fn usize_per_layer(&self, key: &str, layers: usize) -> Result<Option<Vec<usize>>, Error> {
        if !self.value(key).is_some_and(Value::is_array) {
            return Ok(self.usize_opt(key)?.map(|one| vec![one; layers]));
        }
        let list = self.usize_list(key)?;
        match list {
            Some(list) if list.len() != layers => {
                Err(self.bad(key, format!("must have one entry for each of {layers} layers, found {}", list.len())))
            }
            list => Ok(list),
        }
    }

    /// A token id; absent when the field is missing, `null` or negative (older files write -1 for "none").
    pub fn token_id(&self, key: &str) -> Result<Option<u32>, Error> {
        self.value(key).map_or(Ok(None), |value| self.to_token_id(key, value))
    }

    /// A token id or a list of them (`eos_token_id`); empty when absent.
    pub fn token_ids(&self, key: &str) -> Result<Vec<u32>, Error> {
        match self.value(key) {
            Some(Value::Array(list)) => {
                let ids = list.iter().enumerate().map(|(i, value)| self.to_token_id(&format!("{key}[{i}]"), value));
                ids.filter_map(Result::transpose).collect()
            }
            _ => Ok(self.token_id(key)?.into_iter().collect()),
        }
    }

    fn to_token_id(&self, key: &str, value: &Value) -> Result<Option<u32>, Error> {
        let id = value.as_i64().filter(|&id| (-1..1 << 26).contains(&id));
        let id = id.ok_or_else(|| self.bad(key, format!("must be a token id, found {}", describe(value))))?;
        Ok(u32::try_from(id).ok())
    }

    fn list<T>(
        &self,
        key: &str,
        element: impl Fn(&Config, &str, &Value) -> Result<T, Error>,
    ) -> Result<Option<Vec<T>>, Error> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Array(list)) => {
                let values = list.iter().enumerate().map(|(i, value)| {
                    // The plain name decides the bounds; only an error names the place in the list.
                    element(self, key, value).map_err(|error| self.at(error, key, i))
                });
                values.collect::<Result<_, _>>().map(Some)
            }
            Some(other) => Err(self.bad(key, format!("must be a list, found {}", describe(other)))),
        }
    }

    fn at(&self, error: Error, key: &str, index: usize) -> Error {
        match error {
            Error::BadField { problem, .. } => self.bad(&format!("{key}[{index}]"), problem),
            other => other,
        }
    }
}
