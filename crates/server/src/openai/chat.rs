//! `/v1/chat/completions`: the next message of a conversation.

use super::messages::Dialect;
use super::params::{self, Params};
use super::{DONE, Usage, event, logprobs, messages, now, reason};
use crate::answers::{Answers, Whole, call_id};
use crate::failure::Failure;
use crate::fields::Fields;
use crate::forced::Forced;
use crate::front::routes::{Addressed, Asked};
use crate::front::{reply, sse};
use crate::functions::Offered;
use crate::host::ask::{Generate, Piece, Source, Taken};
use crate::limits::Limits;
use crate::lora;
use attend_engine::{Finish, Output, TokenLogprob};
use attend_text::{Call, Part, Render, Tokenizer};
use axum::body::Body;
use axum::http::{Response, StatusCode};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
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
    let model = lora::take(&mut fields, record.app(), model)?;
    let messages = messages::take(&mut fields, Dialect::OpenAi)?;
    let offered = Offered::take(&mut fields)?;
    let mut params = params::take(&mut fields, &limits)?;
    if let Some(most) = max_tokens(&mut fields)? {
        params.set("max_tokens", most);
    }
    let logprobs = wanted_logprobs(&mut fields, &limits)?;
    if let Some(count) = logprobs {
        params.set("logprobs", count);
    }
    let extra = variables(&mut fields)?;
    let separate = separated(&mut fields)?;
    let params = params::finish(fields, params, &limits)?;
    let facts = model.facts()?;
    let tokenizer = Arc::clone(&facts.tokenizer);
    let mut answers = Answers::new(facts, &offered, separate);
    let head = Head {
        id: format!("chatcmpl-{}", record.id),
        created: now(),
        model: model.name.clone(),
        choices: params.choices,
        logprobs: logprobs.is_some(),
    };
    let render = Render {
        messages: Value::Array(messages),
        tools: offered.tools(),
        add_generation_prompt: true,
        extra,
        ..Render::default()
    };
    let asker = record.asker(params.salt.as_deref(), params.priority);
    let Params { mut given, stream, usage, constrained, .. } = params;
    given.extend(answers.given(facts));
    let sources = vec![Source::Chat(Box::new(render))];
    let forced = Forced::new(facts.form.as_ref(), &offered, &tokenizer);
    let enough = answers.enough(head.choices);
    let watched = stream || enough.is_some();
    let ask = Generate { sources, writing: None, given, stream: watched, constrained, forced, enough, asker };
    let from = model.generate(ask)?;
    if stream {
        let format = Stream { head, tokenizer, usage: usage.then(Usage::default), answers, calls: BTreeMap::new() };
        return sse::respond(from, format, record, model).await;
    }
    let outputs = sse::watch(from, &record, &model, answers.watcher()).await?;
    Ok(reply::json(StatusCode::OK, &whole(&head, &tokenizer, answers, &outputs)))
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

/// Whether thoughts are told apart from what is said.
fn separated(fields: &mut Fields) -> Result<bool, Failure> {
    match fields.text("reasoning_format")?.as_deref() {
        None | Some("auto" | "deepseek") => Ok(true),
        Some("none") => Ok(false),
        Some(_) => Err(Failure::field("reasoning_format", "reasoning_format is one of auto, deepseek, none")),
    }
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
fn whole(head: &Head, tokenizer: &Tokenizer, mut answers: Answers, outputs: &[(Taken, Output)]) -> Value {
    let mut usage = Usage::default();
    let mut choices = Vec::new();
    for (taken, output) in outputs {
        usage.add(output);
        answers.begin(std::slice::from_ref(taken));
        for answer in &output.choices {
            let logprobs = if head.logprobs { content_logprobs(tokenizer, &answer.logprobs) } else { Value::Null };
            let message = message(answers.whole(answer.index, &answer.text));
            choices.push(json!({
                "index": answer.index,
                "message": message,
                "logprobs": logprobs,
                "finish_reason": ended(&answers, answer.index, &answer.finish),
            }));
        }
    }
    json!({
        "id": head.id,
        "object": "chat.completion",
        "created": head.created,
        "model": head.model,
        "choices": choices,
        "usage": usage.json(),
    })
}

fn message(whole: Whole) -> Value {
    let content = if whole.content.is_empty() && !whole.calls.is_empty() { Value::Null } else { json!(whole.content) };
    let mut message = json!({"role": "assistant", "content": content, "refusal": null});
    if !whole.reasoning.is_empty() {
        message["reasoning_content"] = json!(whole.reasoning);
        message["reasoning"] = json!(whole.reasoning);
    }
    if !whole.calls.is_empty() {
        let call = |call: &Call| {
            let function = json!({"name": call.name, "arguments": call.arguments});
            json!({"id": call_id("call_"), "type": "function", "function": function})
        };
        message["tool_calls"] = whole.calls.iter().map(call).collect();
    }
    message
}

/// Why a choice ended.
fn ended(answers: &Answers, choice: usize, finish: &Finish) -> &'static str {
    if answers.calls(choice, finish) { "tool_calls" } else { reason(finish) }
}

