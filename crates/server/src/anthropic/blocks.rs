//! The blocks of messages, as the messages that templates know.

use crate::failure::Failure;
use crate::fields::{Fields, wrong};
use crate::openai::messages::Calls;
use serde_json::{Value, json};

/// A message. What tools returned stands in a message of the user's, and becomes messages of its own.
///
/// # Errors
/// Roles and blocks that are not known, results of calls that were not made.
pub(super) fn message(message: Value, place: &str, calls: &mut Calls) -> Result<Vec<Value>, Failure> {
    let mut fields = Fields::within(message, place)?;
    let role = fields.required_text("role")?;
    let content = fields.take("content").ok_or_else(|| fields.missing("content"))?;
    fields.end()?;
    let place = format!("{place}.content");
    match role.as_str() {
        "user" => user(content, &place, calls),
        "assistant" => Ok(vec![assistant(content, &place, calls)?]),
        _ => {
            let place = place.trim_end_matches("content").to_owned() + "role";
            let message = format!("{place} is neither user nor assistant; what the model is told stands in system");
            Err(Failure::field(place, message))
        }
    }
}

fn user(content: Value, place: &str, calls: &Calls) -> Result<Vec<Value>, Failure> {
    let (mut messages, mut texts) = (Vec::new(), Vec::new());
    let said = |texts: &mut Vec<String>| {
        let said = std::mem::take(texts);
        (!said.is_empty()).then(|| json!({"role": "user", "content": said.join("\n")}))
    };
    each(content, place, |kind, fields, place| match kind {
        None => {
            texts.push(fields.required_text("text")?);
            Ok(true)
        }
        Some("tool_result") => {
            let id = fields.required_text("tool_use_id")?;
            let name = calls.name(&id, &format!("{place}.tool_use_id"))?;
            let content = fields.take("content");
            let mut returned =
                content.map_or(Ok(String::new()), |content| text(content, &format!("{place}.content")))?;
            if fields.flag("is_error")?.unwrap_or(false) {
                returned = format!("Error: {returned}");
            }
            messages.extend(said(&mut texts));
            messages.push(json!({"role": "tool", "tool_call_id": id, "name": name, "content": returned}));
            Ok(true)
        }
        Some(_) => Ok(false),
    })?;
    messages.extend(said(&mut texts));
    Ok(messages)
}

fn assistant(content: Value, place: &str, calls: &mut Calls) -> Result<Value, Failure> {
    let (mut texts, mut thoughts, mut made) = (Vec::new(), Vec::new(), Vec::new());
    each(content, place, |kind, fields, place| {
        match kind {
            None => texts.push(fields.required_text("text")?),
            Some("thinking") => {
                thoughts.push(fields.required_text("thinking")?);
                fields.text("signature")?;
            }
            // Nobody but who made it can read it.
            Some("redacted_thinking") => drop(fields.required_text("data")?),
            Some("tool_use") => {
                let (id, name) = (fields.required_text("id")?, fields.required_text("name")?);
                let input = fields.take("input").unwrap_or_else(|| json!({}));
                if !input.is_object() {
                    return Err(wrong(&format!("{place}.input"), "an object", &input));
                }
                calls.add(&id, &name);
                made.push(json!({"id": id, "type": "function", "function": {"name": name, "arguments": input}}));
            }
            Some(_) => return Ok(false),
        }
        Ok(true)
    })?;
    let content = if texts.is_empty() && !made.is_empty() { Value::Null } else { json!(texts.join("\n")) };
    let mut message = json!({"role": "assistant", "content": content});
    if !thoughts.is_empty() {
        message["reasoning_content"] = json!(thoughts.join("\n"));
    }
    if !made.is_empty() {
        message["tool_calls"] = Value::Array(made);
    }
    Ok(message)
}

/// A text, or blocks that are texts, put together a line each.
///
/// # Errors
/// Anything else.
pub(super) fn text(content: Value, place: &str) -> Result<String, Failure> {
    let mut texts = Vec::new();
    each(content, place, |kind, fields, _| {
        if kind.is_none() {
            texts.push(fields.required_text("text")?);
        }
        Ok(kind.is_none())
    })?;
    Ok(texts.join("\n"))
}

/// Takes one block after the other; `read` gets its kind, none for a text, and says whether it knows it.
fn each(
    content: Value,
    place: &str,
    mut read: impl FnMut(Option<&str>, &mut Fields, &str) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let blocks = match content {
        Value::String(text) => vec![json!({"type": "text", "text": text})],
        Value::Array(blocks) if !blocks.is_empty() => blocks,
        other => return Err(wrong(place, "a string or a list of blocks", &other)),
    };
    for (index, block) in blocks.into_iter().enumerate() {
        let place = format!("{place}[{index}]");
        let mut fields = Fields::within(block, &place)?;
        let kind = fields.required_text("type")?;
        if !read((kind != "text").then_some(kind.as_str()), &mut fields, &place)? {
            let shown: String = kind.chars().take(40).collect();
            let message = format!("{place} is of type {shown:?}, which is not taken here; nothing is ever fetched");
            return Err(Failure::field(format!("{place}.type"), message));
        }
        fields.ignore(&["cache_control", "citations", "caller"]);
        fields.end()?;
    }
    Ok(())
}
