//! `/v1/answer`: answers to questions, as parts of a context.

use super::Request;
use crate::failure::Failure;
use crate::fields::Fields;
use crate::front::routes::Asked;
use attend_engine::tasks::Task;
use attend_engine::tasks::answer::{Answer, AnswerOptions, Answerer, Question};
use axum::body::Body;
use axum::http::Response;
use serde::Serialize;

/// The most answers to a question, and tokens of one.
const MOST: (usize, usize) = (100, 512);

#[derive(Serialize)]
struct Entry {
    index: usize,
    answers: Vec<Answer>,
}

/// # Errors
/// Requests and inputs that cannot be served.
pub async fn respond(asked: Asked) -> Result<Response<Body>, Failure> {
    let mut request = Request::read(asked).await?;
    let questions = questions(&mut request)?;
    let usual = AnswerOptions::default();
    let fields = &mut request.fields;
    let options = AnswerOptions {
        top: fields.count("top", 1, MOST.0)?.unwrap_or(usual.top),
        max_answer: fields.count("max_answer_length", 1, MOST.1)?.unwrap_or(usual.max_answer),
        max_length: fields.count("max_length", 1, usize::MAX)?,
        stride: fields.count("doc_stride", 0, usize::MAX)?,
        no_answer: fields.flag("no_answer")?.unwrap_or(usual.no_answer),
        whole_words: !fields.flag("inside_words")?.unwrap_or(!usual.whole_words),
    };
    request.end()?;
    let work = request.model.task(move |tools| {
        let answerer = Answerer::new(tools.reader(Task::Answer, false)?, options)?;
        let parts = answerer.encode(&borrowed(&questions))?;
        let tokens: usize = parts.iter().map(|(_, part)| part.encoding.len()).sum();
        Ok(Box::new(move |watch| Ok((answerer.answers(&borrowed(&questions), &parts, watch)?, tokens))))
    });
    let (found, tokens): (Vec<Vec<Answer>>, usize) = work.await?;
    let entry = |(index, answers)| Entry { index, answers };
    request.respond(found.into_iter().enumerate().map(entry).collect(), tokens)
}

fn borrowed(questions: &[(String, String)]) -> Vec<Question<'_>> {
    questions.iter().map(|(question, context)| Question { question, context }).collect()
}

/// `question` and `context`, or a list of such in `input`.
fn questions(request: &mut Request) -> Result<Vec<(String, String)>, Failure> {
    let Some(list) = request.fields.list("input", request.limits.inputs)? else {
        return Ok(vec![(request.fields.required_text("question")?, request.fields.required_text("context")?)]);
    };
    if list.is_empty() {
        return Err(Failure::field("input", "input is an empty list"));
    }
    let shared = request.fields.text("context")?;
    let one = |(index, value)| {
        let mut fields = Fields::within(value, &format!("input[{index}]"))?;
        let question = fields.required_text("question")?;
        let own = fields.text("context")?;
        let context = own.or_else(|| shared.clone()).ok_or_else(|| fields.missing("context"))?;
        fields.end()?;
        Ok((question, context))
    };
    list.into_iter().enumerate().map(one).collect()
}
