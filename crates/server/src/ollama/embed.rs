//! `/api/embed`, and `/api/embeddings` as older clients know it.

use super::{nanoseconds, open, options};
use crate::failure::Failure;
use crate::front::routes::Addressed;
use crate::front::routes::Asked;
use crate::host::ask::{Embed, Input};
use crate::tasks::written;
use attend_engine::tasks::embed::Embedding;
use axum::body::Body;
use axum::http::Response;
use serde::Serialize;
use std::sync::atomic::Ordering;
use std::time::Instant;

#[derive(Serialize)]
struct Vectors<'a> {
    model: &'a str,
    embeddings: Vec<&'a [f32]>,
    total_duration: u64,
    load_duration: u64,
    prompt_eval_count: usize,
    /// The inputs that were cut, by their places.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    truncated: Vec<usize>,
}

#[derive(Serialize)]
struct Vector<'a> {
    embedding: &'a [f32],
}

/// # Errors
/// Requests and inputs that cannot be served.
pub async fn embed(asked: Asked) -> Result<Response<Body>, Failure> {
    let begun = Instant::now();
    let mut request = open(asked).await?.lease().await?;
    let most = request.limits.inputs;
    let texts = request.fields.texts("input", most)?.ok_or_else(|| request.fields.missing("input"))?;
    if texts.is_empty() {
        return Err(Failure::field("input", "input is an empty list"));
    }
    let truncate = request.fields.flag("truncate")?.unwrap_or(true);
    let dimensions = request.fields.count("dimensions", 1, usize::MAX)?;
    let found = vectors(&mut request, texts, (truncate, dimensions)).await?;
    let truncated = found.iter().enumerate().filter(|(_, found)| found.cut).map(|(index, _)| index);
    written(&Vectors {
        model: &request.model.name,
        embeddings: found.iter().map(|found| found.values.as_slice()).collect(),
        total_duration: nanoseconds(begun.elapsed().as_secs_f64()),
        load_duration: 0,
        prompt_eval_count: found.iter().map(|found| found.tokens).sum(),
        truncated: truncated.collect(),
    })
}

/// # Errors
/// Requests and inputs that cannot be served.
pub async fn embeddings(asked: Asked) -> Result<Response<Body>, Failure> {
    let mut request = open(asked).await?.lease().await?;
    let text = request.fields.required_text("prompt")?;
    let found = vectors(&mut request, vec![text], (false, None)).await?;
    written(&Vector { embedding: found.first().map_or(&[], |found| found.values.as_slice()) })
}

/// Vectors of length 1, as this dialect has them.
async fn vectors(
    request: &mut Addressed,
    texts: Vec<String>,
    (truncate, dimensions): (bool, Option<usize>),
) -> Result<Vec<Embedding>, Failure> {
    options(request)?;
    request.end()?;
    let inputs = texts.into_iter().map(Input::Text).collect();
    let embed = Embed { truncate, dimensions, normalize: Some(true), ..Embed::new(inputs) };
    let found = request.model.embed(embed).await?;
    request.record.prompt_tokens.store(found.iter().map(|found| found.tokens).sum(), Ordering::Relaxed);
    Ok(found)
}
