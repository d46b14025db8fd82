//! `/v1/classify`: the labels of each text, or of each pair of texts.

use super::{LabelsOf, Request};
use crate::failure::Failure;
use crate::fields::Fields;
use crate::front::routes::Asked;
use crate::host::Model;
use attend_engine::tasks::classify::{Classes, Classifier, Function};
use attend_engine::tasks::{Task, Text};
use axum::body::Body;
use axum::http::Response;
use serde_json::Value;

/// A text, and the one that belongs to it.
pub type Pair = (String, Option<String>);

/// # Errors
/// Requests and inputs that cannot be served.
pub async fn respond(asked: Asked) -> Result<Response<Body>, Failure> {
    let mut request = Request::read(asked).await?;
    let pairs = pairs(&mut request)?;
    let top = request.top(super::MOST)?;
    let function = match request.fields.text("function")?.as_deref() {
        None => None,
        Some("softmax") => Some(Function::Softmax),
        Some("sigmoid") => Some(Function::Sigmoid),
        Some("none") => Some(Function::None),
        Some(_) => return Err(Failure::field("function", "function is softmax, sigmoid or none")),
    };
    request.end()?;
    let found = classes(&request.model, pairs, (top, function), request.truncate).await?;
    let tokens = found.iter().map(|found| found.tokens).sum();
    let entry = |(index, found): (usize, Classes)| LabelsOf { index, labels: found.labels, truncated: found.cut };
    request.respond(found.into_iter().enumerate().map(entry).collect(), tokens)
}

/// `input`: a text, or a list of texts and of objects with `text` and `text_pair`.
fn pairs(request: &mut Request) -> Result<Vec<Pair>, Failure> {
    let list = match request.fields.take("input") {
        None => return Err(request.fields.missing("input")),
        Some(Value::Array(list)) => list,
        Some(one) => vec![one],
    };
    if list.is_empty() || list.len() > request.limits.inputs {
        let message = format!("input has {} items; 1 to {} are taken", list.len(), request.limits.inputs);
        return Err(Failure::field("input", message));
    }
    let pair = |(index, value): (usize, Value)| {
        let pair = match value {
            Value::String(text) => (text, None),
            other => {
                let mut fields = Fields::within(other, &format!("input[{index}]"))?;
                let pair = (fields.required_text("text")?, fields.text("text_pair")?);
                fields.end()?;
                pair
            }
        };
        super::not_empty(&pair.0, index)?;
        Ok(pair)
    };
    list.into_iter().enumerate().map(pair).collect()
}

/// The labels of each.
///
/// # Errors
/// A model without the head, and inputs that cannot be read.
pub async fn classes(
    model: &Model,
    pairs: Vec<Pair>,
    (top, function): (usize, Option<Function>),
    truncate: bool,
) -> Result<Vec<Classes>, Failure> {
    let work = model.task(move |tools| {
        let classifier = Classifier::new(tools.reader(Task::Classify, truncate)?, function)?;
        let texts = pairs.iter().map(|(first, second)| Text { first, second: second.as_deref() });
        let items = classifier.encode(&texts.collect::<Vec<Text<'_>>>())?;
        Ok(Box::new(move |watch| Ok(classifier.classes(&items, top, watch)?)))
    });
    work.await
}
