//! The size of a grammar, in either notation: strings, expressions and embedded schemas are looked at, rules are counted.

use super::{MAX_DEPTH, MAX_INTERSECTIONS, MAX_REGEXES_BYTES, MAX_TEXT_BYTES, regex, schema, within};
use serde_json::Value;

/// Bytes of a grammar beside the schemas in it.
const MAX_RULES_BYTES: usize = 32 << 10;
const MAX_RULES: usize = 1000;
/// Parts that may be left out or repeated.
const MAX_REPEATS: usize = 1000;

#[derive(Default)]
struct Sizes {
    bytes: usize,
    rules: usize,
    repeats: usize,
    intersections: usize,
    regex_bytes: usize,
    open: usize,
    deepest: usize,
}

pub(super) fn check(text: &str) -> Result<(), String> {
    within(text.len(), MAX_TEXT_BYTES, "bytes")?;
    let mut sizes = Sizes::default();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let length = match c {
            '"' => literal(rest, '"'),
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' => {
                let length = literal(rest, '/');
                sizes.regex_bytes += length;
                regex(&rest[..length]).map_err(|reason| format!("an expression: {reason}"))?;
                length
            }
            '#' => rest.find('\n').unwrap_or(rest.len()),
            '%' if rest.starts_with("%json") => {
                let (length, value) = embedded(rest)?;
                schema::check(&value)?;
                rest = &rest[length..];
                continue;
            }
            c => {
                sizes.count(c, rest);
                c.len_utf8()
            }
        };
        sizes.bytes += length;
        rest = &rest[length..];
    }
    sizes.check()
}

impl Sizes {
    fn count(&mut self, c: char, rest: &str) {
        match c {
            ':' => self.rules += 1,
            '?' | '*' | '+' => self.repeats += 1,
            '&' => self.intersections += 1,
            '~' if !rest[1..].trim_start().starts_with(|c: char| c.is_ascii_digit()) => self.intersections += 1,
            '~' => self.repeats += 1,
            '(' | '[' | '{' => {
                self.repeats += usize::from(c != '(');
                self.open += 1;
                self.deepest = self.deepest.max(self.open);
            }
            ')' | ']' | '}' => self.open = self.open.saturating_sub(1),
            _ => {}
        }
    }

    fn check(&self) -> Result<(), String> {
        within(self.bytes, MAX_RULES_BYTES, "bytes of rules")?;
        within(self.rules, MAX_RULES, "rules")?;
        within(self.repeats, MAX_REPEATS, "repetitions")?;
        within(self.intersections, MAX_INTERSECTIONS, "intersections")?;
        within(self.regex_bytes, MAX_REGEXES_BYTES, "bytes of expressions")?;
        within(self.deepest, MAX_DEPTH, "groups inside one another")
    }
}

/// The bytes of a string or an expression with its two ends.
fn literal(text: &str, close: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == close => return at + 1,
            '\n' => return at,
            _ => {}
        }
    }
    text.len()
}

/// The schema behind `%json`, and the bytes of both.
fn embedded(text: &str) -> Result<(usize, Value), String> {
    let word = "%json".len();
    let mut values = serde_json::Deserializer::from_str(&text[word..]).into_iter::<Value>();
    match values.next() {
        Some(Ok(value)) => Ok((word + values.byte_offset(), value)),
        Some(Err(error)) => Err(format!("%json: {error}")),
        None => Err("%json has nothing behind it".into()),
    }
}
