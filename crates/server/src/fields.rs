//! The fields of a request, taken one by one: each with its type and range, and in the end none may be left.

use crate::failure::Failure;
use crate::json::kind;
use serde_json::{Map, Value};

/// An object whose fields are taken.
#[derive(Debug, Default)]
pub struct Fields {
    map: Map<String, Value>,
    /// The place of the object in the request, for messages: empty, or as in `messages[0].`
    place: String,
}

impl Fields {
    pub fn new(map: Map<String, Value>) -> Fields {
        Fields { map, place: String::new() }
    }

    /// An object inside a request.
    ///
    /// # Errors
    /// Anything but an object.
    pub fn within(value: Value, place: &str) -> Result<Fields, Failure> {
        match value {
            Value::Object(map) => Ok(Fields { map, place: format!("{place}.") }),
            other => Err(wrong(place, "an object", &other)),
        }
    }

    fn path(&self, name: &str) -> String {
        format!("{}{name}", self.place)
    }

    /// A field with a value; null is as good as none.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        self.map.shift_remove(name).filter(|value| !value.is_null())
    }

    fn typed<T>(&mut self, name: &str, wanted: &str, read: impl Fn(&Value) -> Option<T>) -> Result<Option<T>, Failure> {
        let Some(value) = self.take(name) else { return Ok(None) };
        read(&value).map(Some).ok_or_else(|| wrong(&self.path(name), wanted, &value))
    }

    /// # Errors
    /// Any other type.
    pub fn text(&mut self, name: &str) -> Result<Option<String>, Failure> {
        self.typed(name, "a string", |value| value.as_str().map(str::to_owned))
    }

    /// # Errors
    /// Any other type, and a field that is missing.
    pub fn required_text(&mut self, name: &str) -> Result<String, Failure> {
        self.text(name)?.ok_or_else(|| self.missing(name))
    }

    /// # Errors
    /// Any other type.
    pub fn flag(&mut self, name: &str) -> Result<Option<bool>, Failure> {
        self.typed(name, "true or false", Value::as_bool)
    }

    /// A whole number in a range.
    ///
    /// # Errors
    /// Any other value.
    pub fn count(&mut self, name: &str, low: usize, high: usize) -> Result<Option<usize>, Failure> {
        let read = |value: &Value| value.as_u64().and_then(|count| usize::try_from(count).ok());
        self.typed(name, &range(low, high), |value| read(value).filter(|count| (low..=high).contains(count)))
    }

    /// A whole number in a range, which may be negative.
    ///
    /// # Errors
    /// Any other value.
    pub fn signed(&mut self, name: &str, low: i64, high: i64) -> Result<Option<i64>, Failure> {
        let wanted = format!("a whole number from {low} to {high}");
        self.typed(name, &wanted, |value| value.as_i64().filter(|number| (low..=high).contains(number)))
    }

    /// A number in a range.
    ///
    /// # Errors
    /// Any other value.
    pub fn number(&mut self, name: &str, low: f64, high: f64) -> Result<Option<f64>, Failure> {
        let wanted = format!("a number from {low} to {high}");
        self.typed(name, &wanted, |value| value.as_f64().filter(|number| (low..=high).contains(number)))
    }

    /// A list.
    ///
    /// # Errors
    /// Any other type, and lists that are longer.
    pub fn list(&mut self, name: &str, most: usize) -> Result<Option<Vec<Value>>, Failure> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Array(list)) if list.len() <= most => Ok(Some(list)),
            Some(Value::Array(list)) => Err(self.too_many(name, list.len(), most)),
            Some(other) => Err(wrong(&self.path(name), "a list", &other)),
        }
    }

    /// A string, or a list of strings.
    ///
    /// # Errors
    /// Any other type, and lists that are longer.
    pub fn texts(&mut self, name: &str, most: usize) -> Result<Option<Vec<String>>, Failure> {
        let path = self.path(name);
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(vec![text])),
            Some(Value::Array(list)) if list.len() > most => Err(self.too_many(name, list.len(), most)),
            Some(Value::Array(list)) => {
                let text = |(index, value): (usize, Value)| match value {
                    Value::String(text) => Ok(text),
                    other => Err(wrong(&format!("{path}[{index}]"), "a string", &other)),
                };
                list.into_iter().enumerate().map(text).collect::<Result<Vec<String>, Failure>>().map(Some)
            }
            Some(other) => Err(wrong(&path, "a string or a list of strings", &other)),
        }
    }

    /// # Errors
    /// Any other type.
    pub fn object(&mut self, name: &str) -> Result<Option<Fields>, Failure> {
        let path = self.path(name);
        self.take(name).map(|value| Fields::within(value, &path)).transpose()
    }

    /// Fields that change nothing here.
    pub fn ignore(&mut self, names: &[&str]) {
        for name in names {
            self.map.shift_remove(*name);
        }
    }

    pub fn missing(&self, name: &str) -> Failure {
        let path = self.path(name);
        Failure::field(&path, format!("{path} is missing")).code("missing_parameter")
    }

    fn too_many(&self, name: &str, count: usize, most: usize) -> Failure {
        let path = self.path(name);
        Failure::field(&path, format!("{path} has {count} items; at most {most} are taken"))
    }

    /// What is left.
    pub fn rest(self) -> Map<String, Value> {
        self.map
    }

    /// # Errors
    /// Any field that was not taken.
    pub fn end(self) -> Result<(), Failure> {
        match self.map.into_iter().find(|(_, value)| !value.is_null()) {
            None => Ok(()),
            Some((name, _)) => Err(unknown(&format!("{}{name}", self.place))),
        }
    }
}

