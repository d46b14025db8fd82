//! What can go wrong between a request and its answer.

/// An error of this crate. Each names the parameter or place at fault and what would be right.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A parameter of the request has a value that means nothing.
    #[error("{name} is {value}; {expected}")]
    Parameter { name: String, value: String, expected: String },

    /// A name that is no parameter.
    #[error("there is no parameter {name:?}; the parameters are {known}")]
    UnknownParameter { name: String, known: String },

    #[error(
        "the prompt is empty: there is nothing to continue; give text, or a token such as the beginning-of-text token"
    )]
    EmptyPrompt,

    #[error("{place} has token id {id}, but the vocabulary has ids 0 to {last} only")]
    TokenId { place: &'static str, id: u32, last: usize },

    /// The prompt leaves no room for an answer.
    #[error(
        "{place} has {tokens} tokens, but the context holds {context}{room}; shorten it, or choose a longer context"
    )]
    Context { place: &'static str, tokens: usize, context: usize, room: &'static str },

    #[error("a context of {asked} tokens was asked for, but the model was made for {model}")]
    ContextTooLong { asked: usize, model: usize },

    /// The model computed something that is not a number.
    #[error(
        "non-finite logits at position {position}: {count} of {vocab} values, the first for token {token} ({value}); \
         the weights may be damaged (`attend verify` finds the first place)"
    )]
    NonFinite { position: usize, count: usize, vocab: usize, token: usize, value: f32 },

    /// The request's own rules forbid every token.
    #[error("no token is left to choose at position {position}: the request's constraints forbid all {vocab}")]
    NothingLeft { position: usize, vocab: usize },

    /// A constraint that means nothing, or that is too large or too costly to be followed.
    #[error("{what} cannot be followed: {reason}")]
    Constraint { what: &'static str, reason: String },

    /// A constraint that turned out too costly on the way.
    #[error("the constraint costs too much to follow at position {position}: {reason}")]
    ConstraintCost { position: usize, reason: String },

    /// Constraints of other requests hold the memory that there is for all.
    #[error(
        "the constraint needs {needed} bytes, and those of all requests hold {held} of the {limit} that there are; try \
         again later"
    )]
    ConstraintMemory { needed: u64, held: u64, limit: u64 },

    /// A constraint whose matcher broke down on the way.
    #[error("the constraint could not be followed at position {position}: {reason}")]
    ConstraintFault { position: usize, reason: String },

    #[error(transparent)]
    Model(#[from] attend_nn::Error),

    /// A text of which nothing is left as tokens.
    #[error("the text has no tokens")]
    EmptyInput,

    /// An input of a task that is too long, where cutting was not asked for.
    #[error("the text has {tokens} tokens and the limit is {limit} ({of}); shorten it, or ask for truncation")]
    TooLong { tokens: usize, limit: usize, of: String },

    /// An error about one of a task's inputs, counted from 0.
    #[error("input {}: {source}", index + 1)]
    Input { index: usize, source: Box<Error> },

    #[error("the model computed something that is not a finite number; its weights may be damaged")]
    DamagedAnswer,

    /// The system refuses memory that a step is about to take.
    #[error("the system gives no {bytes} bytes of memory, which the next step needs")]
    OutOfMemory { bytes: usize },

    /// A computation that panicked, in the words of its panic.
    #[error("a step panicked: {0}")]
    Panicked(String),

    #[error("the work was cancelled")]
    Cancelled,

    #[error(transparent)]
    Text(#[from] attend_text::Error),

    #[error(transparent)]
    Format(#[from] attend_format::Error),

    /// A file of the model says something that makes no sense.
    #[error(transparent)]
    Files(Box<attend_model::Error>),

    /// The model cannot do what is asked.
    #[error("{0}")]
    Unsupported(String),
}

impl From<attend_model::Error> for Error {
    fn from(error: attend_model::Error) -> Error {
        Error::Files(Box::new(error))
    }
}

impl Error {
    /// The same error with the index of the input that it is about.
    pub(crate) fn of_input(self, index: usize) -> Error {
        match self {
            Error::Cancelled | Error::Input { .. } => self,
            source => Error::Input { index, source: Box::new(source) },
        }
    }

    pub(crate) fn parameter(name: &str, value: impl std::fmt::Display, expected: impl Into<String>) -> Error {
        Error::Parameter { name: name.into(), value: value.to_string(), expected: expected.into() }
    }
}
