//! `/v1/chat/completions`: the next message of a conversation.

use super::params::{self, Params};
use super::{DONE, Usage, event, logprobs, messages, now, reason};
use crate::failure::Failure;
use crate::fields::Fields;
use crate::front::routes::{Addressed, Asked};
use crate::front::{reply, sse};
use crate::host::ask::{Generate, Piece, Source, Taken};
use crate::limits::Limits;
use attend_engine::{Finish, Output, TokenLogprob};
use attend_text::{Render, Tokenizer};
use axum::body::Body;
use axum::http::{Response, StatusCode};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Variables of a template that a request must not set: they are the conversation itself.
const RESERVED: &[&str] = &[
    "messages",
    "tools",
    "documents",
    "add_generation_prompt",
    "continue_final_message",
    "chat_template",
    "bos_token",
    "eos_token",
    "unk_token",
    "pad_token",
];

/// What a response says of each request.
#[derive(Debug, Clone)]
struct Head {
    id: String,
    created: u64,
    model: String,
    choices: usize,
    logprobs: bool,
}

/// # Errors
/// Requests that cannot be served.
pub async fn answer(asked: Asked) -> Result<Response<Body>, Failure> {
    let Addressed { model, record, limits, mut fields } = asked.of_model().await?;
    let messages = messages::take(&mut fields)?;
    let mut params = params::take(&mut fields, &limits)?;
    if let Some(most) = max_tokens(&mut fields)? {
        params.set("max_tokens", most);
    }
    let logprobs = wanted_logprobs(&mut fields, &limits)?;
    if let Some(count) = logprobs {
        params.set("logprobs", count);
    }
    unsupported(&mut fields)?;
    let extra = variables(&mut fields)?;
    let params = params::finish(fields, params, &limits)?;
    let tokenizer = Arc::clone(&model.facts()?.tokenizer);
    let head = Head {
        id: format!("chatcmpl-{}", record.id),
        created: now(),
        model: model.name.clone(),
        choices: params.choices,
        logprobs: logprobs.is_some(),
    };
    let render = Render { messages: Value::Array(messages), add_generation_prompt: true, extra, ..Render::default() };
    let Params { given, stream, usage, constrained, .. } = params;
    let sources = vec![Source::Chat(Box::new(render))];
    let from = model.generate(Generate { sources, writing: None, given, stream, constrained })?;
    if stream {
        let format = Stream { head, tokenizer, usage: usage.then(Usage::default) };
        return sse::respond(from, format, record, model).await;
    }
    let outputs: Vec<Output> =
        sse::collect(from, &record, &model).await?.into_iter().map(|(_, output)| output).collect();
    Ok(reply::json(StatusCode::OK, &whole(&head, &tokenizer, &outputs)))
}

/// The limit of the answer, under its new name or the old one.
fn max_tokens(fields: &mut Fields) -> Result<Option<usize>, Failure> {
    let new = fields.count("max_completion_tokens", 1, usize::MAX)?;
    let old = fields.count("max_tokens", 1, usize::MAX)?;
    match (new, old) {
        (Some(new), Some(old)) if new != old => {
            Err(Failure::field("max_tokens", "max_tokens and max_completion_tokens differ; the first is the old name"))
        }
        (new, old) => Ok(new.or(old)),
    }
}

fn wanted_logprobs(fields: &mut Fields, limits: &Limits) -> Result<Option<usize>, Failure> {
    let wanted = fields.flag("logprobs")?.unwrap_or(false);
    match (wanted, fields.count("top_logprobs", 0, limits.top_logprobs)?) {
        (true, top) => Ok(Some(top.unwrap_or(0))),
        (false, None | Some(0)) => Ok(None),
        (false, Some(_)) => Err(Failure::field("top_logprobs", "top_logprobs mean something only with logprobs")),
    }
}

/// What this interface has and this server has not.
fn unsupported(fields: &mut Fields) -> Result<(), Failure> {
    let tools = fields.list("tools", 128)?.is_some_and(|tools| !tools.is_empty());
    let choice = fields.take("tool_choice");
    if tools && choice.as_ref().and_then(Value::as_str) != Some("none") {
        return Err(Failure::field("tools", "tools are not supported"));
    }
    if !tools && choice.is_some_and(|choice| !matches!(choice.as_str(), Some("none" | "auto"))) {
        return Err(Failure::field("tool_choice", "tool_choice asks for a tool, and there are none"));
    }
    fields.ignore(&["parallel_tool_calls"]);
    Ok(())
}

