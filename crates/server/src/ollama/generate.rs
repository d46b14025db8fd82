//! `/api/generate` and `/api/chat`.

use super::{nanoseconds, now, open, options};
use crate::answers::{Answers, Whole, object};
use crate::constraint::{self, Wanted};
use crate::failure::Failure;
use crate::fields::{Fields, wrong};
use crate::forced::Forced;
use crate::front::reply::Shape;
use crate::front::routes::Addressed;
use crate::front::routes::Asked;
use crate::front::{reply, sse};
use crate::functions::Offered;
use crate::host::ask::{Generate, Piece, Source, Taken};
use crate::openai::messages::Dialect;
use crate::openai::{messages, params, reason};
use attend_engine::{Finish, Output};
use attend_text::{Call, Part, Render};
use axum::body::Body;
use axum::http::{Response, StatusCode};
use serde_json::{Map, Value, json};

/// What a line of an answer holds its text in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Response,
    Message,
}

/// # Errors
/// Requests that cannot be served.
pub async fn generate(asked: Asked) -> Result<Response<Body>, Failure> {
    let mut opened = open(asked).await?;
    let prompt = opened.fields.text("prompt")?.unwrap_or_default();
    let suffix = opened.fields.text("suffix")?.filter(|suffix| !suffix.is_empty());
    if opened.unloads(prompt.is_empty() && suffix.is_none()) {
        return Ok(unloaded(&opened.entry.name, Kind::Response));
    }
    let mut request = opened.lease().await?;
    let fields = &mut request.fields;
    let system = fields.text("system")?.filter(|system| !system.is_empty());
    let raw = fields.flag("raw")?.unwrap_or(false);
    if fields.text("template")?.is_some_and(|text| !text.is_empty()) {
        return Err(Failure::field("template", "template is not supported"));
    }
    if fields.list("context", usize::MAX)?.is_some_and(|context| !context.is_empty()) {
        return Err(Failure::field("context", "context is not supported: send the conversation to /api/chat"));
    }
    let extra = shared(fields)?;
    let templated = request.model.facts()?.has_template && !raw && suffix.is_none();
    if system.is_some() && !templated {
        return Err(Failure::field("system", "system needs a chat template"));
    }
    let source = match (templated, suffix) {
        (_, Some(suffix)) => Source::Gap(prompt.clone(), suffix),
        (false, None) => Source::Text(prompt.clone()),
        (true, None) => {
            let mut messages = Vec::new();
            messages.extend(system.map(|system| json!({"role": "system", "content": system})));
            messages.push(json!({"role": "user", "content": prompt}));
            Source::Chat(Box::new(conversation(messages, extra)))
        }
    };
    let offered = templated.then(Offered::default);
    let asks = !prompt.is_empty() || matches!(source, Source::Gap(..));
    respond(request, asks.then_some(source), (Kind::Response, offered)).await
}

/// # Errors
/// Requests that cannot be served.
pub async fn chat(asked: Asked) -> Result<Response<Body>, Failure> {
    let mut opened = open(asked).await?;
    let messages = opened.fields.list("messages", usize::MAX)?;
    if opened.unloads(messages.as_ref().is_none_or(Vec::is_empty)) {
        return Ok(unloaded(&opened.entry.name, Kind::Message));
    }
    let mut request = opened.lease().await?;
    let fields = &mut request.fields;
    let offered = Offered::listed(fields)?;
    let extra = shared(fields)?;
    let source = match messages {
        None => None,
        Some(list) if list.is_empty() => None,
        Some(list) => {
            let list = list.into_iter().enumerate().map(|(index, message)| renamed(message, index));
            let list = list.collect::<Result<Value, Failure>>()?;
            let mut fields = Fields::new(Map::from_iter([("messages".to_owned(), list)]));
            let messages = messages::take(&mut fields, Dialect::Ollama)?;
            Some(Source::Chat(Box::new(Render { tools: offered.tools(), ..conversation(messages, extra) })))
        }
    };
    respond(request, source, (Kind::Message, Some(offered))).await
}

/// The model was asked to leave, and nothing else.
fn unloaded(model: &str, kind: Kind) -> Response<Body> {
    let lines = Lines { model: model.to_owned(), kind, end: None, answers: Answers::plain() };
    reply::json(StatusCode::OK, &lines.line(&Whole::default(), Some("unload")))
}

/// A message as the other dialects have it: images may be an empty list, and some fields have other names.
fn renamed(message: Value, index: usize) -> Result<Value, Failure> {
    let Value::Object(mut map) = message else { return Ok(message) };
    for (theirs, ours) in [("thinking", "reasoning_content"), ("tool_name", "name")] {
        if let Some(value) = map.shift_remove(theirs) {
            map.entry(ours).or_insert(value);
        }
    }
    let images = map.shift_remove("images");
    if images.as_ref().and_then(Value::as_array).is_some_and(|images| !images.is_empty()) {
        let place = format!("messages[{index}].images");
        return Err(Failure::field(&place, format!("{place}: images are not supported")));
    }
    Ok(Value::Object(map))
}

fn conversation(messages: Vec<Value>, extra: Map<String, Value>) -> Render {
    Render { messages: Value::Array(messages), add_generation_prompt: true, extra, ..Render::default() }
}

/// What both kinds of request have: what is refused, and variables for the template.
fn shared(fields: &mut Fields) -> Result<Map<String, Value>, Failure> {
    if fields.list("images", usize::MAX)?.is_some_and(|images| !images.is_empty()) {
        return Err(Failure::field("images", "images are not supported"));
    }
    let mut extra = Map::new();
    match fields.take("think") {
        None => {}
        Some(Value::Bool(think)) => drop(extra.insert("enable_thinking".into(), json!(think))),
        Some(Value::String(effort)) if ["low", "medium", "high"].contains(&effort.as_str()) => {
            extra.insert("enable_thinking".into(), json!(true));
            extra.insert("reasoning_effort".into(), json!(effort));
        }
        Some(other) => return Err(wrong("think", "true, false, low, medium or high", &other)),
    }
    Ok(extra)
}

