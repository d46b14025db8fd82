//! Answers as streams of server-sent events.

use super::record::Record;
use crate::failure::Failure;
use crate::host::Model;
use crate::host::ask::{Piece, Said, Taken};
use attend_engine::{Finish, Output};
use axum::body::Body;
use axum::http::{Response, StatusCode};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::mpsc::UnboundedReceiver;

/// How a dialect writes what is said. Each function returns the bytes to send, whole events.
pub trait Format: Send + 'static {
    /// Before anything is generated.
    fn begin(&mut self, taken: &[Taken]) -> String;
    fn token(&mut self, piece: &Piece) -> String;
    /// The end of a choice, with the text that had been held back.
    fn finished(&mut self, place: (usize, usize), text: &str, finish: &Finish) -> String;
    /// A prompt has all of its answers.
    fn done(&mut self, prompt: usize, output: &Output) -> String;
    /// All prompts have.
    fn end(&mut self) -> String;
    fn failed(&mut self, failure: &Failure) -> String;
    /// The media type.
    fn kind(&self) -> &'static str {
        "text/event-stream"
    }
}

/// Bytes that are sent at once, where more is there than one event.
const ENOUGH: usize = 32 << 10;

struct Flow<F> {
    from: UnboundedReceiver<Said>,
    format: F,
    record: Arc<Record>,
    model: Arc<Model>,
    /// Prompts without all of their answers.
    left: usize,
    /// Of every choice, the bytes of its text that were sent, and whether its end was.
    sent: BTreeMap<(usize, usize), (usize, bool)>,
    ended: bool,
}

/// The response to a request for a stream, once it is known to be in order.
///
/// # Errors
/// A request that is not.
pub async fn respond(
    mut from: UnboundedReceiver<Said>,
    mut format: impl Format,
    record: Arc<Record>,
    model: Arc<Model>,
) -> Result<Response<Body>, Failure> {
    let taken = match from.recv().await {
        Some(Said::Accepted(taken)) => taken,
        Some(Said::Failed(failure)) => return Err(failure),
        Some(Said::Token(_) | Said::Finished { .. } | Said::Done { .. }) | None => return Err(model.silence()),
    };
    let first = format.begin(&taken);
    let kind = format.kind();
    let flow = Flow { from, format, record, model, left: taken.len(), sent: BTreeMap::new(), ended: false };
    let stream = futures_util::stream::unfold((flow, Some(first)), |(mut flow, first)| async move {
        let bytes = match first {
            Some(first) if !first.is_empty() => first,
            Some(_) | None => flow.next().await?,
        };
        Some((Ok::<_, Infallible>(bytes), (flow, None)))
    });
    Ok(super::reply::typed(StatusCode::OK, kind, Body::from_stream(stream)))
}

impl<F: Format> Flow<F> {
    /// The next bytes; None at the end.
    async fn next(&mut self) -> Option<String> {
        let mut bytes = String::new();
        while bytes.is_empty() {
            if self.ended {
                return None;
            }
            match self.from.recv().await {
                Some(said) => self.take(said, &mut bytes),
                None => self.fail(&self.model.silence(), &mut bytes),
            }
        }
        while bytes.len() < ENOUGH && !self.ended {
            let Ok(said) = self.from.try_recv() else { break };
            self.take(said, &mut bytes);
        }
        Some(bytes)
    }

    fn take(&mut self, said: Said, bytes: &mut String) {
        match said {
            Said::Accepted(_) => {}
            Said::Token(piece) => {
                self.sent.entry((piece.prompt, piece.choice)).or_default().0 += piece.text.len();
                bytes.push_str(&self.format.token(&piece));
            }
            Said::Finished { prompt, choice, text, finish } => {
                let sent = self.sent.entry((prompt, choice)).or_default();
                *sent = (sent.0 + text.len(), true);
                bytes.push_str(&self.format.finished((prompt, choice), &text, &finish));
            }
            Said::Done { prompt, output } => {
                // A choice that was cut had no end of its own.
                for choice in &output.choices {
                    let (sent, finished) = self.sent.remove(&(prompt, choice.index)).unwrap_or_default();
                    if !finished {
                        let rest = choice.text.get(sent..).unwrap_or_default();
                        bytes.push_str(&self.format.finished((prompt, choice.index), rest, &choice.finish));
                    }
                }
                self.record.prompt_tokens.fetch_add(output.usage.prompt_tokens, Ordering::Relaxed);
                self.record.answer_tokens.fetch_add(output.usage.completion_tokens, Ordering::Relaxed);
                bytes.push_str(&self.format.done(prompt, &output));
                self.left = self.left.saturating_sub(1);
                if self.left == 0 {
                    bytes.push_str(&self.format.end());
                    self.ended = true;
                }
            }
            Said::Failed(failure) => self.fail(&failure, bytes),
        }
    }

    fn fail(&mut self, failure: &Failure, bytes: &mut String) {
        if let Some(detail) = &failure.detail {
            self.record.detail(detail.clone());
        }
        bytes.push_str(&self.format.failed(failure));
        self.ended = true;
    }
}

/// All answers, for clients that want them whole, in the order of the prompts, each with what was taken of its prompt.
///
/// # Errors
/// Whatever keeps one of them from being made.
pub async fn collect(
    from: UnboundedReceiver<Said>,
    record: &Record,
    model: &Model,
) -> Result<Vec<(Taken, Output)>, Failure> {
    watch(from, record, model, |_| {}).await
}

/// The same with an eye on what is said on the way.
///
/// # Errors
/// As [`collect`].
pub async fn watch(
    mut from: UnboundedReceiver<Said>,
    record: &Record,
    model: &Model,
    mut on: impl FnMut(&Said),
) -> Result<Vec<(Taken, Output)>, Failure> {
    let mut outputs: BTreeMap<usize, Output> = BTreeMap::new();
    let mut taken: Option<Vec<Taken>> = None;
    while taken.as_ref().is_none_or(|taken| outputs.len() < taken.len()) {
        let said = from.recv().await;
        said.iter().for_each(&mut on);
        match said {
            Some(Said::Accepted(all)) => taken = Some(all),
            Some(Said::Done { prompt, output }) => {
                record.prompt_tokens.fetch_add(output.usage.prompt_tokens, Ordering::Relaxed);
                record.answer_tokens.fetch_add(output.usage.completion_tokens, Ordering::Relaxed);
                outputs.insert(prompt, *output);
            }
            Some(Said::Failed(failure)) => return Err(failure),
            Some(Said::Token(_) | Said::Finished { .. }) => {}
            None => return Err(model.silence()),
        }
    }
    Ok(taken.into_iter().flatten().zip(outputs.into_values()).collect())
}
