//! Conversations with calls, for templates that differ in what they expect.
//!
//! A call's arguments are handed over as an object and a missing content as none, as most templates want. One that puts
//! them together with texts fails on either, and is tried again with the arguments as their text, and with an empty
//! content. A template that knows nothing of tools gets all of it in words: what can be called stands in the system
//! message, and what was returned in messages of the user's.

use super::{ChatTemplate, Render, Rendered};
use crate::answer::mentions;
use crate::error::Error;
use crate::tokenizer::Tokenizer;
use serde_json::{Map, Value, json};

/// The length of ids where templates check it.
const SHORT_ID: usize = 9;

impl ChatTemplate {
    /// As [`ChatTemplate::render_marked`], in the form that this template takes calls and their results in.
    ///
    /// # Errors
    /// What the template refuses in every form.
    pub fn render_conversation(&self, request: &Render, tokenizer: &Tokenizer) -> Result<Rendered, Error> {
        let source = self.source(request)?;
        let mut request = request.clone();
        let calls = has_calls(&request.messages);
        if !mentions(source, "tools") && (calls || request.tools.is_some()) {
            let spoken = in_words(request);
            return self.render_marked(&spoken, tokenizer).or_else(|error| {
                let merged = without_system(spoken).ok_or(error)?;
                self.render_marked(&merged, tokenizer)
            });
        }
        if source.contains("thinking") {
            each(&mut request.messages, |message| {
                if let Some(thoughts) = message.get("reasoning_content").cloned() {
                    message.insert("thinking".into(), thoughts);
                }
            });
        }
        if source.contains("[TOOL_CALLS]") {
            each(&mut request.messages, short_ids);
        }
        let first = self.render_marked(&request, tokenizer);
        let Err(error) = first else { return first };
        if !calls {
            return Err(error);
        }
        for (text, empty) in [(false, true), (true, false), (true, true)] {
            let mut other = request.clone();
            each(&mut other.messages, |message| restate(message, text, empty));
            if let Ok(rendered) = self.render_marked(&other, tokenizer) {
                return Ok(rendered);
            }
        }
        Err(error)
    }
}

fn each(messages: &mut Value, change: impl FnMut(&mut Map<String, Value>)) {
    messages.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut).for_each(change);
}

fn has_calls(messages: &Value) -> bool {
    let one =
        |message: &Value| message["role"] == "tool" || message.get("tool_calls").is_some_and(|calls| !calls.is_null());
    messages.as_array().is_some_and(|messages| messages.iter().any(one))
}

/// A message with its arguments as a text, or an empty content in the place of none.
fn restate(message: &mut Map<String, Value>, text: bool, empty: bool) {
    if empty && message.get("content").is_some_and(Value::is_null) {
        message.insert("content".into(), json!(""));
    }
    let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
    for call in calls.into_iter().flatten().filter(|_| text) {
        if let Some(arguments) = call.pointer_mut("/function/arguments") {
            *arguments = Value::String(arguments.to_string());
        }
    }
}

/// Ids as templates want them that check their length: the end of each, which is what differs.
fn short_ids(message: &mut Map<String, Value>) {
    let shorten = |id: &mut Value| {
        let Some(text) = id.as_str() else { return };
        let plain: Vec<char> = text.chars().filter(char::is_ascii_alphanumeric).collect();
        if text.len() != SHORT_ID || plain.len() != SHORT_ID {
            let end: String = plain[plain.len().saturating_sub(SHORT_ID)..].iter().collect();
            *id = Value::String(format!("{end:0>SHORT_ID$}"));
        }
    };
    message.get_mut("tool_call_id").into_iter().for_each(shorten);
    let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
    calls.into_iter().flatten().filter_map(|call| call.get_mut("id")).for_each(shorten);
}

/// The conversation in the words of texts alone.
fn in_words(request: Render) -> Render {
    let tools = request.tools.as_ref().and_then(Value::as_array).filter(|tools| !tools.is_empty()).map(|tools| {
        let lines: Vec<String> = tools.iter().map(|tool| tool.get("function").unwrap_or(tool).to_string()).collect();
        format!(
            "You can call functions to help with what you are asked. These are the functions, one a line, with the JSON \
             schema of their arguments:\n<tools>\n{}\n</tools>\nTo call a function, answer with its name and arguments \
             like this, and nothing after it:\n<tool_call>\n{{\"name\": \"NAME\", \"arguments\": {{\"KEY\": \
             \"VALUE\"}}}}\n</tool_call>\nWhat it returned is then told to you between <tool_response> and \
             </tool_response>. Call a function only where it helps.",
            lines.join("\n")
        )
    });
    let mut made: Vec<Value> = Vec::new();
    let messages = match request.messages {
        Value::Array(messages) => messages,
        other => return Render { messages: other, ..request },
    };
    for mut message in messages {
        if let Some(calls) = message.as_object_mut().and_then(|message| message.remove("tool_calls")) {
            let said = message["content"].as_str().unwrap_or_default().to_owned();
            let calls = calls.as_array().into_iter().flatten().map(|call| {
                let function = call.get("function").unwrap_or(call);
                format!(
                    "<tool_call>\n{}\n</tool_call>",
                    json!({"name": function["name"], "arguments": function["arguments"]})
                )
            });
            let lines: Vec<String> = Some(said).filter(|said| !said.is_empty()).into_iter().chain(calls).collect();
            message["content"] = json!(lines.join("\n"));
        }
        if message["role"] == "tool" {
            let returned = message["content"].as_str().unwrap_or_default();
            message = json!({"role": "user", "content": format!("<tool_response>\n{returned}\n</tool_response>")});
        }
        match made.last_mut() {
            // Many templates want user and assistant to take turns.
            Some(last) if last["role"] == "user" && message["role"] == "user" => join(last, &message),
            _ => made.push(message),
        }
    }
    if let Some(tools) = tools {
        match made.first_mut().filter(|first| first["role"] == "system") {
            Some(system) => join(system, &json!({"content": format!("\n{tools}")})),
            None => made.insert(0, json!({"role": "system", "content": tools})),
        }
    }
    Render { messages: Value::Array(made), tools: None, ..request }
}

/// The same for templates that know no system message; None: there is none.
fn without_system(request: Render) -> Option<Render> {
    let Value::Array(mut messages) = request.messages else { return None };
    if messages.first()?["role"] != "system" || messages.get(1)?["role"] != "user" {
        return None;
    }
    let mut system = messages.remove(0);
    let user = messages.first_mut()?;
    join(&mut system, &json!({"content": format!("\n{}", user["content"].as_str()?)}));
    user["content"] = system["content"].take();
    Some(Render { messages: Value::Array(messages), ..request })
}

fn join(first: &mut Value, second: &Value) {
    let texts = [&first["content"], &second["content"]].map(|text| text.as_str().unwrap_or_default().to_owned());
    first["content"] = json!(texts.join("\n"));
}
