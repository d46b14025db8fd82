//! The server's own routes: what a model can be asked beside writing on, one file a task, as the command line has them.
//!
//! Each takes `model`, `input` (a text or a list of texts) and the task's own fields, and answers
//! `{"object": "list", "model", "data": [...], "usage"}` with an entry for each input, in their order.

pub mod answer;
pub mod classify;
pub mod fill;
pub mod rerank;
pub mod tag;
pub mod write;
pub mod zero_shot;

use crate::failure::Failure;
use crate::fields::{Fields, wrong};
use crate::front::record::Record;
use crate::front::reply;
use crate::front::routes::{Addressed, Asked};
use crate::host::Model;
use crate::limits::Limits;
use attend_engine::tasks::Labelled;
use axum::body::Body;
use axum::http::{Response, StatusCode};
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A request for one of these tasks, on its way apart.
struct Request {
    model: Arc<Model>,
    record: Arc<Record>,
    limits: Limits,
    fields: Fields,
    truncate: bool,
}

impl Request {
    async fn read(asked: Asked) -> Result<Request, Failure> {
        let Addressed { model, record, limits, mut fields } = asked.of_model().await?;
        let truncate = fields.flag("truncate")?.unwrap_or(false);
        fields.ignore(&["user"]);
        Ok(Request { model, record, limits, fields, truncate })
    }

    /// `input`: a text, or a list of texts.
    fn texts(&mut self) -> Result<Vec<String>, Failure> {
        let texts = self.fields.texts("input", self.limits.inputs)?.ok_or_else(|| self.fields.missing("input"))?;
        if texts.is_empty() {
            return Err(Failure::field("input", "input is an empty list"));
        }
        texts.iter().enumerate().try_for_each(|(index, text)| not_empty(text, index))?;
        Ok(texts)
    }

    fn end(&mut self) -> Result<(), Failure> {
        std::mem::take(&mut self.fields).end()
    }

    /// How many of the best are wanted.
    fn top(&mut self, usual: usize) -> Result<usize, Failure> {
        Ok(self.fields.count("top", 1, MOST)?.unwrap_or(usual))
    }

    /// The whole response; `tokens` were read.
    fn respond<T: Serialize>(&self, data: Vec<T>, tokens: usize) -> Result<Response<Body>, Failure> {
        self.record.prompt_tokens.store(tokens, Ordering::Relaxed);
        let usage = Read { prompt_tokens: tokens, total_tokens: tokens };
        written(&List { object: "list", model: &self.model.name, data, usage })
    }
}

/// What is asked about nothing has no answer.
fn not_empty(text: &str, index: usize) -> Result<(), Failure> {
    if text.is_empty() { Err(Failure::field("input", format!("input {} is empty", index + 1))) } else { Ok(()) }
}

/// The most labels, fillings or answers of an input.
const MOST: usize = 1000;

#[derive(Serialize)]
struct List<'a, T> {
    object: &'static str,
    model: &'a str,
    data: Vec<T>,
    usage: Read,
}

#[derive(Serialize)]
struct Read {
    prompt_tokens: usize,
    total_tokens: usize,
}

/// A response whose numbers are the shortest that read back the same.
pub fn written(body: &impl Serialize) -> Result<Response<Body>, Failure> {
    let body = serde_json::to_string(body).map_err(|error| Failure::fault(error.to_string()))?;
    Ok(reply::typed(StatusCode::OK, "application/json", body))
}

/// The labels of one input.
#[derive(Serialize)]
struct LabelsOf {
    index: usize,
    labels: Vec<Labelled>,
    #[serde(skip_serializing_if = "is_whole")]
    truncated: bool,
}

/// An entry that was computed of a text which was too long.
fn is_whole(cut: &bool) -> bool {
    !cut
}

/// The text of a list's item, which is one, or an object with one under a name.
///
/// # Errors
/// Anything else.
pub fn text_of(value: Value, name: &str, place: &str) -> Result<String, Failure> {
    match value {
        Value::String(text) => Ok(text),
        Value::Object(_) => Fields::within(value, place)?.required_text(name),
        other => Err(wrong(place, "a string, or an object with one", &other)),
    }
}
