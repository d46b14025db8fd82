//! The messages of a conversation, checked and made ready for a chat template.

use crate::failure::Failure;
use crate::fields::{Fields, wrong};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Who may speak.
const ROLES: &[&str] = &["system", "developer", "user", "assistant", "tool"];

/// Whose messages they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    OpenAi,
    /// Calls have no ids there.
    Ollama,
}

/// Reads `messages`.
///
/// # Errors
/// What is no conversation, and parts that are no text: nothing is ever fetched.
pub fn take(fields: &mut Fields, dialect: Dialect) -> Result<Vec<Value>, Failure> {
    let list = fields.list("messages", usize::MAX)?.ok_or_else(|| fields.missing("messages"))?;
    if list.is_empty() {
        return Err(Failure::field("messages", "messages is an empty list"));
    }
    let mut calls = Calls::default();
    let read = |(index, message)| read(message, &format!("messages[{index}]"), dialect, &mut calls);
    list.into_iter().enumerate().map(read).collect()
}

/// The calls so far, by their ids.
#[derive(Debug, Default)]
pub struct Calls(BTreeMap<String, String>);

impl Calls {
    pub fn add(&mut self, id: &str, name: &str) {
        self.0.insert(id.to_owned(), name.to_owned());
    }

    /// The name of the function whose call has this id.
    ///
    /// # Errors
    /// Ids of no call.
    pub fn name(&self, id: &str, place: &str) -> Result<&str, Failure> {
        self.0.get(id).map(String::as_str).ok_or_else(|| {
            let shown: String = id.chars().take(80).collect();
            Failure::field(place, format!("{place} is {shown:?}, which is the id of no call before it"))
        })
    }
}

fn read(message: Value, place: &str, dialect: Dialect, known: &mut Calls) -> Result<Value, Failure> {
    let mut fields = Fields::within(message, place)?;
    let role = fields.required_text("role")?;
    if !ROLES.contains(&role.as_str()) {
        let shown: String = role.chars().take(40).collect();
        let message = format!("{place}.role is {shown:?}; it is one of {}", ROLES.join(", "));
        return Err(Failure::field(format!("{place}.role"), message));
    }
    let calls = tool_calls(&mut fields, place, known)?;
    let content = fields.take("content").map(|content| text(content, &format!("{place}.content"))).transpose()?;
    let content = match content {
        Some(text) => json!(text),
        None if role == "assistant" && (calls.is_some() || dialect == Dialect::Ollama) => Value::Null,
        None => return Err(fields.missing("content")),
    };
    let mut made = Map::new();
    // Templates know a system message, which is what newer clients call the developer's.
    made.insert("role".into(), json!(if role == "developer" { "system" } else { &role }));
    made.insert("content".into(), content);
    let (mut name, id) = (fields.text("name")?, fields.text("tool_call_id")?);
    if role == "tool" {
        match &id {
            Some(id) => name = Some(known.name(id, &format!("{place}.tool_call_id"))?.to_owned()),
            None if dialect == Dialect::OpenAi => return Err(fields.missing("tool_call_id")),
            None => {}
        }
    }
    let (reasoning, other) = (fields.text("reasoning_content")?, fields.text("reasoning")?);
    for (name, text) in [("name", name), ("tool_call_id", id), ("reasoning_content", reasoning.or(other))] {
        made.extend(text.map(|text| (name.to_owned(), json!(text))));
    }
    if let Some(calls) = calls {
        made.insert("tool_calls".into(), calls);
    }
    fields.ignore(&["refusal", "annotations", "audio", "function_call"]);
    fields.end()?;
    Ok(Value::Object(made))
}

/// A content: a text, or parts that are texts, put together a line each.
fn text(content: Value, place: &str) -> Result<String, Failure> {
    let parts = match content {
        Value::String(text) => return Ok(text),
        Value::Array(parts) if !parts.is_empty() => parts,
        other => return Err(wrong(place, "a string or a list of parts", &other)),
    };
    let part = |(index, part): (usize, Value)| {
        let place = format!("{place}[{index}]");
        let mut fields = Fields::within(part, &place)?;
        let kind = fields.required_text("type")?;
        if kind != "text" {
            let shown: String = kind.chars().take(40).collect();
            let message = format!("{place} is of type {shown:?}; only text is taken, and nothing is ever fetched");
            return Err(Failure::field(format!("{place}.type"), message));
        }
        let text = fields.required_text("text")?;
        fields.ignore(&["cache_control"]);
        fields.end()?;
        Ok(text)
    };
    let texts = parts.into_iter().enumerate().map(part).collect::<Result<Vec<String>, Failure>>()?;
    Ok(texts.join("\n"))
}

/// The calls of a message of the assistant's. Templates want arguments as an object, clients send them as its text.
fn tool_calls(fields: &mut Fields, place: &str, known: &mut Calls) -> Result<Option<Value>, Failure> {
    let Some(list) = fields.list("tool_calls", 128)?.filter(|list| !list.is_empty()) else { return Ok(None) };
    let call = |(index, call): (usize, Value)| {
        let place = format!("{place}.tool_calls[{index}]");
        let mut fields = Fields::within(call, &place)?;
        let id = fields.text("id")?;
        let kind = fields.text("type")?.unwrap_or_else(|| "function".into());
        if kind != "function" {
            return Err(Failure::field(format!("{place}.type"), format!("{place}.type is not function")));
        }
        let mut function = fields.object("function")?.ok_or_else(|| fields.missing("function"))?;
        let name = function.required_text("name")?;
        let arguments = arguments(function.take("arguments"), &format!("{place}.function.arguments"))?;
        function.ignore(&["index", "description"]);
        function.end()?;
        fields.ignore(&["index"]);
        fields.end()?;
        let mut made = json!({"type": kind, "function": {"name": &name, "arguments": arguments}});
        if let Some(id) = id {
            known.add(&id, &name);
            made["id"] = json!(id);
        }
        Ok(made)
    };
    list.into_iter().enumerate().map(call).collect::<Result<Value, Failure>>().map(Some)
}

/// The arguments of a call: an object, or the text of one.
fn arguments(value: Option<Value>, place: &str) -> Result<Value, Failure> {
    match value {
        None => Ok(json!({})),
        Some(Value::String(text)) if text.trim().is_empty() => Ok(json!({})),
        Some(Value::Object(map)) => Ok(Value::Object(map)),
        Some(Value::String(text)) => match serde_json::from_str(&text) {
            Ok(Value::Object(map)) => Ok(Value::Object(map)),
            Ok(_) | Err(_) => {
                Err(Failure::field(place, format!("{place} is not the text of a JSON object, as arguments are")))
            }
        },
        Some(other) => Err(wrong(place, "an object or the text of one", &other)),
    }
}