/// Variables for the model's template.
fn variables(fields: &mut Fields) -> Result<Map<String, Value>, Failure> {
    let mut extra = fields.object("chat_template_kwargs")?.map(Fields::rest).unwrap_or_default();
    if let Some(name) = extra.keys().find(|name| RESERVED.contains(&name.as_str())) {
        let place = format!("chat_template_kwargs.{name}");
        return Err(Failure::field(&place, format!("{place} is not the request's to set")));
    }
    if let Some(effort) = fields.text("reasoning_effort")? {
        extra.insert("reasoning_effort".into(), json!(effort));
    }
    Ok(extra)
}

fn content_logprobs<'a>(tokenizer: &Tokenizer, tokens: impl IntoIterator<Item = &'a TokenLogprob>) -> Value {
    let content: Vec<Value> = tokens.into_iter().map(|token| logprobs::of_chat(tokenizer, token)).collect();
    json!({"content": content, "refusal": null})
}

/// The whole response.
fn whole(head: &Head, tokenizer: &Tokenizer, outputs: &[Output]) -> Value {
    let mut usage = Usage::default();
    outputs.iter().for_each(|output| usage.add(output));
    let choices = outputs.iter().flat_map(|output| &output.choices).map(|answer| {
        let logprobs = if head.logprobs { content_logprobs(tokenizer, &answer.logprobs) } else { Value::Null };
        json!({
            "index": answer.index,
            "message": {"role": "assistant", "content": answer.text, "refusal": null},
            "logprobs": logprobs,
            "finish_reason": reason(&answer.finish),
        })
    });
    json!({
        "id": head.id,
        "object": "chat.completion",
        "created": head.created,
        "model": head.model,
        "choices": choices.collect::<Vec<_>>(),
        "usage": usage.json(),
    })
}

/// The response as a stream.
struct Stream {
    head: Head,
    tokenizer: Arc<Tokenizer>,
    usage: Option<Usage>,
}

impl Stream {
    fn object(&self, choices: Value) -> Value {
        let Head { id, created, model, .. } = &self.head;
        json!({"id": id, "object": "chat.completion.chunk", "created": created, "model": model, "choices": choices})
    }

    fn chunk(&self, index: usize, delta: Value, logprobs: Value, finish: Option<&Finish>) -> String {
        let choice = json!({"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish.map(reason)});
        let mut object = self.object(json!([choice]));
        if self.usage.is_some() {
            object["usage"] = Value::Null;
        }
        event(&object)
    }
}

impl sse::Format for Stream {
    fn begin(&mut self, _: &[Taken]) -> String {
        let first = |index| self.chunk(index, json!({"role": "assistant", "content": ""}), Value::Null, None);
        (0..self.head.choices).map(first).collect()
    }

    fn token(&mut self, piece: &Piece) -> String {
        let logprobs = match &piece.logprob {
            Some(token) if self.head.logprobs => content_logprobs(&self.tokenizer, [token]),
            Some(_) | None if piece.text.is_empty() => return String::new(),
            Some(_) | None => Value::Null,
        };
        self.chunk(piece.choice, json!({"content": piece.text}), logprobs, None)
    }

    fn finished(&mut self, (_, choice): (usize, usize), text: &str, finish: &Finish) -> String {
        let rest = match text.is_empty() {
            true => String::new(),
            false => self.chunk(choice, json!({"content": text}), Value::Null, None),
        };
        rest + &self.chunk(choice, json!({}), Value::Null, Some(finish))
    }

    fn done(&mut self, _: usize, output: &Output) -> String {
        if let Some(usage) = &mut self.usage {
            usage.add(output);
        }
        String::new()
    }

    fn end(&mut self) -> String {
        let usage = self.usage.map(|usage| {
            let mut object = self.object(json!([]));
            object["usage"] = usage.json();
            event(&object)
        });
        usage.unwrap_or_default() + DONE
    }

    fn failed(&mut self, failure: &Failure) -> String {
        super::failed(failure)
    }
}
