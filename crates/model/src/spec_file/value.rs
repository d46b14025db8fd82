//! Values of a description with the place where they stand.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// What is wrong, and where.
#[derive(Debug)]
pub(super) struct Problem {
    pub field: String,
    pub problem: String,
}

/// A value and its place in the file, as in `decoder.layers[0].attention`.
#[derive(Debug, Clone)]
pub(super) struct At<'v> {
    pub value: &'v Value,
    /// The file's outermost table, which is no `Value`.
    top: Option<&'v Map<String, Value>>,
    pub path: String,
}

impl<'v> At<'v> {
    pub fn top(map: &'v Map<String, Value>) -> At<'v> {
        At { value: &Value::Null, top: Some(map), path: String::new() }
    }

    fn map(&self) -> Option<&'v Map<String, Value>> {
        self.top.or(self.value.as_object())
    }

    fn place(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_string() } else { format!("{}.{key}", self.path) }
    }

    pub fn wrong(&self, problem: impl Into<String>) -> Problem {
        let field = if self.path.is_empty() { "decoder".to_string() } else { self.path.clone() };
        Problem { field, problem: problem.into() }
    }

    /// The field `key`; null counts as absent.
    pub fn get(&self, key: &str) -> Option<At<'v>> {
        let value = self.map()?.get(key).filter(|value| !value.is_null())?;
        Some(At { value, top: None, path: self.place(key) })
    }

    pub fn need(&self, key: &str) -> Result<At<'v>, Problem> {
        if self.map().is_none() {
            return Err(self.wrong("a table is wanted"));
        }
        self.get(key).ok_or_else(|| Problem { field: self.place(key), problem: "is missing".into() })
    }

    pub fn index(&self, index: usize, value: &'v Value) -> At<'v> {
        At { value, top: None, path: format!("{}[{index}]", self.path) }
    }

    /// A count of at least 1.
    pub fn count(&self, key: &str) -> Result<usize, Problem> {
        let found = self.need(key)?;
        match found.value.as_u64() {
            Some(count) if (1..=u64::from(i32::MAX.unsigned_abs())).contains(&count) => Ok(count as usize),
            _ => Err(found.wrong(format!(
                "a whole number from 1 to {} is wanted, found {}",
                i32::MAX,
                shown(found.value)
            ))),
        }
    }

    /// Refuses fields that are not among `known`.
    pub fn only(&self, known: &[&str]) -> Result<(), Problem> {
        let Some(map) = self.map() else { return Err(self.wrong("a table is wanted")) };
        match map.keys().find(|key| !known.contains(&key.as_str())) {
            None => Ok(()),
            Some(key) => Err(Problem {
                field: self.place(key),
                problem: format!("is not known; known are {}", known.join(", ")),
            }),
        }
    }
}

/// Reads a part of the description from its completed value. A field of it that the part does not have is refused.
pub(super) fn piece<T: DeserializeOwned + Serialize>(at: At<'_>, completed: Value) -> Result<T, Problem> {
    let place = |inner: String| match inner.as_str() {
        "." | "" => at.path.clone(),
        inner => format!("{}.{inner}", at.path),
    };
    let part: T = serde_path_to_error::deserialize(&completed)
        .map_err(|error| Problem { field: place(error.path().to_string()), problem: error.inner().to_string() })?;
    let back = serde_json::to_value(&part).map_err(|error| at.wrong(error.to_string()))?;
    match surplus(&completed, &back) {
        None => Ok(part),
        Some(field) => Err(Problem { field: place(field), problem: "is not known here".into() }),
    }
}

/// A field of `given` that `back` lacks. Both are as deep as a parsed document may be.
fn surplus(given: &Value, back: &Value) -> Option<String> {
    match (given, back) {
        (Value::Object(given), Value::Object(back)) => given.iter().find_map(|(key, value)| match back.get(key) {
            None => Some(key.clone()),
            Some(inner) => surplus(value, inner).map(|rest| format!("{key}.{rest}")),
        }),
        (Value::Array(given), Value::Array(back)) => given.iter().zip(back).find_map(|(a, b)| surplus(a, b)),
        _ => None,
    }
}

/// The name of a variant as Rust spells it: `sliding_window` is `SlidingWindow`.
pub(super) fn camel(name: &str) -> String {
    name.split('_')
        .map(|part| {
            let mut letters = part.chars();
            letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
        })
        .collect()
}

/// A variant: its name alone, or a table with its name as the only field.
pub(super) fn variant(at: &At<'_>) -> Result<Value, Problem> {
    let (name, inner) = named(at)?;
    Ok(match inner {
        None => Value::String(name),
        Some(inner) => Value::Object(Map::from_iter([(name, inner.value.clone())])),
    })
}

/// The name of a variant, as Rust spells it, and its fields.
pub(super) fn named<'v>(at: &At<'v>) -> Result<(String, Option<At<'v>>), Problem> {
    match at.value {
        Value::String(name) => Ok((camel(name), None)),
        Value::Object(map) if map.len() == 1 => {
            let Some(key) = map.keys().next() else { return Err(at.wrong("a name is wanted")) };
            Ok((camel(key), at.get(key)))
        }
        other => {
            Err(at.wrong(format!("a name, or a table with one name as its field, is wanted; found {}", shown(other))))
        }
    }
}

/// A value in a message.
pub(super) fn shown(value: &Value) -> String {
    crate::reader::short(value)
}
