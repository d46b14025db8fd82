//! White space between the parts of JSON: as much as people indent with, and never so much that an answer is nothing else.

use serde_json::{Map, Value, json};

/// Nothing, a space, or a new line with its indentation.
const PATTERN: &str = r"\x20|\r?\n[\x20\t]{0,40}";

/// The options of the library for a schema. They stand in the schema itself, under a name of the library's own; what a
/// request has there is replaced.
pub(super) fn bounded(schema: &Value, lenient: bool) -> Value {
    let options = json!({ "whitespace_flexible": true, "whitespace_pattern": PATTERN, "lenient": lenient });
    let mut object = match schema {
        Value::Object(object) => object.clone(),
        // `true` allows everything, and so does a schema that says nothing.
        Value::Bool(true) => Map::new(),
        other => return other.clone(),
    };
    object.insert("x-guidance".into(), options);
    Value::Object(object)
}

/// A JSON value as a part of a Lark grammar, with the same white space that a schema alone has: what stands to the right of a
/// rule's colon.
pub fn json_in_lark(schema: &Value, lenient: bool) -> String {
    format!("%json {}", bounded(schema, lenient))
}
