//! What a model writes, taken apart: what it thought, what it says, and which functions it calls.
//!
//! A chat template tells a model how to mark its thoughts and calls; a [`Form`] is what a template and a vocabulary say
//! about that. An [`AnswerReader`] takes an answer piece by piece, however it is cut, and gives [`Part`]s. It holds back
//! only what may yet become a mark, and a call until it is whole: half a call that was closed would be a command that
//! nobody gave. What turns out to be no call is text.

mod call;
mod form;
mod functions;
mod harmony;
mod json;
mod program;
mod reader;

pub(crate) use form::mentions;
pub use form::{Form, Written};
pub use functions::Functions;
pub use reader::AnswerReader;

/// A call of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub name: String,
    /// A JSON object, as the model wrote it.
    pub arguments: String,
}

/// A part of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    Reasoning(String),
    Content(String),
    Call(Call),
}
