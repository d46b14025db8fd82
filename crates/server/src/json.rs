//! A request's body as JSON, held to limits: no depth, no number of values and no key twice can take a server down or be
//! read in two ways.

use crate::failure::Failure;
use crate::limits::Limits;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::cell::Cell;
use std::fmt;

/// Reads a body.
///
/// # Errors
/// What is no JSON object, or more than the limits allow.
pub fn object(bytes: &[u8], limits: &Limits) -> Result<Map<String, Value>, Failure> {
    match value(bytes, limits)? {
        Value::Object(map) => Ok(map),
        other => Err(Failure::bad(format!("the body must be a JSON object, and it is {}", kind(&other)))),
    }
}

/// Reads a body that is a list.
///
/// # Errors
/// As [`object`], with a list in its place.
pub fn list(bytes: &[u8], limits: &Limits) -> Result<Vec<Value>, Failure> {
    match value(bytes, limits)? {
        Value::Array(list) => Ok(list),
        other => Err(Failure::bad(format!("the body must be a JSON list, and it is {}", kind(&other)))),
    }
}

fn value(bytes: &[u8], limits: &Limits) -> Result<Value, Failure> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        Failure::bad(format!("the body is not UTF-8 (at byte {}): it must be JSON", error.valid_up_to()))
    })?;
    if text.trim().is_empty() {
        return Err(Failure::bad("the body is empty: JSON is wanted"));
    }
    let wrong = |error: serde_json::Error| Failure::bad(format!("the body is not valid JSON: {error}"));
    let values = Cell::new(0);
    let mut reader = serde_json::Deserializer::from_str(text);
    let read = Strict { limits, values: &values, depth: 0 }.deserialize(&mut reader).map_err(wrong)?;
    reader.end().map_err(wrong)?;
    Ok(read)
}

/// What a value is, for messages.
pub fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Reads one value at a depth.
#[derive(Clone, Copy)]
struct Strict<'l> {
    limits: &'l Limits,
    values: &'l Cell<usize>,
    depth: usize,
}

impl Strict<'_> {
    fn inside<E: Error>(self) -> Result<Self, E> {
        if self.depth >= self.limits.json_depth {
            return Err(E::custom(format!("lists and objects are more than {} deep", self.limits.json_depth)));
        }
        Ok(Strict { depth: self.depth + 1, ..self })
    }

    fn text<E: Error>(self, text: &str) -> Result<String, E> {
        if text.contains('\0') {
            return Err(E::custom("a string holds the character NUL"));
        }
        Ok(text.to_owned())
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.values.set(self.values.get() + 1);
        if self.values.get() > self.limits.json_values {
            return Err(D::Error::custom(format!("there are more than {} values", self.limits.json_values)));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number is not finite"))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        self.text(text).map(Value::String)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let inside = self.inside()?;
        let mut values = Vec::new();
        while let Some(value) = list.next_element_seed(inside)? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let inside = self.inside()?;
        let mut values = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let key = self.text(&key)?;
            let value = map.next_value_seed(inside)?;
            if values.insert(key, value).is_some() {
                return Err(A::Error::custom("a key stands twice in an object"));
            }
        }
        Ok(Value::Object(values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(body: &[u8]) -> String {
        object(body, &Limits::default()).expect_err("refused").message
    }

    #[test]
    fn good_bodies_are_read_as_they_stand() {
        let body = r#"{"a": [1, -2, 1.5, true, null, "\u00e9\n"], "b": {"c": {}}}"#;
        let read = object(body.as_bytes(), &Limits::default()).expect("read");
        assert_eq!(Value::Object(read), serde_json::from_str::<Value>(body).expect("JSON"));
    }

    #[test]
    fn what_means_nothing_is_refused() {
        for (body, words) in [
            (&b""[..], "empty"),
            (b"  ", "empty"),
            (b"[1]", "a list"),
            (b"\"text\"", "a string"),
            (b"{", "not valid JSON"),
            (b"{} {}", "not valid JSON"),
            (b"{\"a\": NaN}", "not valid JSON"),
            (b"{\"a\": 1e999}", "not valid JSON"),
            (b"{\"a\": \"\xff\"}", "not UTF-8 (at byte 7)"),
            (br#"{"a": "\ud800"}"#, "not valid JSON"),
            (br#"{"a": 1, "a": 2}"#, "twice"),
            (br#"{"b": {"a": 1, "a": 2}}"#, "twice"),
            (br#"{"a": "x\u0000y"}"#, "NUL"),
            (br#"{"x\u0000": 1}"#, "NUL"),
        ] {
            let message = refused(body);
            assert!(message.contains(words), "{}: {message}", String::from_utf8_lossy(body));
        }
    }

    #[test]
    fn depth_and_number_are_bounded() {
        let nested = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
        assert!(object(nested(99).as_bytes(), &Limits::default()).is_ok());
        assert!(refused(nested(100).as_bytes()).contains("more than 100 deep"));
        assert!(refused(nested(100_000).as_bytes()).contains("deep"));
        let many = format!("{{\"a\":[{}1]}}", "1,".repeat(1 << 18));
        assert!(refused(many.as_bytes()).contains("more than 262144 values"));
    }
}
