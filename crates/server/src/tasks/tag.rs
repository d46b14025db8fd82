//! `/v1/tag`: the labels of a text's parts, with their places in characters.

use super::{Request, is_whole};
use crate::failure::Failure;
use crate::front::routes::Asked;
use attend_engine::tasks::Task;
use attend_engine::tasks::tag::{Aggregation, Entity, Tagger, Tags};
use axum::body::Body;
use axum::http::Response;
use serde::Serialize;

#[derive(Serialize)]
struct Entry {
    index: usize,
    entities: Vec<Entity>,
    #[serde(skip_serializing_if = "is_whole")]
    truncated: bool,
}

/// # Errors
/// Requests and inputs that cannot be served.
pub async fn respond(asked: Asked) -> Result<Response<Body>, Failure> {
    let mut request = Request::read(asked).await?;
    let texts = request.texts()?;
    let aggregation = match request.fields.text("aggregation")?.as_deref() {
        Some("none") => Aggregation::None,
        None | Some("simple") => Aggregation::Simple,
        Some("first") => Aggregation::First,
        Some("average") => Aggregation::Average,
        Some("max") => Aggregation::Max,
        Some(_) => return Err(Failure::field("aggregation", "aggregation is none, simple, first, average or max")),
    };
    let ignore = request.fields.texts("ignore_labels", super::MOST)?.unwrap_or_else(|| vec!["O".into()]);
    request.end()?;
    let truncate = request.truncate;
    let work = request.model.task(move |tools| {
        let tagger = Tagger::new(tools.reader(Task::Tag, truncate)?)?;
        let items = tagger.encode(&texts.iter().map(String::as_str).collect::<Vec<&str>>())?;
        Ok(Box::new(move |watch| {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            Ok(tagger.tags(&texts, &items, (aggregation, &ignore), watch)?)
        }))
    });
    let found: Vec<Tags> = work.await?;
    let tokens = found.iter().map(|found| found.tokens).sum();
    let entry = |(index, found): (usize, Tags)| Entry { index, entities: found.entities, truncated: found.cut };
    request.respond(found.into_iter().enumerate().map(entry).collect(), tokens)
}
