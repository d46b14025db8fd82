//! The head, from the class that `architectures` names.

use crate::error::Error;
use crate::reader::Reader;
use attend_nn::spec::{Head, LmHead, SequenceSource, Transform};

/// What a class name's ending asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadKind {
    None,
    /// The encoder alone of an encoder-decoder.
    EncoderOnly,
    Lm,
    MaskedLm,
    Sequence,
    Token,
    Span,
}

/// The head that the checkpoint's class has; `default` where the configuration names no class.
pub fn head_kind(c: &Reader, default: HeadKind) -> Result<HeadKind, Error> {
    let Some(class) = c.list("architectures")?.and_then(|list| list.first()) else { return Ok(default) };
    let known = known_head(c, class.as_str().unwrap_or_default());
    known.ok_or_else(|| c.wrong("architectures", format!("class {} is not supported", crate::reader::short(class))))
}

/// The head that a class's name means, if it is known.
pub fn known_head(c: &Reader, class: &str) -> Option<HeadKind> {
    let ending = class.strip_prefix(c.class).unwrap_or(class);
    Some(match ending.strip_prefix("Text").filter(|rest| rest.starts_with("For")).unwrap_or(ending) {
        "Model" | "TextModel" => HeadKind::None,
        "EncoderModel" => HeadKind::EncoderOnly,
        "ForCausalLM" | "LMHeadModel" | "ForConditionalGeneration" | "WithLMHeadModel" | "MTModel" => HeadKind::Lm,
        "ForMaskedLM" | "ForPreTraining" => HeadKind::MaskedLm,
        "ForSequenceClassification" | "ForMultipleChoice" => HeadKind::Sequence,
        "ForTokenClassification" => HeadKind::Token,
        "ForQuestionAnswering" => HeadKind::Span,
        _ => return None,
    })
}

/// The number of labels: `id2label`, else `num_labels`, else 2.
pub fn labels(c: &Reader) -> Result<usize, Error> {
    // A choice is scored alone, by one number.
    if class_ends(c, "ForMultipleChoice")? {
        return Ok(1);
    }
    match c.object("id2label")? {
        Some(_) => match c.value("id2label").and_then(|value| value.as_object()).map(|map| map.len()) {
            Some(0) | None => Err(c.wrong("id2label", "names no label")),
            Some(count) => Ok(count),
        },
        None => c.count_or(&["num_labels"], 2),
    }
}

/// Whether the checkpoint's class is named so after the architecture's prefix.
pub fn class_ends(c: &Reader, ending: &str) -> Result<bool, Error> {
    Ok(class(c)?.is_some_and(|class| class.ends_with(ending)))
}

/// The class that the checkpoint names.
pub fn class<'a>(c: &'a Reader) -> Result<Option<&'a str>, Error> {
    Ok(c.list("architectures")?.and_then(|list| list.first()).and_then(|class| class.as_str()))
}

/// An output matrix: tied to the token table as the configuration says. A GGUF file says it by having none.
pub fn lm(c: &Reader, vocab: usize, tied: bool) -> Result<LmHead, Error> {
    let tied = if c.is_gguf() { !c.has_tensor("output.weight") } else { c.flag("tie_word_embeddings", tied)? };
    Ok(LmHead { vocab, tied, bias: false, transform: None::<Transform>, scale: 1.0, soft_cap: None })
}

/// A classifier of sequences.
pub fn sequence(c: &Reader, source: SequenceSource, bias: bool) -> Result<Head, Error> {
    Ok(Head::Sequence { labels: labels(c)?, source, transform: None, bias })
}

/// The head of a decoder: an output matrix, nothing, or a classifier of the sequence by its last token, of tokens, or
/// of spans.
pub fn output(c: &Reader, lm: LmHead) -> Result<Head, Error> {
    match head_kind(c, HeadKind::Lm)? {
        HeadKind::None => Ok(Head::None),
        HeadKind::Lm => Ok(Head::Lm(lm)),
        HeadKind::Sequence => sequence(c, SequenceSource::Last, false),
        HeadKind::Token => {
            Ok(Head::Token { labels: labels(c)?, transform: None, bias: c.flag("token_classification_bias", true)? })
        }
        HeadKind::Span => Ok(Head::Span { transform: None, bias: true }),
        HeadKind::EncoderOnly | HeadKind::MaskedLm => Err(unsupported_head(c)),
    }
}

/// The head of an encoder-decoder; `None` where the class is the encoder alone.
pub fn translation(c: &Reader, default: HeadKind, lm: LmHead) -> Result<Option<Head>, Error> {
    match head_kind(c, default)? {
        HeadKind::EncoderOnly => Ok(None),
        HeadKind::None => Ok(Some(Head::None)),
        HeadKind::Lm => Ok(Some(Head::Lm(lm))),
        HeadKind::MaskedLm | HeadKind::Sequence | HeadKind::Token | HeadKind::Span => Err(unsupported_head(c)),
    }
}

/// The refusal of a head that an architecture does not have here.
pub fn unsupported_head(c: &Reader) -> Error {
    c.wrong("architectures", "this head is not supported on this architecture")
}
