//! `/v1/translate` and `/v1/summarize`: texts that a model makes of texts.

use super::{Request, written};
use crate::failure::Failure;
use crate::front::routes::Asked;
use crate::front::sse;
use crate::host::ask::{Generate, Source, Taken, ToWrite};
use crate::openai::{Usage, params, reason};
use attend_engine::{Output, Writing};
use axum::body::Body;
use axum::http::Response;
use serde_json::{Value, json};

/// # Errors
/// Requests and inputs that cannot be served.
pub async fn translate(asked: Asked) -> Result<Response<Body>, Failure> {
    let mut request = Request::read(asked).await?;
    let (source, target) = (request.fields.text("source_lang")?, request.fields.text("target_lang")?);
    respond(request, Writing::Translate { source, target }).await
}

/// # Errors
/// Requests and inputs that cannot be served.
pub async fn summarize(asked: Asked) -> Result<Response<Body>, Failure> {
    respond(Request::read(asked).await?, Writing::Summarize).await
}

async fn respond(mut request: Request, task: Writing) -> Result<Response<Body>, Failure> {
    let texts = request.texts()?;
    let prefix = request.fields.text("prefix")?;
    let mut params = params::take(&mut request.fields, &request.limits)?;
    if params.stream {
        return Err(Failure::field("stream", "this route does not stream"));
    }
    if let Some(most) = request.fields.count("max_tokens", 1, usize::MAX)? {
        params.set("max_tokens", most);
    }
    let params = params::finish(std::mem::take(&mut request.fields), params, &request.limits)?;
    let sources = texts.into_iter().map(Source::Text).collect();
    let writing = Some(ToWrite { task, prefix, truncate: request.truncate });
    let asker = request.record.asker(params.salt.as_deref(), params.priority);
    let (given, constrained) = (params.given, params.constrained);
    let ask = Generate { sources, writing, given, stream: false, constrained, forced: None, enough: None, asker };
    let from = request.model.generate(ask)?;
    let outputs = sse::collect(from, &request.record, &request.model).await?;
    let mut usage = Usage::default();
    outputs.iter().for_each(|(_, output)| usage.add(output));
    let data: Vec<Value> = outputs.iter().enumerate().map(entry).collect();
    written(&json!({"object": "list", "model": request.model.name, "data": data, "usage": usage.json()}))
}

fn entry((index, (taken, output)): (usize, &(Taken, Output))) -> Value {
    let first = output.choices.first();
    let text = first.map_or("", |choice| choice.text.as_str());
    let mut object = json!({"index": index, "text": text, "finish_reason": first.map(|choice| reason(&choice.finish))});
    if output.choices.len() > 1 {
        let choice = |choice: &attend_engine::Choice| json!({"text": choice.text, "score": choice.score});
        object["choices"] = output.choices.iter().map(choice).collect();
    }
    if let Some(whole) = taken.cut_from {
        // How much was left out, so that nobody takes a part for the whole.
        object["truncated_tokens"] = json!(whole - taken.tokens.min(whole));
    }
    object
}
