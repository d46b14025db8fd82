//! What comes out: events on the way, and the whole at the end.

use crate::logprobs::TokenLogprob;
use serde::{Deserialize, Serialize};

/// What is continued.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Prompt {
    /// The decoder's tokens. For an encoder-decoder: its start token, and more where the answer's beginning is given.
    pub token_ids: Vec<u32>,
    /// The source of an encoder-decoder.
    pub encoder_ids: Option<Vec<u32>>,
}

impl Prompt {
    /// A prompt for a decoder.
    pub fn tokens(token_ids: impl Into<Vec<u32>>) -> Prompt {
        Prompt { token_ids: token_ids.into(), encoder_ids: None }
    }

    /// A source for an encoder-decoder. The decoder's start token is added by the engine.
    pub fn source(encoder_ids: impl Into<Vec<u32>>) -> Prompt {
        Prompt { token_ids: Vec::new(), encoder_ids: Some(encoder_ids.into()) }
    }
}

/// What happens while an answer is made. The handler may end the work with [`std::ops::ControlFlow::Break`]; what was
/// made until then is kept.
#[derive(Debug)]
pub enum Event<'a> {
    /// So many of the prompt's tokens have been read.
    Prompt { done: usize, total: usize },
    /// A token was chosen.
    Token {
        choice: usize,
        id: u32,
        /// The text that is certain now: of this token, of earlier ones, or empty.
        text: &'a str,
        /// Where log-probabilities were asked for.
        logprob: Option<&'a TokenLogprob>,
    },
    /// A choice has ended.
    Finished {
        choice: usize,
        /// Text that was held back until now.
        text: &'a str,
        finish: &'a Finish,
    },
    /// Beam search has taken a step; the text of the best open hypothesis is not certain.
    Step { done: usize },
}

/// Why a choice ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "cause", content = "value")]
pub enum Finish {
    /// One of the model's end tokens.
    EndToken(u32),
    /// One of the request's `stop_ids`.
    StopToken(u32),
    /// One of the request's `stop` strings.
    StopText(String),
    /// The request's constraint leaves nothing that could follow.
    Complete,
    /// `max_tokens`, or the bound for answers without one.
    MaxTokens,
    /// The context is full.
    Context,
    /// The event handler ended the work.
    Cancelled,
}

impl Finish {
    /// `stop`, `length` or `cancelled`.
    pub fn reason(&self) -> &'static str {
        match self {
            Finish::EndToken(_) | Finish::StopToken(_) | Finish::StopText(_) | Finish::Complete => "stop",
            Finish::MaxTokens | Finish::Context => "length",
            Finish::Cancelled => "cancelled",
        }
    }
}

/// One answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    pub index: usize,
    /// Without the end token and from the stop string on; empty when there is no tokenizer.
    pub text: String,
    /// Everything that was generated, the end token included.
    pub token_ids: Vec<u32>,
    /// One a token, where asked for.
    pub logprobs: Vec<TokenLogprob>,
    pub finish: Finish,
    /// Beam search: the log-probability divided by the length to the power of the length penalty.
    pub score: Option<f32>,
}

/// Counts of what was fed and produced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// The prompt, encoder and decoder tokens together.
    pub prompt_tokens: usize,
    /// Those of them that an earlier request had in common, and that were not computed again.
    #[serde(default)]
    pub cached_tokens: usize,
    /// All choices together, end tokens included.
    pub completion_tokens: usize,
    pub total_tokens: usize,
}

/// How guessing ahead went, all choices together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Guesses {
    /// Tokens that were fed before it was known whether they follow.
    pub offered: usize,
    /// Those of them that did.
    pub right: usize,
}

/// Seconds, and tokens per second.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Timings {
    pub prompt_seconds: f64,
    pub prompt_tokens_per_second: f64,
    /// From the end of the prompt to the last token.
    pub generation_seconds: f64,
    pub generation_tokens_per_second: f64,
}

impl Timings {
    pub(crate) fn new(prompt_tokens: usize, prompt_seconds: f64, generated: usize, generation_seconds: f64) -> Timings {
        let rate = |tokens: usize, seconds: f64| if seconds > 0.0 { tokens as f64 / seconds } else { 0.0 };
        Timings {
            prompt_seconds,
            prompt_tokens_per_second: rate(prompt_tokens, prompt_seconds),
            generation_seconds,
            generation_tokens_per_second: rate(generated, generation_seconds),
        }
    }
}

/// The whole answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Output {
    pub choices: Vec<Choice>,
    /// The decoder's prompt as it was fed.
    pub prompt_token_ids: Vec<u32>,
    /// Where asked for: one a token of the decoder's prompt; None for the first, which nothing precedes.
    pub prompt_logprobs: Option<Vec<Option<TokenLogprob>>>,
    pub usage: Usage,
    pub timings: Timings,
    pub guesses: Guesses,
    /// The seed that repeats this answer.
    pub seed: u64,
    /// What the caller should know: a limit that was lower than asked, a bound that was assumed.
    pub notices: Vec<String>,
}
