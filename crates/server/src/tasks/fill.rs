//! `/v1/fill`: the likeliest tokens for each gap of a text.

use super::{Request, is_whole};
use crate::failure::Failure;
use crate::front::routes::Asked;
use attend_engine::tasks::Task;
use attend_engine::tasks::fill::{Filled, Filler, Filling};
use axum::body::Body;
use axum::http::Response;
use serde::Serialize;

/// Fillings of a gap where the request does not say.
const USUAL: usize = 5;

#[derive(Serialize)]
struct Entry {
    index: usize,
    /// A list for each gap.
    masks: Vec<Vec<Filling>>,
    #[serde(skip_serializing_if = "is_whole")]
    truncated: bool,
}

/// # Errors
/// Requests and inputs that cannot be served.
pub async fn respond(asked: Asked) -> Result<Response<Body>, Failure> {
    let mut request = Request::read(asked).await?;
    let texts = request.texts()?;
    let top = request.top(USUAL)?;
    request.end()?;
    let truncate = request.truncate;
    let work = request.model.task(move |tools| {
        let filler = Filler::new(tools.reader(Task::Fill, truncate)?)?;
        let items = filler.encode(&texts.iter().map(String::as_str).collect::<Vec<&str>>())?;
        Ok(Box::new(move |watch| Ok(filler.fillings(&items, top, watch)?)))
    });
    let found: Vec<Filled> = work.await?;
    let tokens = found.iter().map(|found| found.tokens).sum();
    let entry = |(index, found): (usize, Filled)| Entry { index, masks: found.masks, truncated: found.cut };
    request.respond(found.into_iter().enumerate().map(entry).collect(), tokens)
}