/// The refusal of a field that nobody knows.
pub fn unknown(path: &str) -> Failure {
    let shown: String = path.chars().take(80).collect();
    Failure::field(&shown, format!("{shown:?} is no field of this request, or is not supported"))
        .code("unknown_parameter")
}

/// The refusal of a value that is not what is wanted.
pub fn wrong(path: &str, wanted: &str, found: &Value) -> Failure {
    let found = match found {
        Value::Number(number) => number.to_string(),
        other => kind(other).to_owned(),
    };
    Failure::field(path, format!("{path} is {found}; {wanted} is wanted"))
}

fn range(low: usize, high: usize) -> String {
    if high == usize::MAX {
        return format!("a whole number of at least {low}");
    }
    format!("a whole number from {low} to {high}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fields(value: Value) -> Fields {
        Fields::within(value, "request").expect("an object")
    }

    #[test]
    fn types_and_ranges_are_held() {
        let mut good = fields(json!({"a": "x", "b": 3, "c": 0.5, "d": ["x", "y"], "e": null, "f": true, "g": "z"}));
        assert_eq!(good.text("a").expect("text").as_deref(), Some("x"));
        assert_eq!(good.count("b", 1, 3).expect("count"), Some(3));
        assert_eq!(good.number("c", 0.0, 1.0).expect("number"), Some(0.5));
        assert_eq!(good.texts("d", 2).expect("texts"), Some(vec!["x".into(), "y".into()]));
        assert_eq!(good.text("e").expect("none"), None);
        assert_eq!(good.flag("f").expect("flag"), Some(true));
        assert_eq!(good.texts("g", 2).expect("texts"), Some(vec!["z".into()]));
        assert!(good.end().is_ok());
    }

    #[test]
    fn what_is_wrong_is_named() {
        let refused = |value: Value, read: &dyn Fn(&mut Fields) -> Result<(), Failure>| {
            read(&mut fields(json!({"a": value}))).expect_err("refused").message
        };
        assert_eq!(refused(json!(1), &|f| f.text("a").map(drop)), "request.a is 1; a string is wanted");
        let count = |f: &mut Fields| f.count("a", 1, 4).map(drop);
        for bad in [json!(0), json!(5), json!(1.5), json!(-1), json!("1"), json!(1e30), json!(true), json!([1])] {
            assert!(refused(bad, &count).ends_with("; a whole number from 1 to 4 is wanted"));
        }
        assert!(refused(json!(["x", 1]), &|f| f.texts("a", 4).map(drop)).starts_with("request.a[1] is 1"));
        assert!(refused(json!(["x", "x", "x", "x", "x"]), &|f| f.texts("a", 4).map(drop)).contains("at most 4"));
        let left = fields(json!({"a": null, "b": 1})).end().expect_err("refused");
        assert_eq!((left.param.as_deref(), left.code), (Some("request.b"), Some("unknown_parameter")));
    }
}
