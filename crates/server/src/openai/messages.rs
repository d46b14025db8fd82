//! The messages of a conversation, checked and made ready for a chat template.

use crate::failure::Failure;
use crate::fields::{Fields, wrong};
use serde_json::{Map, Value, json};

/// Who may speak.
const ROLES: &[&str] = &["system", "developer", "user", "assistant", "tool"];

/// Reads `messages`.
///
/// # Errors
/// What is no conversation, and parts that are no text: nothing is ever fetched.
pub fn take(fields: &mut Fields) -> Result<Vec<Value>, Failure> {
    let list = fields.list("messages", usize::MAX)?.ok_or_else(|| fields.missing("messages"))?;
    if list.is_empty() {
        return Err(Failure::field("messages", "messages is an empty list"));
    }
    list.into_iter().enumerate().map(|(index, message)| read(message, &format!("messages[{index}]"))).collect()
}

fn read(message: Value, place: &str) -> Result<Value, Failure> {
    let mut fields = Fields::within(message, place)?;
    let role = fields.required_text("role")?;
    if !ROLES.contains(&role.as_str()) {
        let shown: String = role.chars().take(40).collect();
        let message = format!("{place}.role is {shown:?}; it is one of {}", ROLES.join(", "));
        return Err(Failure::field(format!("{place}.role"), message));
    }
    let calls = tool_calls(&mut fields, place)?;
    let content = fields.take("content").map(|content| text(content, &format!("{place}.content"))).transpose()?;
    let content = match content {
        Some(text) => json!(text),
        None if role == "assistant" && calls.is_some() => Value::Null,
        None => return Err(fields.missing("content")),
    };
    let mut made = Map::new();
    // Templates know a system message, which is what newer clients call the developer's.
    made.insert("role".into(), json!(if role == "developer" { "system" } else { &role }));
    made.insert("content".into(), content);
    for name in ["name", "tool_call_id", "reasoning_content"] {
        if let Some(text) = fields.text(name)? {
            made.insert(name.into(), json!(text));
        }
    }
    if let Some(calls) = calls {
        made.insert("tool_calls".into(), calls);
    }
    fields.ignore(&["refusal", "annotations"]);
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
fn tool_calls(fields: &mut Fields, place: &str) -> Result<Option<Value>, Failure> {
    let Some(list) = fields.list("tool_calls", 128)?.filter(|list| !list.is_empty()) else { return Ok(None) };
    let call = |(index, call): (usize, Value)| {
        let place = format!("{place}.tool_calls[{index}]");
        let mut fields = Fields::within(call, &place)?;
        let id = fields.text("id")?;
        let kind = fields.text("type")?.unwrap_or_else(|| "function".into());
        let mut function = fields.object("function")?.ok_or_else(|| fields.missing("function"))?;
        let name = function.required_text("name")?;
        let arguments = match function.take("arguments") {
            None => json!({}),
            Some(Value::String(text)) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
            Some(other) => other,
        };
        function.end()?;
        fields.ignore(&["index"]);
        fields.end()?;
        let mut made = json!({"type": kind, "function": {"name": name, "arguments": arguments}});
        if let Some(id) = id {
            made["id"] = json!(id);
        }
        Ok(made)
    };
    list.into_iter().enumerate().map(call).collect::<Result<Value, Failure>>().map(Some)
}
