//! Bounds on what is asked for, checked before anything is compiled, and on what compiling and matching may cost.
//!
//! Most of what is too costly the library finds out itself, by counting. What it cannot count, because one step of it grows with
//! the square of a list or with the product of automata, is refused by the shape of the text: each bound here is about what
//! compiles in a tenth of a second and 32 MiB.

mod joins;
mod lark;
mod schema;

use super::Constraint;
use crate::error::Error;
use llguidance::api::ParserLimits;

/// Bytes of a schema, a grammar or all choices together.
pub const MAX_TEXT_BYTES: usize = 256 << 10;
/// Bytes of a regular expression, also inside a schema or grammar.
pub const MAX_REGEX_BYTES: usize = 4096;
/// Bytes of all regular expressions in a schema or grammar.
const MAX_REGEXES_BYTES: usize = 8192;
/// Texts in a list of choices.
pub const MAX_CHOICES: usize = 4096;
/// How deep a schema, and the groups of a regular expression or grammar, may be nested.
pub const MAX_DEPTH: usize = 64;
/// Automata that are intersected or complemented.
const MAX_INTERSECTIONS: usize = 8;

/// What the library may spend. Its figures: 50,000 units of initial fuel a millisecond, 14,000 of a step's, 20,000 items a
/// millisecond, and up to 2 KB a state of the lexer.
pub(super) fn parser_limits() -> ParserLimits {
    ParserLimits {
        max_items_in_row: 1000,
        initial_lexer_fuel: 1_000_000,
        step_lexer_fuel: 100_000,
        step_max_items: 20_000,
        max_lexer_states: 20_000,
        max_grammar_size: 50_000,
        precompute_large_lexemes: false,
        verbose_errors: false,
    }
}

/// Refuses what is too large or too deep to be looked at.
pub(super) fn check(constraint: &Constraint) -> Result<(), Error> {
    let fault = match constraint {
        Constraint::JsonSchema { schema, .. } => schema::check(schema),
        Constraint::JsonObject => Ok(()),
        Constraint::Regex(text) => regex(text),
        Constraint::Choice(list) => choices(list),
        Constraint::Lark(text) | Constraint::Gbnf(text) => lark::check(text),
    };
    fault.map_err(|reason| refused(constraint, reason))
}

pub(super) fn refused(constraint: &Constraint, reason: String) -> Error {
    Error::Constraint { what: constraint.name(), reason }
}

fn choices(list: &[String]) -> Result<(), String> {
    if list.is_empty() {
        return Err("it is empty".into());
    }
    within(list.len(), MAX_CHOICES, "texts")?;
    within(list.iter().map(String::len).sum(), MAX_TEXT_BYTES, "bytes")
}

fn regex(text: &str) -> Result<(), String> {
    within(text.len(), MAX_REGEX_BYTES, "bytes")?;
    within(groups(text), MAX_DEPTH, "groups inside one another")
}

fn within(count: usize, most: usize, what: &str) -> Result<(), String> {
    if count <= most { Ok(()) } else { Err(format!("it has {count} {what}, and at most {most} are followed")) }
}

/// The most brackets that are open at once, those in classes counted too: a bound, not a parser.
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
