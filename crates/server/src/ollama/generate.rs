//! `/api/generate` and `/api/chat`.

use super::{nanoseconds, now, options, read};
use crate::constraint::{self, Wanted};
use crate::failure::Failure;
use crate::fields::Fields;
use crate::front::reply::Shape;
use crate::front::routes::Addressed;
use crate::front::routes::Asked;
use crate::front::{reply, sse};
use crate::host::ask::{Generate, Piece, Source, Taken};
use crate::openai::{messages, reason};
use attend_engine::{Finish, Output};
use attend_text::Render;
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
    let mut request = read(asked).await?;
    let fields = &mut request.fields;
    let prompt = fields.text("prompt")?.unwrap_or_default();
    let system = fields.text("system")?.filter(|system| !system.is_empty());
    let raw = fields.flag("raw")?.unwrap_or(false);
    for name in ["suffix", "template"] {
        if fields.text(name)?.is_some_and(|text| !text.is_empty()) {
            return Err(Failure::field(name, format!("{name} is not supported")));
        }
    }
    if fields.list("context", usize::MAX)?.is_some_and(|context| !context.is_empty()) {
        return Err(Failure::field("context", "context is not supported: send the conversation to /api/chat"));
    }
    let extra = shared(fields)?;
    let templated = request.model.facts()?.has_template && !raw;
    if system.is_some() && !templated {
        return Err(Failure::field("system", "system needs a chat template"));
    }
    let source = match templated {
        false => Source::Text(prompt.clone()),
        true => {
            let mut messages = Vec::new();
            messages.extend(system.map(|system| json!({"role": "system", "content": system})));
            messages.push(json!({"role": "user", "content": prompt}));
            Source::Chat(Box::new(conversation(messages, extra)))
        }
    };
    respond(request, (!prompt.is_empty()).then_some(source), Kind::Response).await
}

/// # Errors
/// Requests that cannot be served.
pub async fn chat(asked: Asked) -> Result<Response<Body>, Failure> {
    let mut request = read(asked).await?;
    let fields = &mut request.fields;
    if fields.list("tools", 128)?.is_some_and(|tools| !tools.is_empty()) {
        return Err(Failure::field("tools", "tools are not supported"));
    }
    let extra = shared(fields)?;
    let empty = fields.list("messages", usize::MAX)?;
    let source = match empty {
        None => None,
        Some(list) if list.is_empty() => None,
        Some(list) => {
            let list = list.into_iter().enumerate().map(|(index, message)| without_images(message, index));
            let list = list.collect::<Result<Value, Failure>>()?;
            let mut fields = Fields::new(Map::from_iter([("messages".to_owned(), list)]));
            Some(Source::Chat(Box::new(conversation(messages::take(&mut fields)?, extra))))
        }
    };
    respond(request, source, Kind::Message).await
}

/// A message as the other dialects have it: images may be an empty list.
fn without_images(message: Value, index: usize) -> Result<Value, Failure> {
    let Value::Object(mut map) = message else { return Ok(message) };
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
    let think = fields.flag("think")?.map(|think| ("enable_thinking".to_owned(), json!(think)));
    Ok(think.into_iter().collect())
}

async fn respond(mut request: Addressed, source: Option<Source>, kind: Kind) -> Result<Response<Body>, Failure> {
    let mut given = options(&mut request)?;
    let wanted = request.fields.take("format").map(constraint::of_format).transpose()?.flatten();
    given.extend(wanted.as_ref().map(Wanted::given).transpose()?);
    let stream = request.fields.flag("stream")?.unwrap_or(true);
    request.end()?;
    let Addressed { model, record, .. } = request;
    let lines = Lines { model: model.name.clone(), kind, end: None };
    // Nothing to answer: it is asked whether the model is there.
    let Some(source) = source else {
        model.facts()?;
        return Ok(reply::json(StatusCode::OK, &lines.line("", Some("load"))));
    };
    let constrained = wanted.map(|wanted| wanted.place);
    let from = model.generate(Generate { sources: vec![source], writing: None, given, stream, constrained })?;
    if stream {
        return sse::respond(from, lines, record, model).await;
    }
    let outputs = sse::collect(from, &record, &model).await?;
    let (_, output) = outputs.first().ok_or_else(|| Failure::fault("an answer without a prompt"))?;
    let first = output.choices.first();
    let ended = first.map_or("stop", |choice| reason(&choice.finish));
    let mut line = lines.line(first.map_or("", |choice| choice.text.as_str()), Some(ended));
    add_figures(&mut line, output);
    Ok(reply::json(StatusCode::OK, &line))
}

/// The answer line by line.
struct Lines {
    model: String,
    kind: Kind,
    end: Option<Finish>,
}

impl Lines {
    fn line(&self, text: &str, done: Option<&str>) -> Value {
        let mut line = json!({"model": self.model, "created_at": now()});
        match self.kind {
            Kind::Response => line["response"] = json!(text),
            Kind::Message => line["message"] = json!({"role": "assistant", "content": text}),
        }
        line["done"] = json!(done.is_some());
        if let Some(reason) = done {
            line["done_reason"] = json!(reason);
        }
        line
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
    fn begin(&mut self, _: &[Taken]) -> String {
        String::new()
    }

    fn token(&mut self, piece: &Piece) -> String {
        if piece.text.is_empty() { String::new() } else { format!("{}\n", self.line(&piece.text, None)) }
    }

    fn finished(&mut self, _: (usize, usize), text: &str, finish: &Finish) -> String {
        self.end = Some(finish.clone());
        if text.is_empty() { String::new() } else { format!("{}\n", self.line(text, None)) }
    }

    fn done(&mut self, _: usize, output: &Output) -> String {
        let mut line = self.line("", Some(self.end.as_ref().map_or("stop", reason)));
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
