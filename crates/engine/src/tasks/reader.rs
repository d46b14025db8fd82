//! A model that reads texts: how they become token ids, how long they may be, and what happens beyond that.

use crate::error::Error;
use crate::variant::Variant;
use attend_model::{Described, Loaded};
use attend_nn::spec::{Body, Head, Stack, StackKind};
use attend_nn::{Model, RunOptions};
use attend_text::{EncodeOptions, Encoding, Tokenizer, Truncation, TruncationStrategy};
use serde_json::Value;

/// One input: a text, or two that belong together.
#[derive(Debug, Clone, Copy)]
pub struct Text<'t> {
    pub first: &'t str,
    pub second: Option<&'t str>,
}

impl<'t> Text<'t> {
    pub fn one(first: &'t str) -> Text<'t> {
        Text { first, second: None }
    }

    pub fn pair(first: &'t str, second: &'t str) -> Text<'t> {
        Text { first, second: Some(second) }
    }
}

/// What a caller chooses about every task.
#[derive(Debug, Clone, Copy)]
pub struct TaskOptions {
    pub run: RunOptions,
    /// Tokens that are computed at once: whole inputs, at least one. The answers do not depend on it.
    pub batch_tokens: usize,
    /// Cut inputs to this many tokens; None: as long as the model reads.
    pub max_length: Option<usize>,
    /// Cut inputs that are too long instead of refusing them.
    pub truncate: bool,
}

/// Tokens of a step by default: enough to read the weights seldom, few enough that what layers hand on stays in the caches.
pub const BATCH_TOKENS: usize = 1024;

impl Default for TaskOptions {
    fn default() -> TaskOptions {
        TaskOptions { run: RunOptions::default(), batch_tokens: BATCH_TOKENS, max_length: None, truncate: false }
    }
}

/// The most tokens of an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    pub tokens: usize,
    /// Longer inputs are cut: because the caller wants it or because the model's files say so.
    pub cut: bool,
    /// What set the limit, for messages.
    pub source: String,
}

/// An input as token ids.
#[derive(Debug, Clone)]
pub struct Encoded {
    pub encoding: Encoding,
    /// Tokens were left out because there were too many.
    pub cut: bool,
}

/// A loaded model with its tokenizer, made ready to read texts.
#[derive(Debug, Clone)]
pub struct TaskModel<'m> {
    pub(crate) model: &'m Model,
    /// What computes in its place.
    variant: Option<Variant>,
    pub(crate) described: &'m Described,
    pub(crate) tokenizer: &'m Tokenizer,
    pub(crate) options: TaskOptions,
    pub(crate) stack: StackKind,
    limit: Option<Limit>,
    lower_case: bool,
    typed: bool,
}

