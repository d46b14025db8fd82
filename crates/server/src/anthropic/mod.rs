//! The dialect of Anthropic's messages.

mod stream;

use crate::constraint::{self, Wanted};
use crate::failure::Failure;
use crate::fields::{Fields, wrong};
use crate::front::record::Record;
use crate::front::routes::Asked;
use crate::front::{reply, sse};
use crate::host::Model;
use crate::host::ask::{Generate, Source};
use crate::limits::Limits;
use crate::openai::params;
use attend_engine::{Finish, Output};
use attend_text::Render;
use axum::body::Body;
use axum::http::{Response, StatusCode};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use stream::Stream;

/// `/v1/messages`: the next message of a conversation.
///
/// # Errors
/// Requests that cannot be served.
pub async fn answer(asked: Asked) -> Result<Response<Body>, Failure> {
    let (model, record, limits, mut fields) = read(asked).await?;
    let conversation = conversation(&mut fields)?;
    let mut given: Vec<(String, Value)> = Vec::new();
    let mut set = |name: &str, value: Option<Value>| given.extend(value.map(|value| (name.to_owned(), value)));
    let most = fields.count("max_tokens", 1, usize::MAX)?.ok_or_else(|| fields.missing("max_tokens"))?;
    set("max_tokens", Some(json!(most)));
    set("temperature", fields.number("temperature", 0.0, 1.0)?.map(Value::from));
    set("top_p", fields.number("top_p", 0.0, 1.0)?.map(Value::from));
    set("top_k", fields.count("top_k", 0, usize::MAX)?.map(Value::from));
    set("stop", params::stops(&mut fields, "stop_sequences", &limits)?.map(Value::from));
    let stream = fields.flag("stream")?.unwrap_or(false);
    let wanted = constraint::take_format(&mut fields)?;
    given.extend(wanted.as_ref().map(Wanted::given).transpose()?);
    // None of these changes an answer here.
    fields.ignore(&["metadata", "service_tier", "cache_control", "inference_geo", "speed", "diagnostics"]);
    fields.end()?;
    let from = model.generate(Generate {
        sources: vec![Source::Chat(Box::new(conversation))],
        writing: None,
        given,
        stream,
        constrained: wanted.map(|wanted| wanted.place),
    })?;
    let head = Head { id: format!("msg_{}", record.id), model: model.name.clone() };
    if stream {
        return sse::respond(from, Stream::new(head), record, model).await;
    }
    let outputs = sse::collect(from, &record, &model).await?;
    let output = outputs.into_iter().next().map(|(_, output)| output);
    let output = output.ok_or_else(|| Failure::fault("an answer without a prompt"))?;
    Ok(reply::json(StatusCode::OK, &whole(&head, &output)))
}

/// `/v1/messages/count_tokens`: what a conversation would cost.
///
/// # Errors
/// Requests that cannot be served.
pub async fn count(asked: Asked) -> Result<Response<Body>, Failure> {
    let (model, _, _, mut fields) = read(asked).await?;
    let conversation = conversation(&mut fields)?;
    fields.end()?;
    let counted = model.task(move |tools| {
        tools.engine()?;
        let tokens = tools.conversation(&conversation)?.len();
        Ok(Box::new(move |_| Ok(tokens)))
    });
    Ok(reply::json(StatusCode::OK, &json!({"input_tokens": counted.await?})))
}

async fn read(asked: Asked) -> Result<(Arc<Model>, Arc<Record>, Limits, Fields), Failure> {
    let (app, record, mut fields) = asked.fields().await?;
    let name = fields.required_text("model")?;
    let model = Arc::clone(app.model(Some(&name))?);
    record.model(&model.name);
    Ok((model, record, app.limits, fields))
}

/// What a response says of each request.
#[derive(Debug)]
struct Head {
    id: String,
    model: String,
}

/// `system`, `messages`, and what goes with them. A conversation that ends with the assistant's words is gone on with.
fn conversation(fields: &mut Fields) -> Result<Render, Failure> {
    let mut messages = Vec::new();
    if let Some(system) = fields.take("system") {
        messages.push(json!({"role": "system", "content": text(system, "system")?}));
    }
    let list = fields.list("messages", usize::MAX)?.ok_or_else(|| fields.missing("messages"))?;
    if list.is_empty() {
        return Err(Failure::field("messages", "messages is an empty list"));
    }
    for (index, message) in list.into_iter().enumerate() {
        messages.push(read_message(message, &format!("messages[{index}]"))?);
    }
    unsupported(fields)?;
    let goes_on = messages.last().is_some_and(|message| message["role"] == "assistant");
    Ok(Render {
        messages: Value::Array(messages),
        add_generation_prompt: !goes_on,
        continue_final_message: goes_on,
        ..Render::default()
    })
}

