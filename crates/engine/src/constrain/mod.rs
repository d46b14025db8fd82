//! Constrained output: an answer that is a word of a language which the request names.
//!
//! A [`Constraint`] is plain data. `grammar` writes each kind as a grammar that the parser library reads (llguidance: an
//! Earley parser over a lexer of derivatives), `compile` brings it, within limits, to the tokens of a vocabulary, and every
//! choice of a request follows it with a `Matcher` of its own: which tokens may come next, and whether the answer may end.
//! A matcher knows the tokens that were chosen and nothing else, so that guesses, company and being put back do not show.
//! One that takes long does its work on a thread `beside` the steps.

mod beside;
mod compile;
mod gbnf;
mod grammar;
mod ledger;
mod limits;
mod matcher;
pub(crate) mod walker;
mod whitespace;

pub(crate) use beside::{Beside, Held};
pub use compile::Grammars;
pub use ledger::MAX_BYTES;
pub use limits::{MAX_CHOICES, MAX_DEPTH, MAX_REGEX_BYTES, MAX_TEXT_BYTES};
pub(crate) use matcher::Matcher;
pub use whitespace::json_in_lark;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What an answer must be. With one, a token is chosen among those only that can lead to such an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Constraint {
    /// A JSON value that a schema describes.
    JsonSchema {
        schema: Value,
        /// Keywords that cannot be followed are passed over, and a notice says which; without it they are refused.
        #[serde(default)]
        lenient: bool,
    },
    /// Any JSON object.
    JsonObject,
    /// A text that a regular expression matches as a whole.
    Regex(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// A text of a context-free language, in Lark's notation with the rule `start`.
    Lark(String),
    /// The same in the notation of llama.cpp, with the rule `root`.
    Gbnf(String),
}

impl Constraint {
    /// A schema that is followed in every keyword, or refused.
    pub fn schema(schema: Value) -> Constraint {
        Constraint::JsonSchema { schema, lenient: false }
    }

    /// The grammar of a file: llama.cpp's notation has `::=`, which means nothing in Lark's.
    pub fn grammar(text: impl Into<String>) -> Constraint {
        let text = text.into();
        if text.contains("::=") { Constraint::Gbnf(text) } else { Constraint::Lark(text) }
    }

    /// What it is called in messages.
    pub fn name(&self) -> &'static str {
        match self {
            Constraint::JsonSchema { .. } => "the JSON schema",
            Constraint::JsonObject => "JSON",
            Constraint::Regex(_) => "the regular expression",
            Constraint::Choice(_) => "the list of choices",
            Constraint::Lark(_) => "the grammar",
            Constraint::Gbnf(_) => "the GBNF grammar",
        }
    }
}