/// `offered`: what can be called, of an answer that has parts.
async fn respond(
    mut request: Addressed,
    source: Option<Source>,
    (kind, offered): (Kind, Option<Offered>),
) -> Result<Response<Body>, Failure> {
    let mut given = options(&mut request)?;
    let wanted = request.fields.take("format").map(constraint::of_format).transpose()?.flatten();
    given.extend(wanted.as_ref().map(Wanted::given).transpose()?);
    let stream = request.fields.flag("stream")?.unwrap_or(true);
    request.end()?;
    let Addressed { model, record, .. } = request;
    let facts = model.facts()?;
    let forced = offered.as_ref().and_then(|own| Forced::new(facts.form.as_ref(), own, &facts.tokenizer));
    let answers = offered.map_or_else(Answers::plain, |offered| Answers::new(facts, &offered, true));
    given.extend(answers.given(facts));
    if let Some(Source::Gap(..)) = &source {
        params::fill_gap(&mut given, &facts.tokenizer)?;
    }
    let mut lines = Lines { model: model.name.clone(), kind, end: None, answers };
    // Nothing to answer: it is asked whether the model is there.
    let Some(source) = source else {
        return Ok(reply::json(StatusCode::OK, &lines.line(&Whole::default(), Some("load"))));
    };
    let constrained = wanted.map(|wanted| wanted.place);
    let sources = vec![source];
    let asker = record.asker(None, 0);
    let ask = Generate { sources, writing: None, given, stream, constrained, forced, enough: None, asker };
    let from = model.generate(ask)?;
    if stream {
        return sse::respond(from, lines, record, model).await;
    }
    let outputs = sse::collect(from, &record, &model).await?;
    let (taken, output) = outputs.first().ok_or_else(|| Failure::fault("an answer without a prompt"))?;
    lines.answers.begin(std::slice::from_ref(taken));
    let first = output.choices.first();
    let ended = first.map_or("stop", |choice| reason(&choice.finish));
    let whole = lines.answers.whole(0, first.map_or("", |choice| choice.text.as_str()));
    let mut line = lines.line(&whole, Some(ended));
    add_figures(&mut line, output);
    Ok(reply::json(StatusCode::OK, &line))
}

/// The answer line by line.
struct Lines {
    model: String,
    kind: Kind,
    end: Option<Finish>,
    answers: Answers,
}

impl Lines {
    fn line(&self, said: &Whole, done: Option<&str>) -> Value {
        let mut line = json!({"model": self.model, "created_at": now()});
        let thinking = (!said.reasoning.is_empty()).then(|| json!(said.reasoning));
        match self.kind {
            Kind::Response => {
                line["response"] = json!(said.content);
                if let Some(thinking) = thinking {
                    line["thinking"] = thinking;
                }
            }
            Kind::Message => {
                let mut message = json!({"role": "assistant", "content": said.content});
                if let Some(thinking) = thinking {
                    message["thinking"] = thinking;
                }
                if !said.calls.is_empty() {
                    let call = |call: &Call| json!({"function": {"name": call.name, "arguments": object(call)}});
                    message["tool_calls"] = said.calls.iter().map(call).collect();
                }
                line["message"] = message;
            }
        }
        line["done"] = json!(done.is_some());
        if let Some(reason) = done {
            line["done_reason"] = json!(reason);
        }
        line
    }

    /// A line for each part.
    fn lines(&self, parts: Vec<Part>) -> String {
        let line = |part| {
            let mut said = Whole::default();
            match part {
                Part::Reasoning(text) => said.reasoning = text,
                Part::Content(text) => said.content = text,
                Part::Call(call) => said.calls.push(call),
            }
            format!("{}\n", self.line(&said, None))
        };
        parts.into_iter().map(line).collect()
    }
}

/// Counts and times, in nanoseconds.
fn add_figures(line: &mut Value, output: &Output) {
    let (usage, timings) = (&output.usage, &output.timings);
    line["total_duration"] = json!(nanoseconds(timings.prompt_seconds + timings.generation_seconds));
    line["load_duration"] = json!(0);
    line["prompt_eval_count"] = json!(usage.prompt_tokens);
    line["prompt_eval_duration"] = json!(nanoseconds(timings.prompt_seconds));
    line["eval_count"] = json!(usage.completion_tokens);
    line["eval_duration"] = json!(nanoseconds(timings.generation_seconds));
}

impl sse::Format for Lines {
    fn begin(&mut self, taken: &[Taken]) -> String {
        self.answers.begin(taken);
        String::new()
    }

    fn token(&mut self, piece: &Piece) -> String {
        let parts = self.answers.push(0, &piece.text);
        self.lines(parts)
    }

    fn finished(&mut self, _: (usize, usize), text: &str, finish: &Finish) -> String {
        self.end = Some(finish.clone());
        let parts = self.answers.finish(0, text);
        self.lines(parts)
    }

    fn done(&mut self, _: usize, output: &Output) -> String {
        let mut line = self.line(&Whole::default(), Some(self.end.as_ref().map_or("stop", reason)));
        add_figures(&mut line, output);
        format!("{line}\n")
    }

    fn end(&mut self) -> String {
        String::new()
    }

    fn failed(&mut self, failure: &Failure) -> String {
        format!("{}\n", Shape::Ollama.body(failure))
    }

    fn kind(&self) -> &'static str {
        "application/x-ndjson"
    }
}