fn read_message(message: Value, place: &str) -> Result<Value, Failure> {
    let mut fields = Fields::within(message, place)?;
    let role = fields.required_text("role")?;
    if role != "user" && role != "assistant" {
        let message = format!("{place}.role is neither user nor assistant; what the model is told stands in system");
        return Err(Failure::field(format!("{place}.role"), message));
    }
    let content = fields.take("content").ok_or_else(|| fields.missing("content"))?;
    let content = text(content, &format!("{place}.content"))?;
    fields.end()?;
    Ok(json!({"role": role, "content": content}))
}

/// A text, or blocks that are texts, put together a line each.
fn text(content: Value, place: &str) -> Result<String, Failure> {
    let blocks = match content {
        Value::String(text) => return Ok(text),
        Value::Array(blocks) if !blocks.is_empty() => blocks,
        other => return Err(wrong(place, "a string or a list of blocks", &other)),
    };
    let block = |(index, block): (usize, Value)| {
        let place = format!("{place}[{index}]");
        let mut fields = Fields::within(block, &place)?;
        if fields.required_text("type")? != "text" {
            let message = format!("{place} is no text; other blocks are not taken, and nothing is ever fetched");
            return Err(Failure::field(format!("{place}.type"), message));
        }
        let text = fields.required_text("text")?;
        fields.ignore(&["cache_control", "citations"]);
        fields.end()?;
        Ok(text)
    };
    let texts = blocks.into_iter().enumerate().map(block).collect::<Result<Vec<String>, Failure>>()?;
    Ok(texts.join("\n"))
}

/// What this interface has and this server has not.
fn unsupported(fields: &mut Fields) -> Result<(), Failure> {
    if fields.list("tools", 128)?.is_some_and(|tools| !tools.is_empty()) {
        return Err(Failure::field("tools", "tools are not supported"));
    }
    fields.ignore(&["tool_choice"]);
    let Some(mut thinking) = fields.object("thinking")? else { return Ok(()) };
    match thinking.required_text("type")?.as_str() {
        "disabled" => thinking.end(),
        _ => Err(Failure::field("thinking", "thinking is not supported but disabled")),
    }
}

/// Why the message ended, and the stop sequence that did it. `pause_turn` is for work that was cut because the server stops.
fn reason(finish: &Finish) -> (&'static str, Option<&str>) {
    match finish {
        Finish::EndToken(_) | Finish::StopToken(_) | Finish::Complete => ("end_turn", None),
        Finish::StopText(text) => ("stop_sequence", Some(text)),
        Finish::MaxTokens => ("max_tokens", None),
        Finish::Context => ("model_context_window_exceeded", None),
        Finish::Cancelled => ("pause_turn", None),
    }
}

fn usage(input: usize, output: usize) -> Value {
    json!({
        "input_tokens": input,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": output,
    })
}

fn message(head: &Head, content: Value, (reason, stop): (Option<&str>, Option<&str>), usage: Value) -> Value {
    let mut object = Map::new();
    object.insert("id".into(), json!(head.id));
    object.insert("type".into(), json!("message"));
    object.insert("role".into(), json!("assistant"));
    object.insert("model".into(), json!(head.model));
    object.insert("content".into(), content);
    object.insert("stop_reason".into(), json!(reason));
    object.insert("stop_sequence".into(), json!(stop));
    object.insert("usage".into(), usage);
    Value::Object(object)
}

/// The whole response.
fn whole(head: &Head, output: &Output) -> Value {
    let first = output.choices.first();
    let content = json!([{"type": "text", "text": first.map_or("", |choice| choice.text.as_str())}]);
    let (reason, stop) = first.map_or(("end_turn", None), |choice| reason(&choice.finish));
    let usage = usage(output.usage.prompt_tokens, output.usage.completion_tokens);
    message(head, content, (Some(reason), stop), usage)
}
