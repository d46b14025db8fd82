//! What happens to a text before it is cut: the `normalizer` of tokenizer.json, and SentencePiece's own.

use crate::charsmap::Charsmap;
use crate::error::{Error, Fault};
use crate::pattern::Pattern;
use base64::Engine as _;
use serde_json::Value;
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::{NormalizedString, Normalizer as _};

/// A step, or several in order.
#[derive(Debug)]
pub(crate) enum Normalizer {
    Sequence(Vec<Normalizer>),
    Replace {
        pattern: Pattern,
        content: String,
    },
    Precompiled(Charsmap),
    SentencePiece(SentencePiece),
    /// The steps that the library does safely on any input.
    Library(Box<NormalizerWrapper>),
}

/// SentencePiece's normaliser (`NormalizerSpec`).
#[derive(Debug, Clone)]
pub(crate) struct SentencePiece {
    pub charsmap: Charsmap,
    /// A space before the text, or behind it when `suffix`.
    pub add_dummy_prefix: bool,
    /// Leading and trailing spaces go, runs become one.
    pub remove_extra_whitespaces: bool,
    /// Spaces become `▁`.
    pub escape_whitespaces: bool,
    pub suffix: bool,
    /// The space only before the first of the parts into which added tokens cut a text.
    pub first_only: bool,
}

impl Normalizer {
    pub fn none() -> Normalizer {
        Normalizer::Sequence(Vec::new())
    }

    /// The `normalizer` field of tokenizer.json.
    pub fn parse(value: &Value) -> Result<Normalizer, Fault> {
        if value.is_null() {
            return Ok(Normalizer::none());
        }
        let fault = |problem: &dyn std::fmt::Display| Fault::new("normalizer", problem);
        match value.get("type").and_then(Value::as_str) {
            Some("Sequence") => {
                let steps = value.get("normalizers").and_then(Value::as_array);
                let steps = steps.ok_or_else(|| fault(&"a Sequence needs a list `normalizers`"))?;
                Ok(Normalizer::Sequence(steps.iter().map(Normalizer::parse).collect::<Result<_, _>>()?))
            }
            Some("Replace") => {
                let (pattern, content) = replacement(value, "normalizer")?;
                Ok(Normalizer::Replace { pattern, content })
            }
            Some("Precompiled") => {
                let text = value.get("precompiled_charsmap").and_then(Value::as_str).unwrap_or_default();
                let bytes = base64::engine::general_purpose::STANDARD.decode(text);
                Ok(Normalizer::Precompiled(Charsmap::parse(&bytes.map_err(|error| fault(&error))?)?))
            }
            Some(_) => match serde_json::from_value::<NormalizerWrapper>(value.clone()) {
                Ok(step) => Ok(Normalizer::Library(Box::new(step))),
                Err(error) => Err(fault(&error)),
            },
            None => Err(fault(&"has no `type`")),
        }
    }

    pub fn normalize(&self, text: &mut NormalizedString) -> Result<(), Error> {
        match self {
            Normalizer::Sequence(steps) => steps.iter().try_for_each(|step| step.normalize(text)),
            Normalizer::Replace { pattern, content } => Ok(text.replace(pattern, content)?),
            Normalizer::Precompiled(map) => {
                let mut changes = Changes::default();
                map.by_grapheme(text.get(), |taken, replacement| changes.push(taken, replacement));
                changes.apply(text);
                Ok(())
            }
            Normalizer::SentencePiece(spec) => {
                spec.normalize(text);
                Ok(())
            }
            Normalizer::Library(step) => Ok(step.normalize(text)?),
        }
    }
}

/// `pattern` and `content` of a Replace step.
pub(crate) fn replacement(value: &Value, field: &str) -> Result<(Pattern, String), Fault> {
    let content = value.get("content").and_then(Value::as_str);
    let content = content.ok_or_else(|| Fault::new(field, "Replace needs a text `content`"))?;
    Ok((split_pattern(value, field)?, content.to_string()))
}

/// A `pattern` field: `{"String": …}` or `{"Regex": …}`.
pub(crate) fn split_pattern(value: &Value, field: &str) -> Result<Pattern, Fault> {
    let pattern = value.get("pattern").unwrap_or(&Value::Null);
    if let Some(literal) = pattern.get("String").and_then(Value::as_str) {
        return Ok(Pattern::literal(literal));
    }
    match pattern.get("Regex").and_then(Value::as_str) {
        Some(source) => {
            Pattern::regex(source).map_err(|fault| Fault::new(format!("{field}.{}", fault.field), fault.problem))
        }
        None => Err(Fault::new(format!("{field}.pattern"), "needs `String` or `Regex`")),
    }
}

/// A rewritten text: each character with the number of characters of the old text that it stands for.
#[derive(Default)]
struct Changes {
    chars: Vec<(char, usize)>,
    /// Characters dropped before the first one that is kept.
    leading: usize,
}

impl Changes {
    /// `taken` characters of the old text become `replacement`.
    fn push(&mut self, taken: usize, replacement: &str) {
        let added = replacement.chars().count();
        let before = self.chars.len();
        self.chars.extend(replacement.chars().map(|c| (c, 1)));
        if added == 0 {
            self.drop(taken);
        } else if added >= taken {
            // The last ones are insertions.
            self.chars[before + taken..].iter_mut().for_each(|(_, stands_for)| *stands_for = 0);
        } else if let Some((_, stands_for)) = self.chars.last_mut() {
            *stands_for += taken - added;
        }
    }

    /// `taken` characters of the old text disappear.
    fn drop(&mut self, taken: usize) {
        match self.chars.last_mut() {
            Some((_, stands_for)) => *stands_for += taken,
            None => self.leading += taken,
        }
    }

    fn apply(self, text: &mut NormalizedString) {
        text.transform(self.chars.into_iter().map(|(c, stands_for)| (c, 1 - stands_for as isize)), self.leading);
    }
}

impl SentencePiece {
    fn normalize(&self, text: &mut NormalizedString) {
        let source = text.get();
        let mut changes = Changes::default();
        if self.remove_extra_whitespaces {
            self.tidy(source, &mut changes);
        } else {
            self.charsmap.by_longest(source, |taken, replacement| changes.push(taken, replacement));
        }
        let here = !self.first_only || text.offsets_original().0 == 0;
        if self.add_dummy_prefix && here && !changes.chars.is_empty() {
            if self.suffix {
                changes.chars.push((' ', 0));
            } else {
                changes.chars.insert(0, (' ', 0));
            }
        }
        if self.escape_whitespaces {
            for (c, _) in &mut changes.chars {
                if *c == ' ' {
                    *c = '▁';
                }
            }
        }
        changes.apply(text);
    }

    /// Replaces, drops leading and trailing spaces and joins runs of them.
    fn tidy(&self, source: &str, changes: &mut Changes) {
        self.charsmap.by_longest(source, |taken, replacement| {
            let mut part = String::with_capacity(replacement.len());
            let mut after_space = changes.chars.last().is_none_or(|(c, _)| *c == ' ');
            for c in replacement.chars() {
                if c != ' ' || !after_space {
                    part.push(c);
                }
                after_space = c == ' ';
            }
            changes.push(taken, &part);
        });
        if let Some(&(' ', stands_for)) = changes.chars.last() {
            changes.chars.pop();
            changes.drop(stands_for);
        }
    }
}
