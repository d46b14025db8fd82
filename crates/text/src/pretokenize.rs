//! Cutting a normalised text into the pieces that a model sees: the `pre_tokenizer` of tokenizer.json.

use crate::error::{Error, Fault};
use crate::normalize::split_pattern;
use crate::pattern::Pattern;
use serde_json::Value;
use std::sync::LazyLock;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::tokenizer::pattern::Invert;
use tokenizers::{PreTokenizedString, PreTokenizer as _, SplitDelimiterBehavior};

/// The pattern of GPT-2, which a byte-level step uses when it is to cut.
pub(crate) const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

static GPT2_PATTERN: LazyLock<Option<Pattern>> = LazyLock::new(|| Pattern::regex(GPT2).ok());

/// A step, or several in order.
#[derive(Debug)]
pub(crate) enum PreTokenizer {
    Sequence(Vec<PreTokenizer>),
    Split { pattern: Pattern, behavior: SplitDelimiterBehavior, invert: bool },
    ByteLevel { add_prefix_space: bool, use_regex: bool },
    Library(Box<PreTokenizerWrapper>),
}

impl PreTokenizer {
    pub fn none() -> PreTokenizer {
        PreTokenizer::Sequence(Vec::new())
    }

    /// Cuts out every match of a pattern as a piece of its own.
    pub fn isolate(pattern: &str) -> Result<PreTokenizer, Fault> {
        let (pattern, behavior) = (Pattern::regex(pattern)?, SplitDelimiterBehavior::Isolated);
        Ok(PreTokenizer::Split { pattern, behavior, invert: false })
    }

    /// The `pre_tokenizer` field of tokenizer.json.
    pub fn parse(value: &Value) -> Result<PreTokenizer, Fault> {
        if value.is_null() {
            return Ok(PreTokenizer::none());
        }
        let fault = |problem: &dyn std::fmt::Display| Fault::new("pre_tokenizer", problem);
        let flag = |key: &str| value.get(key).and_then(Value::as_bool);
        match value.get("type").and_then(Value::as_str) {
            Some("Sequence") => {
                let steps = value.get("pretokenizers").and_then(Value::as_array);
                let steps = steps.ok_or_else(|| fault(&"a Sequence needs a list `pretokenizers`"))?;
                Ok(PreTokenizer::Sequence(steps.iter().map(PreTokenizer::parse).collect::<Result<_, _>>()?))
            }
            Some("Split") => {
                let behavior = value.get("behavior").cloned().unwrap_or(Value::Null);
                Ok(PreTokenizer::Split {
                    pattern: split_pattern(value, "pre_tokenizer")?,
                    behavior: serde_json::from_value(behavior).map_err(|error| fault(&error))?,
                    invert: flag("invert").unwrap_or(false),
                })
            }
            Some("ByteLevel") => Ok(PreTokenizer::ByteLevel {
                add_prefix_space: flag("add_prefix_space").unwrap_or(true),
                use_regex: flag("use_regex").unwrap_or(true),
            }),
            Some("FixedLength") if value.get("length").and_then(Value::as_u64).unwrap_or(0) == 0 => {
                Err(fault(&"FixedLength needs a positive `length`"))
            }
            Some(_) => match serde_json::from_value::<PreTokenizerWrapper>(value.clone()) {
                Ok(step) => Ok(PreTokenizer::Library(Box::new(step))),
                Err(error) => Err(fault(&error)),
            },
            None => Err(fault(&"has no `type`")),
        }
    }

    pub fn pre_tokenize(&self, text: &mut PreTokenizedString) -> Result<(), Error> {
        match self {
            PreTokenizer::Sequence(steps) => steps.iter().try_for_each(|step| step.pre_tokenize(text)),
            PreTokenizer::Split { pattern, behavior, invert: false } => {
                Ok(text.split(|_, part| part.split(pattern, *behavior))?)
            }
            PreTokenizer::Split { pattern, behavior, invert: true } => {
                Ok(text.split(|_, part| part.split(Invert(pattern), *behavior))?)
            }
            PreTokenizer::ByteLevel { add_prefix_space, use_regex } => {
                text.split(|_, mut part| {
                    if *add_prefix_space && !part.get().starts_with(' ') {
                        part.prepend(" ");
                    }
                    match GPT2_PATTERN.as_ref().filter(|_| *use_regex) {
                        Some(pattern) => part.split(pattern, SplitDelimiterBehavior::Isolated),
                        None => Ok(vec![part]),
                    }
                })?;
                Ok(ByteLevel::new(false, false, false).pre_tokenize(text)?)
            }
            PreTokenizer::Library(step) => Ok(step.pre_tokenize(text)?),
        }
    }
}
