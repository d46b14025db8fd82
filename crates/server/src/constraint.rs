//! What the answer must be, in the words of every dialect.

use crate::failure::Failure;
use crate::fields::{Fields, wrong};
use attend_engine::Constraint;
use serde_json::Value;

/// A constraint, and the field that holds it.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    pub constraint: Constraint,
    pub place: String,
}

impl Wanted {
    fn new(constraint: Constraint, place: impl Into<String>) -> Wanted {
        Wanted { constraint, place: place.into() }
    }

    /// As the engine's parameter.
    ///
    /// # Errors
    /// None that a request could be at fault for.
    pub fn given(&self) -> Result<(String, Value), Failure> {
        let value = serde_json::to_value(&self.constraint).map_err(|error| Failure::fault(error.to_string()))?;
        Ok(("constraint".into(), value))
    }
}

/// Takes OpenAI's `response_format` and the fields that other servers of this dialect have beside it.
///
/// # Errors
/// Values that mean nothing, and more than one of them.
pub fn take(fields: &mut Fields) -> Result<Option<Wanted>, Failure> {
    let mut found: Vec<Wanted> = Vec::new();
    found.extend(response_format(fields)?);
    if let Some(mut outputs) = fields.object("structured_outputs")? {
        for (name, guided) in
            [("json", "json"), ("regex", "regex"), ("choice", "choice"), ("grammar", "grammar"), ("json_object", "")]
        {
            let place = format!("structured_outputs.{name}");
            match guided {
                "" if outputs.flag(name)? == Some(true) => found.push(Wanted::new(Constraint::JsonObject, place)),
                "" => {}
                kind => found.extend(outputs.take(name).map(|value| guide(kind, value, &place)).transpose()?),
            }
        }
        outputs.end()?;
    }
    for (name, kind) in [
        ("guided_json", "json"),
        ("guided_regex", "regex"),
        ("guided_choice", "choice"),
        ("guided_grammar", "grammar"),
        ("json_schema", "json"),
        ("grammar", "grammar"),
    ] {
        found.extend(fields.take(name).map(|value| guide(kind, value, name)).transpose()?);
    }
    // How a constraint is followed is not the request's to choose.
    fields.ignore(&["guided_decoding_backend"]);
    if let [first, second, ..] = found.as_slice() {
        let message =
            format!("{} and {} both say what the answer must be; one of them is taken", first.place, second.place);
        return Err(Failure::field(&second.place, message));
    }
    Ok(found.pop())
}

fn response_format(fields: &mut Fields) -> Result<Option<Wanted>, Failure> {
    let Some(mut format) = fields.object("response_format")? else { return Ok(None) };
    let kind = format.required_text("type")?;
    let wanted = match kind.as_str() {
        "text" => None,
        "json_object" => Some(match format.take("schema") {
            Some(value) => Wanted::new(schema(value, "response_format.schema", true)?, "response_format.schema"),
            None => Wanted::new(Constraint::JsonObject, "response_format"),
        }),
        "json_schema" => {
            let mut inner = format.object("json_schema")?.ok_or_else(|| format.missing("json_schema"))?;
            let strict = inner.flag("strict")?.unwrap_or(false);
            inner.text("name")?;
            inner.text("description")?;
            let value = inner.take("schema").ok_or_else(|| inner.missing("schema"))?;
            inner.end()?;
            let place = "response_format.json_schema.schema";
            Some(Wanted::new(schema(value, place, !strict)?, place))
        }
        _ => {
            let message = "response_format.type is none of text, json_object and json_schema";
            return Err(Failure::field("response_format.type", message));
        }
    };
    format.end()?;
    Ok(wanted)
}

/// Takes Anthropic's `output_config.format`, or `output_format`, its older place.
///
/// # Errors
/// Values that mean nothing, and both.
pub fn take_format(fields: &mut Fields) -> Result<Option<Wanted>, Failure> {
    let mut found = Vec::new();
    if let Some(mut config) = fields.object("output_config")? {
        // How hard the model tries is not to be set here.
        config.ignore(&["effort"]);
        let format = config.object("format")?;
        config.end()?;
        found.extend(format.map(|format| json_schema(format, "output_config.format.schema")).transpose()?);
    }
    let format = fields.object("output_format")?;
    found.extend(format.map(|format| json_schema(format, "output_format.schema")).transpose()?);
    if found.len() > 1 {
        return Err(Failure::field(
            "output_format",
            "output_format is the old name of output_config.format: one is taken",
        ));
    }
    Ok(found.pop())
}

fn json_schema(mut format: Fields, place: &str) -> Result<Wanted, Failure> {
    if format.required_text("type")? != "json_schema" {
        let place = place.replace("schema", "type");
        return Err(Failure::field(&place, format!("{place} is not json_schema")));
    }
    let value = format.take("schema").ok_or_else(|| format.missing("schema"))?;
    format.end()?;
    Ok(Wanted::new(schema(value, place, false)?, place))
}

