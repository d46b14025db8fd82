//! Bounds on what is asked for, checked before anything is compiled, and on what compiling and matching may cost.

use super::Constraint;
use crate::error::Error;
use llguidance::api::ParserLimits;
use serde_json::Value;

/// Bytes of a schema, a grammar or all choices together.
pub const MAX_TEXT_BYTES: usize = 256 << 10;
/// Bytes of a regular expression.
pub const MAX_REGEX_BYTES: usize = 16 << 10;
/// Texts in a list of choices.
pub const MAX_CHOICES: usize = 4096;
/// How deep a schema, and the groups of a regular expression or grammar, may be nested.
pub const MAX_DEPTH: usize = 64;

/// What the library may spend. Its figures: 50,000 units of initial fuel a millisecond, 14,000 of a step's, 20,000 items a
/// millisecond, and up to 2 KB a state of the lexer.
pub(super) fn parser_limits() -> ParserLimits {
    ParserLimits {
        max_items_in_row: 2000,
        initial_lexer_fuel: 1_000_000,
        step_lexer_fuel: 100_000,
        step_max_items: 50_000,
        max_lexer_states: 20_000,
        max_grammar_size: 200_000,
        precompute_large_lexemes: false,
        verbose_errors: false,
    }
}

/// Refuses what is too large or too deep to be looked at.
pub(super) fn check(constraint: &Constraint) -> Result<(), Error> {
    let refuse = |reason: String| Err(refused(constraint, reason));
    let (bytes, most, depth) = match constraint {
        Constraint::JsonSchema { schema, .. } => (written(schema), MAX_TEXT_BYTES, depth(schema)),
        Constraint::JsonObject => return Ok(()),
        Constraint::Regex(text) => (text.len(), MAX_REGEX_BYTES, groups(text)),
        Constraint::Lark(text) | Constraint::Gbnf(text) => (text.len(), MAX_TEXT_BYTES, groups(text)),
        Constraint::Choice(list) if list.is_empty() => return refuse("it is empty".into()),
        Constraint::Choice(list) if list.len() > MAX_CHOICES => {
            return refuse(format!("it has {} texts, and at most {MAX_CHOICES} are read", list.len()));
        }
        Constraint::Choice(list) => (list.iter().map(String::len).sum(), MAX_TEXT_BYTES, 0),
    };
    if bytes > most {
        return refuse(format!("it has {bytes} bytes, and at most {most} are read"));
    }
    if depth > MAX_DEPTH {
        return refuse(format!("it is nested {depth} deep, and at most {MAX_DEPTH} levels are followed"));
    }
    Ok(())
}

pub(super) fn refused(constraint: &Constraint, reason: String) -> Error {
    Error::Constraint { what: constraint.name(), reason }
}

/// Bytes of a value as JSON.
fn written(value: &Value) -> usize {
    serde_json::to_string(value).map_or(usize::MAX, |text| text.len())
}

/// How deep a value is nested. Level by level: a value is as deep as its reader let it be.
fn depth(value: &Value) -> usize {
    let mut level = vec![value];
    let mut depth = 0;
    while !level.is_empty() {
        depth += 1;
        let children = level.into_iter().flat_map(|value| -> Vec<&Value> {
            match value {
                Value::Array(items) => items.iter().collect(),
                Value::Object(fields) => fields.values().collect(),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
            }
        });
        level = children.collect();
    }
    depth
}

/// The most brackets that are open at once, those in strings and classes counted too: a bound, not a parser.
fn groups(text: &str) -> usize {
    let (mut open, mut most, mut escaped) = (0usize, 0, false);
    for c in text.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '(' | '[' | '{' => open += 1,
            ')' | ']' | '}' => open = open.saturating_sub(1),
            _ => {}
        }
        most = most.max(open);
    }
    most
}
