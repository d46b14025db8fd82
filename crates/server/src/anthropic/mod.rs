//! The dialect of Anthropic's messages.

mod blocks;
mod stream;

use crate::answers::{Answers, Whole, call_id, object};
use crate::constraint::{self, Wanted};
use crate::failure::Failure;
use crate::fields::Fields;
use crate::forced::Forced;
use crate::front::record::Record;
use crate::front::routes::{Addressed, Asked};
use crate::front::{reply, sse};
use crate::functions::Offered;
use crate::host::Model;
use crate::host::ask::{Generate, Source};
use crate::limits::Limits;
use crate::openai::messages::Calls;
use crate::openai::params;
use attend_engine::{Finish, Output};
use attend_text::Render;
use axum::body::Body;
use axum::http::{Response, StatusCode};
use base64::Engine as _;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use stream::Stream;

/// `/v1/messages`: the next message of a conversation.
///
/// # Errors
/// Requests that cannot be served.
pub async fn answer(asked: Asked) -> Result<Response<Body>, Failure> {
    let (model, record, limits, mut fields) = read(asked).await?;
    let (conversation, offered) = conversation(&mut fields)?;
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
    let facts = model.facts()?;
    let mut answers = Answers::new(facts, &offered, true);
    given.extend(answers.given(facts));
    let enough = answers.enough(1);
    let from = model.generate(Generate {
        sources: vec![Source::Chat(Box::new(conversation))],
        writing: None,
        given,
        stream: stream || enough.is_some(),
        constrained: wanted.map(|wanted| wanted.place),
        forced: Forced::new(facts.form.as_ref(), &offered, &facts.tokenizer),
        enough,
        asker: record.asker(None, 0),
    })?;
    let head = Head { id: format!("msg_{}", record.id), model: model.name.clone() };
    if stream {
        return sse::respond(from, Stream::new(head, answers), record, model).await;
    }
    let outputs = sse::watch(from, &record, &model, answers.watcher()).await?;
    let (taken, output) = outputs.into_iter().next().ok_or_else(|| Failure::fault("an answer without a prompt"))?;
    answers.begin(&[taken]);
    Ok(reply::json(StatusCode::OK, &whole(&head, answers, &output)))
}

/// `/v1/messages/count_tokens`: what a conversation would cost.
///
/// # Errors
/// Requests that cannot be served.
pub async fn count(asked: Asked) -> Result<Response<Body>, Failure> {
    let (model, _, _, mut fields) = read(asked).await?;
    let (conversation, _) = conversation(&mut fields)?;
    fields.end()?;
    let counted = model.task(move |tools| {
        tools.engine()?;
        let tokens = tools.conversation(&conversation)?.0.len();
        Ok(Box::new(move |_| Ok(tokens)))
    });
    Ok(reply::json(StatusCode::OK, &json!({"input_tokens": counted.await?})))
}

async fn read(asked: Asked) -> Result<(Arc<Model>, Arc<Record>, Limits, Fields), Failure> {
    let (app, record, mut fields) = asked.fields().await?;
    let name = fields.required_text("model")?;
    let entry = app.entry(Some(&name))?;
    let Addressed { model, record, limits, fields } = Addressed::new(&app, &entry, record, fields).await?;
    Ok((model, record, limits, fields))
}

/// What a response says of each request.
#[derive(Debug)]
struct Head {
    id: String,
    model: String,
}

/// `system`, `messages`, and what goes with them. A conversation that ends with the assistant's words is gone on with.
fn conversation(fields: &mut Fields) -> Result<(Render, Offered), Failure> {
    let mut messages = Vec::new();
    if let Some(system) = fields.take("system") {
        messages.push(json!({"role": "system", "content": blocks::text(system, "system")?}));
    }
    let list = fields.list("messages", usize::MAX)?.ok_or_else(|| fields.missing("messages"))?;
    if list.is_empty() {
        return Err(Failure::field("messages", "messages is an empty list"));
    }
    let mut calls = Calls::default();
    for (index, message) in list.into_iter().enumerate() {
        messages.extend(blocks::message(message, &format!("messages[{index}]"), &mut calls)?);
    }
    let offered = Offered::take_anthropic(fields)?;
    let extra = thinking(fields)?;
    let goes_on =
        messages.last().is_some_and(|message| message["role"] == "assistant" && message["content"].is_string());
    let render = Render {
        messages: Value::Array(messages),
        tools: offered.tools(),
        add_generation_prompt: !goes_on,
        continue_final_message: goes_on,
        extra,
        ..Render::default()
    };
    Ok((render, offered))
}

/// `thinking`, as templates know it. How long a model thinks is its own affair.
fn thinking(fields: &mut Fields) -> Result<Map<String, Value>, Failure> {
    let mut extra = Map::new();
    let Some(mut thinking) = fields.object("thinking")? else { return Ok(extra) };
    let kind = thinking.required_text("type")?;
    match kind.as_str() {
        "enabled" => {
            thinking.count("budget_tokens", 1024, usize::MAX)?;
            extra.insert("enable_thinking".into(), json!(true));
        }
        "disabled" => drop(extra.insert("enable_thinking".into(), json!(false))),
        "adaptive" => {}
        _ => return Err(Failure::field("thinking.type", "thinking.type is one of enabled, disabled, adaptive")),
    }
    thinking.ignore(&["display"]);
    thinking.end()?;
    Ok(extra)
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

/// Why the message ended, calls considered.
fn ended<'f>(answers: &Answers, finish: Option<&'f Finish>) -> (&'static str, Option<&'f str>) {
    match finish {
        Some(finish) if answers.calls(0, finish) => ("tool_use", None),
        Some(finish) => reason(finish),
        None => ("end_turn", None),
    }
}

/// The whole response.
fn whole(head: &Head, mut answers: Answers, output: &Output) -> Value {
    let first = output.choices.first();
    let Whole { reasoning, content, calls } = answers.whole(0, first.map_or("", |choice| choice.text.as_str()));
    let mut blocks = Vec::new();
    if !reasoning.is_empty() {
        blocks.push(json!({"type": "thinking", "thinking": reasoning, "signature": signature(&reasoning)}));
    }
    if !content.is_empty() || calls.is_empty() {
        blocks.push(json!({"type": "text", "text": content}));
    }
    for call in &calls {
        blocks.push(json!({"type": "tool_use", "id": call_id("toolu_"), "name": call.name, "input": object(call)}));
    }
    let (reason, stop) = ended(&answers, first.map(|choice| &choice.finish));
    let usage = usage(output.usage.prompt_tokens, output.usage.completion_tokens);
    message(head, Value::Array(blocks), (Some(reason), stop), usage)
}

/// What clients keep beside a thought. It proves nothing and is not looked at when it comes back.
fn signature(thought: &str) -> String {
    base64::engine::general_purpose::STANDARD.encode(Sha256::digest(thought.as_bytes()))
}
