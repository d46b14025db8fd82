//! The functions that an answer may call.

use serde_json::Value;
use std::collections::BTreeMap;

/// Their names, with the schema of each one's arguments.
#[derive(Debug, Clone, Default)]
pub struct Functions(BTreeMap<String, Value>);

impl Functions {
    pub fn new(functions: impl IntoIterator<Item = (String, Value)>) -> Functions {
        Functions(functions.into_iter().collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn knows(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// A value that was written without quotes: a text where the schema wants one, else JSON where it is such.
    pub(super) fn value(&self, name: &str, key: &str, text: &str) -> Value {
        let schema = self.0.get(name).and_then(|schema| schema.get("properties")).and_then(|all| all.get(key));
        if schema.is_some_and(|schema| is_text(&schema["type"])) {
            return Value::String(text.to_owned());
        }
        serde_json::from_str(text.trim()).unwrap_or_else(|_| Value::String(text.to_owned()))
    }
}

/// Whether nothing but a text (or nothing) is wanted.
fn is_text(kind: &Value) -> bool {
    match kind {
        Value::Array(kinds) => kinds.iter().all(|kind| kind == "string" || kind == "null"),
        kind => kind == "string",
    }
}
