//! The one error type of this crate.

use std::path::{Path, PathBuf};

/// What can go wrong while reading a tokenizer or template, or while using one.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}: {source}", file.display())]
    Read { file: PathBuf, source: std::io::Error },

    /// A value of a file that cannot be right. `field` is the path of the value inside the file.
    #[error("{file}: {field}: {problem}")]
    Invalid { file: String, field: String, problem: String },

    /// A part that is well formed but not known to this program.
    #[error("{file}: {field}: unknown {what} `{name}`{hint}")]
    Unknown { file: String, field: String, what: &'static str, name: String, hint: String },

    #[error(
        "{}: no tokenizer found (looked for {})",
        path.display(),
        if path.is_dir() { "tokenizer.json, a SentencePiece model, vocab.txt, vocab.json with merges.txt" } else { "tokenizer.ggml.tokens" }
    )]
    NoTokenizer { path: PathBuf },

    /// A regular expression of a tokenizer file gave up: it needs more backtracking than is allowed.
    #[error("the tokenizer's pattern `{pattern}` gave up on this text: {problem}")]
    Pattern { pattern: String, problem: String },

    /// A language that was asked for.
    #[error("language `{wanted}` {problem}")]
    Language { wanted: String, problem: String },

    /// Any other reason for which a text cannot be encoded.
    #[error("the text cannot be encoded: {problem}")]
    Encode { problem: String },

    /// The template cannot be parsed or fails while running.
    #[error("chat template{}: {problem}", name.as_ref().map(|name| format!(" `{name}`")).unwrap_or_default())]
    Template { name: Option<String>, problem: String },

    /// The template itself refuses the conversation, by `raise_exception`.
    #[error("the chat template refuses this conversation: {message}")]
    Refused { message: String },

    #[error("{}: the model has no chat template; give one explicitly, or send plain text", path.display())]
    NoTemplate { path: PathBuf },

    #[error(transparent)]
    Format(#[from] attend_format::Error),
}

/// A problem in a file whose name is not known yet. [`Fault::at`] adds it.
#[derive(Debug)]
pub(crate) struct Fault {
    pub field: String,
    pub problem: String,
    pub unknown: Option<(&'static str, String)>,
}

impl Fault {
    pub fn new(field: impl Into<String>, problem: impl std::fmt::Display) -> Fault {
        Fault { field: field.into(), problem: problem.to_string(), unknown: None }
    }

    /// A named part that this program does not know; `hint` says what it does know.
    pub fn unknown(field: &str, what: &'static str, name: &str, hint: impl Into<String>) -> Fault {
        Fault { field: field.into(), problem: hint.into(), unknown: Some((what, shorten(name))) }
    }

    pub fn at(self, file: impl AsRef<Path>) -> Error {
        let file = file.as_ref().display().to_string();
        match self.unknown {
            None => Error::Invalid { file, field: self.field, problem: self.problem },
            Some((what, name)) => Error::Unknown {
                file,
                field: self.field,
                what,
                name,
                hint: if self.problem.is_empty() { String::new() } else { format!(" ({})", self.problem) },
            },
        }
    }
}

/// At most 80 characters of a text of unknown origin, for messages.
pub(crate) fn shorten(text: &str) -> String {
    let mut short: String = text.chars().take(80).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(80).is_some() {
        short.push('…');
    }
    short
}

/// The error type of the `tokenizers` crate's callbacks; ours travels inside it and comes out unchanged.
pub(crate) type Boxed = Box<dyn std::error::Error + Send + Sync>;

impl From<Boxed> for Error {
    fn from(boxed: Boxed) -> Error {
        match boxed.downcast::<Error>() {
            Ok(ours) => *ours,
            Err(other) => Error::Encode { problem: other.to_string() },
        }
    }
}
