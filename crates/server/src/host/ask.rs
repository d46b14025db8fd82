//! What is asked of a model, whatever the dialect, and what comes back.

use super::queue::Place;
use super::tools::Tools;
use crate::failure::Failure;
use attend_engine::tasks::Watch;
use attend_engine::tasks::embed::{Embedding, Item, Role};
use attend_engine::{Finish, Output, Ready, TokenLogprob};
use attend_text::Render;
use serde_json::Value;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::{mpsc, oneshot};

/// What is to be continued or answered.
#[derive(Debug)]
pub enum Source {
    Text(String),
    Tokens(Vec<u32>),
    Chat(Box<Render>),
}

/// Answers that are wanted, some to each prompt.
#[derive(Debug)]
pub struct Generate {
    pub sources: Vec<Source>,
    /// Values by the engine's names, over the model's defaults.
    pub given: Vec<(String, Value)>,
    /// Every token is wanted when it is there.
    pub stream: bool,
}

/// What is said of an answer on its way. `prompt` counts the request's prompts, `choice` the answers to one.
#[derive(Debug)]
pub enum Said {
    /// The request is in order; the tokens of each prompt.
    Accepted(Vec<usize>),
    Token(Piece),
    /// Text that was held back, and why the choice ended.
    Finished {
        prompt: usize,
        choice: usize,
        text: String,
        finish: Finish,
    },
    /// All answers to a prompt.
    Done {
        prompt: usize,
        output: Box<Output>,
    },
    Failed(Failure),
}

/// A token.
#[derive(Debug)]
pub struct Piece {
    pub prompt: usize,
    pub choice: usize,
    pub id: u32,
    pub text: String,
    pub logprob: Option<TokenLogprob>,
}

/// Where what is said goes; the receiver that is dropped cancels the request.
pub type Listener = mpsc::UnboundedSender<Said>;

/// One text for a vector.
#[derive(Debug)]
pub enum Input {
    Text(String),
    Tokens(Vec<u32>),
}

/// Vectors that are wanted.
#[derive(Debug)]
pub struct Embed {
    pub inputs: Vec<Input>,
    pub role: Role,
    pub dimensions: Option<usize>,
    /// Cut what is too long.
    pub truncate: bool,
}

/// Vectors, or why there are none.
pub type Vectors = Result<Vec<Embedding>, Failure>;

/// Work that a task's function does; it sends its own answer.
pub type TaskWork = Box<dyn FnOnce(&Tools<'_>, &mut Watch<'_>) + Send>;

/// When a request came, and its place in the queue until it begins.
#[derive(Debug, Clone)]
pub struct Ticket {
    pub came: Instant,
    pub place: Option<Arc<Place>>,
}

/// A request on its way to be made ready.
pub enum Job {
    Generate(Generate, Listener, Ticket),
    Embed(Embed, oneshot::Sender<Vectors>, Ticket),
    Task(Task),
}

/// A request that is made ready.
pub enum Prepared {
    Answers { ready: Vec<Ready>, stream: bool, to: Listener, ticket: Ticket },
    Embed { items: Vec<Item>, to: oneshot::Sender<Vectors>, ticket: Ticket },
    Task(Task),
}

/// A task other than vectors.
pub struct Task {
    pub work: TaskWork,
    /// Nobody waits for it any more.
    pub gone: Box<dyn Fn() -> bool + Send>,
    pub ticket: Ticket,
}
