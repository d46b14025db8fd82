//! Which tasks a model can do, read off its description.

use crate::error::Error;
use attend_nn::spec::{Body, Head, ModelSpec};

/// What can be asked of a model; each is a sub-command of this name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    Run,
    Embed,
    Similarity,
    Rerank,
    Classify,
    Tag,
    Fill,
    Answer,
    ZeroShot,
    Translate,
    Summarize,
}

impl Task {
    pub const ALL: [Task; 11] = [
        Task::Run,
        Task::Embed,
        Task::Similarity,
        Task::Rerank,
        Task::Classify,
        Task::Tag,
        Task::Fill,
        Task::Answer,
        Task::ZeroShot,
        Task::Translate,
        Task::Summarize,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Task::Run => "run",
            Task::Embed => "embed",
            Task::Similarity => "similarity",
            Task::Rerank => "rerank",
            Task::Classify => "classify",
            Task::Tag => "tag",
            Task::Fill => "fill",
            Task::Answer => "answer",
            Task::ZeroShot => "zero-shot",
            Task::Translate => "translate",
            Task::Summarize => "summarize",
        }
    }

    /// What a model needs for it.
    fn needs(self) -> &'static str {
        match self {
            Task::Run => "a language-model head on a decoder",
            Task::Embed | Task::Similarity | Task::Rerank => "an encoder or a decoder",
            Task::Classify => "a sequence-classification head",
            Task::Tag => "a token-classification head",
            Task::Fill => "a masked-language-model head on an encoder",
            Task::Answer => "a question-answering (span) head",
            Task::ZeroShot => "a sequence-classification head trained on entailment",
            Task::Translate | Task::Summarize => "an encoder and a decoder with a language-model head",
        }
    }

    /// Whether a model of this description can do it.
    pub fn fits(self, spec: &ModelSpec) -> bool {
        let encoder = matches!(spec.body, Body::Encoder(_));
        let both = matches!(spec.body, Body::EncoderDecoder { .. });
        let generates = matches!(spec.head, Head::Lm(_)) && !encoder;
        match self {
            Task::Run => generates,
            // What the last layer says of a text is a vector, whatever head stands on it.
            Task::Embed | Task::Similarity => !both || spec.head == Head::None,
            Task::Rerank => match spec.head {
                Head::Sequence { labels, .. } => labels == 1,
                Head::None | Head::Lm(_) | Head::Token { .. } | Head::Span { .. } => Task::Embed.fits(spec),
            },
            Task::Classify => matches!(spec.head, Head::Sequence { .. }),
            Task::ZeroShot => matches!(spec.head, Head::Sequence { labels, .. } if labels >= 2),
            Task::Tag => matches!(spec.head, Head::Token { .. }) && !both,
            Task::Fill => matches!(spec.head, Head::Lm(_)) && encoder,
            Task::Answer => matches!(spec.head, Head::Span { .. }),
            Task::Translate | Task::Summarize => generates && both,
        }
    }

    /// The refusal of a task that a model has not the parts for, with what it can do instead.
    pub fn check(self, spec: &ModelSpec) -> Result<(), Error> {
        if self.fits(spec) {
            return Ok(());
        }
        let can: Vec<&str> = Task::ALL.iter().filter(|task| task.fits(spec)).map(|task| task.name()).collect();
        Err(Error::Unsupported(format!(
            "this model cannot {}: that needs {}, and it is {} with {}; it can {}",
            self.name(),
            self.needs(),
            body(spec),
            head(&spec.head),
            if can.is_empty() { "do none of the tasks".into() } else { can.join(", ") }
        )))
    }
}

fn body(spec: &ModelSpec) -> &'static str {
    match spec.body {
        Body::Encoder(_) => "an encoder",
        Body::Decoder(_) => "a decoder",
        Body::EncoderDecoder { .. } => "an encoder-decoder",
    }
}

fn head(head: &Head) -> String {
    match head {
        Head::None => "no head".into(),
        Head::Lm(_) => "a language-model head".into(),
        Head::Sequence { labels: 1, .. } => "a sequence head of one score".into(),
        Head::Sequence { labels, .. } => format!("a sequence-classification head of {labels} labels"),
        Head::Token { labels, .. } => format!("a token-classification head of {labels} labels"),
        Head::Span { .. } => "a question-answering head".into(),
    }
}
