//! Metadata by key, with getters that check the type and name file and key.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::{Array, Strings, Value};
use crate::Error;
use crate::error::shown;

/// The metadata of a GGUF file, sorted by key.
#[derive(Debug, Clone)]
pub struct Metadata {
    file: Arc<Path>,
    pub(super) version: u32,
    pub(super) values: BTreeMap<String, Value>,
}

impl Metadata {
    pub(super) fn new(file: Arc<Path>, version: u32) -> Metadata {
        Metadata { file, version, values: BTreeMap::new() }
    }

    /// Metadata that errors attribute to `file`, as a file of the newest version would hold it. Of equal keys the last
    /// counts.
    pub fn of(file: &Path, values: impl IntoIterator<Item = (String, Value)>) -> Metadata {
        Metadata { file: file.into(), version: 3, values: values.into_iter().collect() }
    }

    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The version of the format: 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    pub fn has(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.values.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// `general.architecture`.
    pub fn architecture(&self) -> Result<&str, Error> {
        let name = self.str("general.architecture")?.ok_or_else(|| self.missing("general.architecture"))?;
        let plain = !name.is_empty() && name.len() <= 64;
        if plain && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)) {
            return Ok(name);
        }
        Err(self.bad("general.architecture", format!("is no architecture's name: \"{}\"", shown(name))))
    }

    /// The error of a key that is not there.
    pub fn missing(&self, key: &str) -> Error {
        Error::MissingField { file: self.file.to_path_buf(), field: key.into() }
    }

    /// An error about a key's value.
    pub fn bad(&self, key: &str, problem: impl Into<String>) -> Error {
        Error::BadField { file: self.file.to_path_buf(), field: key.into(), problem: problem.into() }
    }

    pub fn str(&self, key: &str) -> Result<Option<&str>, Error> {
        self.typed(key, "a string", |value| match value {
            Value::String(text) => Some(text.as_str()),
            _ => None,
        })
    }

    pub fn bool(&self, key: &str) -> Result<Option<bool>, Error> {
        self.typed(key, "a bool", |value| match value {
            Value::Bool(flag) => Some(*flag),
            _ => None,
        })
    }

    /// A number of any integer type that is not negative.
    pub fn u64(&self, key: &str) -> Result<Option<u64>, Error> {
        self.typed(key, "an integer that is not negative", |value| u64::try_from(value.as_i128()?).ok())
    }

    /// A number of any integer type.
    pub fn i64(&self, key: &str) -> Result<Option<i64>, Error> {
        self.typed(key, "an integer", |value| i64::try_from(value.as_i128()?).ok())
    }

    /// A finite number of any type.
    pub fn f64(&self, key: &str) -> Result<Option<f64>, Error> {
        self.typed(key, "a finite number", |value| value.as_f64().filter(|float| float.is_finite()))
    }

    /// A token id.
    pub fn token_id(&self, key: &str) -> Result<Option<u32>, Error> {
        // Some converters write the largest u32, or -1, for "none".
        let id = self.i64(key)?.filter(|&id| id != -1 && id != i64::from(u32::MAX));
        id.map(|id| u32::try_from(id).map_err(|_| self.bad(key, format!("must be a token id, found {id}")))).transpose()
    }

    pub fn array(&self, key: &str) -> Result<Option<&Array>, Error> {
        self.typed(key, "an array", |value| match value {
            Value::Array(array) => Some(array),
            _ => None,
        })
    }

    /// An array of strings.
    pub fn strings(&self, key: &str) -> Result<Option<&Strings>, Error> {
        self.elements(key, "strings", |array| match array {
            Array::String(strings) => Some(strings),
            _ => None,
        })
    }

    /// An array of any integer type, as i64.
    pub fn integers(&self, key: &str) -> Result<Option<Vec<i64>>, Error> {
        self.elements(key, "integers", |array| array.integers()?.map(|whole| i64::try_from(whole).ok()).collect())
    }

    /// An array of any number type, as f32.
    pub fn floats(&self, key: &str) -> Result<Option<Vec<f32>>, Error> {
        self.elements(key, "numbers", |array| Some(array.numbers()?.map(|float| float as f32).collect()))
    }

    /// An array of bools.
    pub fn bools(&self, key: &str) -> Result<Option<&[bool]>, Error> {
        self.elements(key, "bools", |array| match array {
            Array::Bool(flags) => Some(flags.as_slice()),
            _ => None,
        })
    }

    fn elements<'a, T>(
        &'a self,
        key: &str,
        wanted: &str,
        get: impl Fn(&'a Array) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let Some(array) = self.array(key)? else { return Ok(None) };
        let found = || self.bad(key, format!("must be an array of {wanted}, found one of {}", array.type_name()));
        get(array).ok_or_else(found).map(Some)
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        wanted: &str,
        get: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let Some(value) = self.values.get(key) else { return Ok(None) };
        let found = || match value {
            Value::String(text) => format!("the string \"{}\"", shown(text)),
            Value::Array(array) => format!("an array of {} {}", array.len(), array.type_name()),
            Value::Bool(flag) => format!("the bool {flag}"),
            number => match number.as_i128() {
                Some(whole) => format!("the {} {whole}", number.type_name()),
                None => format!("the {} {}", number.type_name(), number.as_f64().unwrap_or(f64::NAN)),
            },
        };
        get(value).ok_or_else(|| self.bad(key, format!("must be {wanted}, found {}", found()))).map(Some)
    }
}
