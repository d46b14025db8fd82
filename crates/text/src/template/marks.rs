//! Telling what a template printed from what the messages contained.
//!
//! A rendered chat is one text, in which a special token spelled by a user looks like one printed by the template. So
//! before rendering, every special token that is spelled inside a message gets a mark behind its first character,
//! which keeps it from being found when the rendered text is encoded; the mark is then taken out, and what it marked
//! is encoded as plain text. A message without such spellings is not touched, so the rendering is exactly the same,
//! and even with them `trim`, comparisons of ends, and the like see the same text.
//!
//! In messages of the assistant, special tokens that the template itself looks for in content (as `'</think>' in
//! content`) are left alone: there they are markup of earlier answers, and the template must see them.

use super::has_mark;
use crate::guard::MARK;
use crate::tokenizer::Tokenizer;
use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::Value;

/// A rendered chat that remembers which special tokens are only text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    text: String,
    marked: String,
    /// Positions of the marks in `marked`, in characters.
    marks: Vec<usize>,
}

impl Rendered {
    /// A chat rendered elsewhere, all of whose special tokens are control tokens.
    pub fn trusted(text: impl Into<String>) -> Rendered {
        let text = text.into().replace(MARK, "\u{FFFD}");
        Rendered { marked: text.clone(), text, marks: Vec::new() }
    }

    pub(super) fn new(marked: String) -> Rendered {
        let marks = marked.chars().enumerate().filter(|(_, c)| *c == MARK).map(|(at, _)| at).collect();
        Rendered { text: marked.replace(MARK, ""), marked, marks }
    }

    /// The rendered chat as people see it.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn marked(&self) -> &str {
        &self.marked
    }

    /// Turns offsets in the marked text into offsets in the text.
    pub(crate) fn correct_offsets(&self, offsets: &mut [(usize, usize)]) {
        if self.marks.is_empty() {
            return;
        }
        let correct = |at: usize| at - self.marks.partition_point(|mark| *mark < at);
        for (start, end) in offsets {
            (*start, *end) = (correct(*start), correct(*end));
        }
    }
}

/// Finds and marks special tokens in the parts of a request.
pub(super) struct Marker {
    all: Option<AhoCorasick>,
    /// Without those that the template looks for in content.
    assistant: Option<AhoCorasick>,
}

impl Marker {
    pub fn new(tokenizer: &Tokenizer, source: &str) -> Marker {
        let specials: Vec<&str> = tokenizer.specials().map(|(token, _)| token).collect();
        let build = |tokens: &[&str]| {
            AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostLongest)
                .build(tokens)
                .ok()
                .filter(|_| !tokens.is_empty())
        };
        let kept: Vec<&str> = specials.iter().copied().filter(|token| !looked_for(source, token)).collect();
        Marker { all: build(&specials), assistant: build(&kept) }
    }

    pub fn messages(&self, messages: &mut Value) {
        let Some(messages) = messages.as_array_mut() else { return };
        for message in messages {
            let assistant = message.get("role").and_then(Value::as_str) == Some("assistant");
            mark(message, if assistant { self.assistant.as_ref() } else { self.all.as_ref() });
        }
    }

    pub fn all(&self, value: &mut Value) {
        mark(value, self.all.as_ref());
    }
}

/// Whether the template tests content for this token, or cuts content at it.
fn looked_for(source: &str, token: &str) -> bool {
    const CALLS: [&str; 9] =
        ["split(", "startswith(", "endswith(", "replace(", "strip(", "find(", "partition(", "count(", "index("];
    source.match_indices(token).any(|(at, _)| {
        let (Some(before), Some(after)) = (source.get(..at), source.get(at + token.len()..)) else { return false };
        let Some(quote) = before.chars().next_back().filter(|c| matches!(c, '\'' | '"')) else { return false };
        let Some(after) = after.strip_prefix(quote) else { return false };
        let before = before[..before.len() - 1].trim_end();
        let after = after.trim_start();
        CALLS.iter().any(|call| before.ends_with(call)) || after.starts_with("in ") || after.starts_with("not in ")
    })
}

/// Walks all texts and keys of a value. JSON that came through a parser is nested 128 deep at most.
fn mark(value: &mut Value, finder: Option<&AhoCorasick>) {
    match value {
        Value::String(text) => {
            if let Some(marked) = mark_text(text, finder) {
                *text = marked;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| mark(item, finder)),
        Value::Object(fields) => {
            if fields.keys().any(|key| mark_text(key, finder).is_some()) {
                let old = std::mem::take(fields);
                fields.extend(old.into_iter().map(|(key, value)| (mark_text(&key, finder).unwrap_or(key), value)));
            }
            fields.values_mut().for_each(|value| mark(value, finder));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The marked text, or `None` where nothing is to be marked.
fn mark_text(text: &str, finder: Option<&AhoCorasick>) -> Option<String> {
    let clean = has_mark(text).then(|| text.replace(MARK, "\u{FFFD}"));
    let source = clean.as_deref().unwrap_or(text);
    let Some(finder) = finder.filter(|finder| finder.is_match(source)) else { return clean };
    let mut marked = String::with_capacity(source.len() + 16);
    let mut from = 0;
    // Marking the leftmost token may leave another that began inside it; look again behind the mark.
    while let Some(found) = source.get(from..).and_then(|rest| finder.find(rest)) {
        let start = from + found.start();
        let first = source[start..].chars().next().map_or(1, char::len_utf8);
        marked.push_str(&source[from..start + first]);
        marked.push(MARK);
        from = start + first;
    }
    marked.push_str(source.get(from..).unwrap_or_default());
    Some(marked)
}
