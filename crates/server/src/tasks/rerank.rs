//! `/v1/rerank`: which documents answer a query, in the words of Cohere and Jina.

use super::{Request, text_of, written};
use crate::failure::Failure;
use crate::front::routes::Asked;
use crate::host::Model;
use attend_engine::tasks::rerank::Ranked;
use axum::body::Body;
use axum::http::Response;
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::atomic::Ordering;

#[derive(Serialize)]
struct Results<'a> {
    id: String,
    model: &'a str,
    results: Vec<Entry>,
    usage: Value,
    meta: Value,
}

#[derive(Serialize)]
struct Entry {
    index: usize,
    relevance_score: f32,
    #[serde(skip_serializing_if = "Option::is_none")]
    document: Option<Value>,
    #[serde(skip_serializing_if = "super::is_whole")]
    truncated: bool,
}

/// # Errors
/// Requests and inputs that cannot be served.
pub async fn respond(asked: Asked) -> Result<Response<Body>, Failure> {
    let mut request = Request::read(asked).await?;
    let query = request.fields.required_text("query")?;
    let most = request.limits.documents;
    let documents = request.fields.list("documents", most)?.ok_or_else(|| request.fields.missing("documents"))?;
    let text = |(index, value)| text_of(value, "text", &format!("documents[{index}]"));
    let documents = documents.into_iter().enumerate().map(text).collect::<Result<Vec<String>, Failure>>()?;
    let top = request.fields.count("top_n", 1, usize::MAX)?.unwrap_or(usize::MAX);
    let shown = request.fields.flag("return_documents")?.unwrap_or(false);
    let raw = request.fields.flag("raw_scores")?.unwrap_or(false);
    request.end()?;
    let texts = if shown { documents.clone() } else { Vec::new() };
    let (ranked, tokens) = rank(&request.model, (query, documents), raw, request.truncate).await?;
    request.record.prompt_tokens.store(tokens, Ordering::Relaxed);
    let entry = |Ranked { index, score, cut }: Ranked| Entry {
        index,
        relevance_score: score,
        document: texts.get(index).map(|text| json!({"text": text})),
        truncated: cut,
    };
    written(&Results {
        id: request.record.id.clone(),
        model: &request.model.name,
        results: ranked.into_iter().take(top).map(entry).collect(),
        usage: json!({"prompt_tokens": tokens, "total_tokens": tokens}),
        meta: json!({"api_version": {"version": "2"}, "billed_units": {"search_units": 1}}),
    })
}

/// The documents, the best first, and the tokens that were read.
///
/// # Errors
/// A model that cannot rank, and texts that cannot be read.
pub async fn rank(
    model: &Model,
    (query, documents): (String, Vec<String>),
    raw: bool,
    truncate: bool,
) -> Result<(Vec<Ranked>, usize), Failure> {
    if query.is_empty() {
        return Err(Failure::field("query", "the query is empty"));
    }
    if documents.is_empty() {
        return Err(Failure::field("documents", "there are no documents to rank"));
    }
    let work = model.task(move |tools| {
        let ranker = tools.reranker(raw, truncate)?;
        let documents: Vec<&str> = documents.iter().map(String::as_str).collect();
        let encodings = ranker.encode(&query, &documents)?;
        let tokens = encodings.tokens();
        Ok(Box::new(move |watch| Ok((ranker.ranked(&encodings, watch)?, tokens))))
    });
    work.await
}