impl<'m> TaskModel<'m> {
    /// # Errors
    /// A `max_length` that the model has no positions for, and configurations that cannot be read.
    pub fn new(loaded: &'m Loaded, tokenizer: &'m Tokenizer, options: &TaskOptions) -> Result<TaskModel<'m>, Error> {
        let Loaded { model, source: described } = loaded;
        let stack = match model.spec().body {
            Body::Encoder(_) | Body::EncoderDecoder { .. } => StackKind::Encoder,
            Body::Decoder(_) => StackKind::Decoder,
        };
        let folder = super::sentence::TextFolder::read(described.checkpoint.path())?;
        let limit = limit(described, &folder, options)?;
        let (lower_case, typed) = (folder.lower_case, !folder.untyped);
        Ok(TaskModel { model, variant: None, described, tokenizer, options: *options, stack, limit, lower_case, typed })
    }

    /// The same, computed by a variant of the model.
    ///
    /// # Errors
    /// A variant of a model of another description.
    pub fn of_variant(self, variant: Option<Variant>) -> Result<TaskModel<'m>, Error> {
        variant.iter().try_for_each(|variant| variant.check(self.model))?;
        Ok(TaskModel { variant, ..self })
    }

    /// What computes.
    pub(crate) fn computing(&self) -> &Model {
        self.variant.as_ref().map_or(self.model, Variant::model)
    }

    /// The most tokens of an input, where there is a bound.
    pub fn limit(&self) -> Option<&Limit> {
        self.limit.as_ref()
    }

    pub fn tokenizer(&self) -> &'m Tokenizer {
        self.tokenizer
    }

    /// The stack that reads.
    pub(crate) fn parts(&self) -> &'m Stack {
        match &self.model.spec().body {
            Body::Encoder(stack) | Body::Decoder(stack) | Body::EncoderDecoder { encoder: stack, .. } => stack,
        }
    }

    /// Whether both stacks of an encoder-decoder read each text, for a head that stands on the decoder.
    pub(crate) fn reads_twice(&self) -> bool {
        let spec = self.model.spec();
        matches!(spec.body, Body::EncoderDecoder { .. })
            && matches!(spec.head, Head::Sequence { .. } | Head::Span { .. })
    }

    /// Width of the hidden states that come of reading.
    pub(crate) fn width(&self) -> usize {
        if self.reads_twice() { self.model.spec().output_stack().output_width() } else { self.parts().output_width() }
    }

    /// Whether the model tells the texts of a pair apart by types.
    pub(crate) fn has_types(&self) -> bool {
        self.typed && self.parts().embed.token_types.is_some_and(|types| types > 1)
    }

    /// Encodes an input and holds it to the limit. Special tokens spelled in it stay text unless `special`.
    ///
    /// # Errors
    /// A text without tokens, or longer than the limit where that does not cut.
    pub fn encode(&self, text: Text<'_>, special: bool) -> Result<Encoded, Error> {
        self.encode_cutting(text, special, TruncationStrategy::LongestFirst)
    }

    /// An input that is given as tokens, held to the limit.
    ///
    /// # Errors
    /// As [`TaskModel::encode`], and ids outside the vocabulary.
    pub fn encode_ids(&self, mut ids: Vec<u32>) -> Result<Encoded, Error> {
        if ids.is_empty() {
            return Err(Error::EmptyInput);
        }
        crate::validate::ids("the input", &ids, self.parts().embed.vocab)?;
        let tokens = ids.len();
        let cut = match self.limit.as_ref().filter(|limit| tokens > limit.tokens) {
            Some(Limit { tokens: limit, cut: false, source }) => {
                return Err(Error::TooLong { tokens, limit: *limit, of: source.clone() });
            }
            Some(limit) => {
                ids.truncate(limit.tokens);
                true
            }
            None => false,
        };
        Ok(Encoded { encoding: self.tokenizer.encoding_of(ids), cut })
    }

    /// As [`TaskModel::encode`], where a pair that is too long loses tokens as `strategy` says.
    pub(crate) fn encode_cutting(
        &self,
        text: Text<'_>,
        special: bool,
        strategy: TruncationStrategy,
    ) -> Result<Encoded, Error> {
        let options = EncodeOptions { add_special: true, parse_special: special };
        let (first, second) = (self.cased(text.first), text.second.map(|second| self.cased(second)));
        let encoding = match &second {
            None => self.tokenizer.encode(&first, options)?,
            Some(second) => self.tokenizer.encode_pair(&first, second, options)?,
        };
        if encoding.is_empty() {
            return Err(Error::EmptyInput);
        }
        let Some(limit) = self.limit.as_ref().filter(|limit| encoding.len() > limit.tokens) else {
            return Ok(Encoded { encoding, cut: false });
        };
        if !limit.cut {
            return Err(Error::TooLong { tokens: encoding.len(), limit: limit.tokens, of: limit.source.clone() });
        }
        let truncation = Truncation { max_length: limit.tokens, stride: 0, strategy, left: false };
        let parts = self.tokenizer.encode_truncated(&first, second.as_deref(), options, truncation)?;
        let encoding = parts.into_iter().next().filter(|encoding| !encoding.is_empty()).ok_or(Error::EmptyInput)?;
        Ok(Encoded { encoding, cut: true })
    }

    /// The text as the model's folder wants it spelled.
    fn cased<'t>(&self, text: &'t str) -> std::borrow::Cow<'t, str> {
        if self.lower_case { text.to_lowercase().into() } else { text.into() }
    }
}

/// Encodes each of many inputs; an error says which one it is about.
pub(crate) fn each<'t, T>(
    texts: &[Text<'t>],
    mut encode: impl FnMut(Text<'t>) -> Result<T, Error>,
) -> Result<Vec<T>, Error> {
    let one = |(index, text): (usize, &Text<'t>)| encode(*text).map_err(|source| source.of_input(index));
    texts.iter().enumerate().map(one).collect()
}

/// The limit that holds: the caller's, else what the folder of a sentence model says, else the model's own.
fn limit(
    described: &Described,
    folder: &super::sentence::TextFolder,
    options: &TaskOptions,
) -> Result<Option<Limit>, Error> {
    let context = described.spec.context;
    if let Some(asked) = options.max_length {
        return match context.filter(|&context| asked > context) {
            Some(model) => Err(Error::ContextTooLong { asked, model }),
            None => Ok(Some(Limit { tokens: asked, cut: true, source: "as asked for".into() })),
        };
    }
    let fits = |tokens: usize| context.is_none_or(|context| tokens <= context);
    if let Some(tokens) = folder.max_seq_length.filter(|&tokens| fits(tokens)) {
        let source = "max_seq_length of the model's folder".into();
        return Ok(Some(Limit { tokens, cut: true, source }));
    }
    let own = context.map(|tokens| (tokens, "the model's positions"));
    let tokenizer = folder.model_max_length.filter(|&tokens| fits(tokens));
    let least = tokenizer.map(|tokens| (tokens, "model_max_length of the tokenizer")).or(own);
    Ok(least.map(|(tokens, source)| Limit { tokens, cut: options.truncate, source: source.into() }))
}

/// A length in tokens from a configuration; the huge numbers that some files write for "no limit" are none.
pub(crate) fn length(value: Option<&Value>) -> Option<usize> {
    let number = value?.as_f64().filter(|number| (1.0..1e9).contains(number))?;
    Some(number as usize)
}