/// The response as a stream.
struct Stream {
    head: Head,
    tokenizer: Arc<Tokenizer>,
    usage: Option<Usage>,
    answers: Answers,
    /// Calls of each choice so far.
    calls: BTreeMap<usize, usize>,
}

impl Stream {
    fn object(&self, choices: Value) -> Value {
        let Head { id, created, model, .. } = &self.head;
        json!({"id": id, "object": "chat.completion.chunk", "created": created, "model": model, "choices": choices})
    }

    fn chunk(&self, index: usize, delta: Value, logprobs: Value, finish: Option<&str>) -> String {
        let choice = json!({"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish});
        let mut object = self.object(json!([choice]));
        if self.usage.is_some() {
            object["usage"] = Value::Null;
        }
        event(&object)
    }
}

impl Stream {
    /// The chunks of parts; the first one has the log-probabilities.
    fn parts(&mut self, choice: usize, parts: Vec<Part>, logprobs: Value) -> String {
        let mut deltas = Vec::new();
        for part in parts {
            match part {
                Part::Content(text) => deltas.push(json!({"content": text})),
                Part::Reasoning(text) => deltas.push(json!({"reasoning_content": text, "reasoning": text})),
                Part::Call(call) => {
                    let index = self.calls.entry(choice).or_default();
                    let function = json!({"name": call.name, "arguments": ""});
                    let begun =
                        json!({"index": index, "id": call_id("call_"), "type": "function", "function": function});
                    deltas.push(json!({"tool_calls": [begun]}));
                    deltas.push(json!({"tool_calls": [{"index": index, "function": {"arguments": call.arguments}}]}));
                    *index += 1;
                }
            }
        }
        if deltas.is_empty() && !logprobs.is_null() {
            deltas.push(json!({"content": ""}));
        }
        let logprobs = std::iter::once(logprobs).chain(std::iter::repeat(Value::Null));
        deltas.into_iter().zip(logprobs).map(|(delta, logprobs)| self.chunk(choice, delta, logprobs, None)).collect()
    }
}

impl sse::Format for Stream {
    fn begin(&mut self, taken: &[Taken]) -> String {
        self.answers.begin(taken);
        let first = |index| self.chunk(index, json!({"role": "assistant", "content": ""}), Value::Null, None);
        (0..self.head.choices).map(first).collect()
    }

    fn token(&mut self, piece: &Piece) -> String {
        let logprobs = match &piece.logprob {
            Some(token) if self.head.logprobs => content_logprobs(&self.tokenizer, [token]),
            Some(_) | None => Value::Null,
        };
        let parts = self.answers.push(piece.choice, &piece.text);
        self.parts(piece.choice, parts, logprobs)
    }

    fn finished(&mut self, (_, choice): (usize, usize), text: &str, finish: &Finish) -> String {
        let parts = self.answers.finish(choice, text);
        let rest = self.parts(choice, parts, Value::Null);
        rest + &self.chunk(choice, json!({}), Value::Null, Some(ended(&self.answers, choice, finish)))
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
