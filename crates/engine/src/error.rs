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

    #[error(transparent)]
    Model(#[from] attend_nn::Error),

    #[error(transparent)]
    Text(#[from] attend_text::Error),

    /// A file of the model says something that makes no sense.
    #[error(transparent)]
    Files(#[from] attend_model::Error),

    /// The model cannot do what is asked.
    #[error("{0}")]
    Unsupported(String),
}

impl Error {
    pub(crate) fn parameter(name: &str, value: impl std::fmt::Display, expected: impl Into<String>) -> Error {
        Error::Parameter { name: name.into(), value: value.to_string(), expected: expected.into() }
    }
}