/// Ollama's `format`: the word `json`, or a schema.
///
/// # Errors
/// Anything else.
pub fn of_format(value: Value) -> Result<Option<Wanted>, Failure> {
    match value {
        Value::String(word) if word.is_empty() => Ok(None),
        Value::String(word) if word == "json" => Ok(Some(Wanted::new(Constraint::JsonObject, "format"))),
        Value::Object(_) => Ok(Some(Wanted::new(schema(value, "format", true)?, "format"))),
        other => Err(wrong("format", "\"json\" or a JSON schema", &other)),
    }
}

/// A field of the servers that name each kind.
fn guide(kind: &str, value: Value, place: &str) -> Result<Wanted, Failure> {
    let constraint = match (kind, value) {
        ("json", Value::String(text)) => {
            let read = serde_json::from_str(&text);
            schema(read.map_err(|error| Failure::field(place, format!("{place} is not JSON: {error}")))?, place, true)?
        }
        ("json", value) => schema(value, place, true)?,
        ("regex", Value::String(pattern)) => Constraint::Regex(pattern),
        ("grammar", Value::String(text)) => Constraint::grammar(text),
        ("choice", Value::Array(list)) => {
            let text = |(index, value): (usize, Value)| match value {
                Value::String(text) => Ok(text),
                other => Err(wrong(&format!("{place}[{index}]"), "a string", &other)),
            };
            Constraint::Choice(list.into_iter().enumerate().map(text).collect::<Result<Vec<String>, Failure>>()?)
        }
        ("choice", other) => return Err(wrong(place, "a list of strings", &other)),
        (_, other) => return Err(wrong(place, "a string", &other)),
    };
    Ok(Wanted::new(constraint, place))
}

fn schema(value: Value, place: &str, lenient: bool) -> Result<Constraint, Failure> {
    match value {
        Value::Object(_) | Value::Bool(true) => Ok(Constraint::JsonSchema { schema: value, lenient }),
        other => Err(wrong(place, "a JSON schema, which is an object", &other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fields(value: Value) -> Fields {
        Fields::new(value.as_object().cloned().expect("an object"))
    }

    #[test]
    fn every_word_for_it() {
        let any = json!({ "type": "object" });
        let lenient = Constraint::JsonSchema { schema: any.clone(), lenient: true };
        for (body, wanted, place) in [
            (json!({ "response_format": { "type": "json_object" } }), Constraint::JsonObject, "response_format"),
            (
                json!({ "response_format": { "type": "json_object", "schema": any } }),
                lenient.clone(),
                "response_format.schema",
            ),
            (
                json!({ "response_format": { "type": "json_schema", "json_schema": { "name": "a", "strict": true, "schema": any } } }),
                Constraint::schema(any.clone()),
                "response_format.json_schema.schema",
            ),
            (json!({ "guided_json": any }), lenient.clone(), "guided_json"),
            (json!({ "guided_json": "{\"type\": \"object\"}" }), lenient.clone(), "guided_json"),
            (json!({ "json_schema": any }), lenient.clone(), "json_schema"),
            (json!({ "guided_regex": "a+" }), Constraint::Regex("a+".into()), "guided_regex"),
            (json!({ "guided_choice": ["a", "b"] }), Constraint::Choice(vec!["a".into(), "b".into()]), "guided_choice"),
            (json!({ "guided_grammar": "start: \"a\"" }), Constraint::Lark("start: \"a\"".into()), "guided_grammar"),
            (json!({ "grammar": "root ::= \"a\"" }), Constraint::Gbnf("root ::= \"a\"".into()), "grammar"),
            (json!({ "structured_outputs": { "json": any } }), lenient, "structured_outputs.json"),
            (
                json!({ "structured_outputs": { "json_object": true } }),
                Constraint::JsonObject,
                "structured_outputs.json_object",
            ),
        ] {
            let mut fields = fields(body.clone());
            assert_eq!(take(&mut fields).expect("taken"), Some(Wanted::new(wanted, place)), "{body}");
            assert!(fields.end().is_ok(), "{body}");
        }
        assert_eq!(take(&mut fields(json!({ "response_format": { "type": "text" } }))).expect("taken"), None);
    }

    #[test]
    fn what_means_nothing_is_named() {
        for (body, place) in [
            (json!({ "response_format": {} }), "response_format.type"),
            (json!({ "response_format": { "type": "yaml" } }), "response_format.type"),
            (json!({ "response_format": { "type": "json_schema" } }), "response_format.json_schema"),
            (
                json!({ "response_format": { "type": "json_schema", "json_schema": {} } }),
                "response_format.json_schema.schema",
            ),
            (
                json!({ "response_format": { "type": "json_schema", "json_schema": { "schema": [] } } }),
                "response_format.json_schema.schema",
            ),
            (json!({ "guided_json": "{" }), "guided_json"),
            (json!({ "guided_choice": ["a", 1] }), "guided_choice[1]"),
            (json!({ "guided_choice": "a" }), "guided_choice"),
            (json!({ "guided_regex": 1 }), "guided_regex"),
            (json!({ "structured_outputs": { "yaml": 1 } }), "structured_outputs.yaml"),
            (json!({ "response_format": { "type": "json_object" }, "guided_regex": "a" }), "guided_regex"),
        ] {
            let failure = take(&mut fields(body.clone())).expect_err("refused");
            assert_eq!((failure.status.as_u16(), failure.param.as_deref()), (400, Some(place)), "{body}");
        }
    }
}
