//! What is asked of a model, whatever the dialect, and what comes back.

use super::adapter::Scaled;
use super::queue::Place;
use super::toolset::Toolset;
use crate::failure::Failure;
use crate::forced::Forced;
use attend_engine::tasks::Watch;
use attend_engine::tasks::embed::{Embedding, Item, Role};
use attend_engine::{Finish, Output, Ready, TokenLogprob, Variant, Writing};
use attend_text::Render;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;
use tokio::sync::{mpsc, oneshot};

/// What is to be continued or answered.
#[derive(Debug)]
pub enum Source {
    Text(String),
    Tokens(Vec<u32>),
    /// What stands before a gap and what behind it; the answer fills it.
    Gap(String, String),
    Chat(Box<Render>),
}

/// Answers that are wanted, some to each prompt.
#[derive(Debug)]
pub struct Generate {
    pub sources: Vec<Source>,
    /// What is to be done with texts, where they are not to be continued.
    pub writing: Option<ToWrite>,
    /// Values by the engine's names, over the model's defaults.
    pub given: Vec<(String, Value)>,
    /// Every token is wanted when it is there.
    pub stream: bool,
    /// The request's field that says what answers must be, where one does.
    pub constrained: Option<String>,
    /// A call that must be made.
    pub forced: Option<Box<Forced>>,
    /// Set by whoever listens when nothing more is wanted: the answer then ends where it is.
    pub enough: Option<Enough>,
    pub asker: Asker,
}

/// Whose request it is.
#[derive(Debug, Clone, Default)]
pub struct Asker {
    /// Pasts are shared with requests of the same salt only.
    pub salt: String,
    /// Clients take turns.
    pub client: String,
    /// The lower the sooner.
    pub priority: i64,
}

/// Whether what was said is enough.
pub type Enough = Arc<AtomicBool>;

/// A task of writing; see [`attend_engine::TextTask`].
#[derive(Debug)]
pub struct ToWrite {
    pub task: Writing,
    pub prefix: Option<String>,
    /// Cut what is longer than the model reads.
    pub truncate: bool,
}

/// A prompt that is in order.
#[derive(Debug, Clone, Copy)]
pub struct Taken {
    pub tokens: usize,
    /// Tokens that it had, where some were cut off.
    pub cut_from: Option<usize>,
    /// It ends inside a thought, which the answer goes on with.
    pub opened: bool,
}

/// What is said of an answer on its way. `prompt` counts the request's prompts, `choice` the answers to one.
#[derive(Debug)]
pub enum Said {
    /// The request is in order.
    Accepted(Vec<Taken>),
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
    /// One of the model's prompts, in place of the one for the role.
    pub prompt_name: Option<String>,
    pub dimensions: Option<usize>,
    /// Scale vectors to length 1, or do not.
    pub normalize: Option<bool>,
    /// Cut what is too long.
    pub truncate: bool,
}

impl Embed {
    /// As the model's folder has it.
    pub fn new(inputs: Vec<Input>) -> Embed {
        Embed { inputs, role: Role::Plain, prompt_name: None, dimensions: None, normalize: None, truncate: false }
    }
}

/// Vectors, or why there are none.
pub type Vectors = Result<Vec<Embedding>, Failure>;

/// The work of a task that was made ready. It sends its own answer.
pub type Compute<'t> = Box<dyn FnOnce(&mut Watch<'_>) + Send + 't>;

/// How a task is made ready, beside the thread that computes; none where that says all there is to say.
pub type Make = Box<dyn for<'t> FnOnce(Result<Toolset<'t>, Failure>) -> Option<Compute<'t>> + Send>;

/// Whether nobody waits for an answer any more.
pub type Gone = Box<dyn Fn() -> bool + Send>;

/// When a request came, its place in the queue until it begins, and what computes it in place of the model itself, or the
/// adapters that are to be made such.
#[derive(Debug, Clone)]
pub struct Ticket {
    pub came: Instant,
    pub place: Option<Arc<Place>>,
    pub variant: Option<Variant>,
    pub lora: Vec<Scaled>,
}

/// A request on its way to be made ready.
pub enum Job {
    Generate(Generate, Listener, Ticket),
    Embed(Embed, oneshot::Sender<Vectors>, Ticket),
    Task(Make, Gone, Ticket),
}

/// A request that is made ready.
pub enum Prepared<'t> {
    Answers { ready: Vec<Ready>, stream: bool, enough: Option<Enough>, to: Listener, ticket: Ticket },
    Embed { items: Vec<Item>, to: oneshot::Sender<Vectors>, ticket: Ticket },
    Task { compute: Compute<'t>, gone: Gone, ticket: Ticket },
}
