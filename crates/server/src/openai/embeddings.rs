//! `/v1/embeddings`.

use super::params::{self, Text};
use crate::failure::Failure;
use crate::front::reply;
use crate::front::routes::{Addressed, Asked};
use crate::host::ask::{Embed, Input};
use attend_engine::tasks::embed::{Embedding, Role};
use axum::body::Body;
use axum::http::{self, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::atomic::Ordering;

/// # Errors
/// Requests and inputs that cannot be served.
pub async fn answer(asked: Asked) -> Result<http::Response<Body>, Failure> {
    let Addressed { model, record, limits, mut fields } = asked.of_model().await?;
    let inputs = params::texts(&mut fields, "input", limits.inputs)?;
    let base64 = match fields.text("encoding_format")?.as_deref() {
        None | Some("float") => false,
        Some("base64") => true,
        Some(_) => return Err(Failure::field("encoding_format", "encoding_format is float or base64")),
    };
    let dimensions = fields.count("dimensions", 1, usize::MAX)?;
    let role = match fields.text("input_type")?.as_deref() {
        None => Role::Plain,
        Some("query" | "search_query") => Role::Query,
        Some("document" | "passage" | "search_document") => Role::Document,
        Some(_) => return Err(Failure::field("input_type", "input_type is query or document")),
    };
    let truncate = fields.flag("truncate")?.unwrap_or(false);
    fields.ignore(&["user"]);
    fields.end()?;
    let input = |text| match text {
        Text::Words(text) => Input::Text(text),
        Text::Tokens(ids) => Input::Tokens(ids),
    };
    let inputs = inputs.into_iter().map(input).collect();
    let found = model.embed(Embed { role, dimensions, truncate, ..Embed::new(inputs) }).await?;
    let tokens: usize = found.iter().map(|embedding| embedding.tokens).sum();
    record.prompt_tokens.store(tokens, Ordering::Relaxed);
    let data: Vec<Entry<'_>> = found.iter().enumerate().map(|(index, found)| entry(index, found, base64)).collect();
    let usage = json!({"prompt_tokens": tokens, "total_tokens": tokens});
    let body = Response { object: "list", data, model: &model.name, usage };
    let body = serde_json::to_string(&body).map_err(|error| Failure::fault(error.to_string()))?;
    Ok(reply::typed(StatusCode::OK, "application/json", body))
}

/// The response; numbers are written as the shortest that read back the same.
#[derive(Serialize)]
struct Response<'a> {
    object: &'static str,
    data: Vec<Entry<'a>>,
    model: &'a str,
    usage: Value,
}

#[derive(Serialize)]
struct Entry<'a> {
    object: &'static str,
    index: usize,
    embedding: Vector<'a>,
    /// The text was too long, and was cut.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Vector<'a> {
    Numbers(&'a [f32]),
    Base64(String),
}

fn entry(index: usize, found: &Embedding, base64: bool) -> Entry<'_> {
    let embedding = match base64 {
        true => Vector::Base64(STANDARD.encode(found.values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>())),
        false => Vector::Numbers(&found.values),
    };
    Entry { object: "embedding", index, embedding, truncated: found.cut }
}
