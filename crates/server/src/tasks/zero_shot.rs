//! `/v1/zero-shot`: labels of one's own, judged by a model of entailment.

use super::{LabelsOf, Request};
use crate::failure::Failure;
use crate::front::routes::Asked;
use attend_engine::tasks::Task;
use attend_engine::tasks::zero_shot::{Candidates, Judged, TEMPLATE, ZeroShot};
use axum::body::Body;
use axum::http::Response;

/// The most labels: each is read with each text.
const MOST: usize = 100;

/// # Errors
/// Requests and inputs that cannot be served.
pub async fn respond(asked: Asked) -> Result<Response<Body>, Failure> {
    let mut request = Request::read(asked).await?;
    let texts = request.texts()?;
    let labels = request.fields.texts("labels", MOST)?.ok_or_else(|| request.fields.missing("labels"))?;
    let template = request.fields.text("hypothesis_template")?.unwrap_or_else(|| TEMPLATE.into());
    let multi = request.fields.flag("multi_label")?.unwrap_or(false);
    request.end()?;
    let truncate = request.truncate;
    let work = request.model.task(move |tools| {
        let judge = ZeroShot::new(tools.reader(Task::ZeroShot, truncate)?)?;
        let items = judge.encode(&candidates(&texts, &labels), &template)?;
        let tokens: usize = items.iter().map(|item| item.encoding.len()).sum();
        Ok(Box::new(move |watch| Ok((judge.judged(&candidates(&texts, &labels), &items, multi, watch)?, tokens))))
    });
    let (found, tokens): (Vec<Judged>, usize) = work.await?;
    let entry = |(index, found): (usize, Judged)| LabelsOf { index, labels: found.labels, truncated: found.cut };
    request.respond(found.into_iter().enumerate().map(entry).collect(), tokens)
}

fn candidates<'t>(texts: &'t [String], labels: &'t [String]) -> Vec<Candidates<'t>> {
    texts.iter().map(|text| Candidates { text, labels }).collect()
}
