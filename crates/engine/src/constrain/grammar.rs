//! Every kind of constraint as a grammar of the library.

use super::{Constraint, gbnf, limits, whitespace};
use crate::error::Error;
use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use serde_json::{Value, json};

pub(super) fn of(constraint: &Constraint) -> Result<TopLevelGrammar, Error> {
    let refused = |reason: String| limits::refused(constraint, reason);
    let grammar = match constraint {
        Constraint::JsonSchema { schema, lenient } => {
            GrammarWithLexer::from_json_schema(checked(schema, *lenient).map_err(refused)?)
        }
        Constraint::JsonObject => {
            GrammarWithLexer::from_json_schema(whitespace::bounded(&json!({ "type": "object" }), false))
        }
        Constraint::Regex(text) => GrammarWithLexer::from_regex(unanchored(text)),
        Constraint::Choice(list) => GrammarWithLexer::from_lark(choice(list)),
        Constraint::Lark(text) => GrammarWithLexer::from_lark(text.clone()),
        Constraint::Gbnf(text) => GrammarWithLexer::from_lark(gbnf::to_lark(text).map_err(refused)?),
    };
    Ok(TopLevelGrammar::from_grammar(grammar))
}

/// A schema with the options that it is read with.
fn checked(schema: &Value, lenient: bool) -> Result<Value, String> {
    if !matches!(schema, Value::Object(_) | Value::Bool(true)) {
        return Err("it must be an object".into());
    }
    Ok(whitespace::bounded(schema, lenient))
}

/// A regular expression describes the whole answer: anchors at its two ends say nothing more.
fn unanchored(text: &str) -> &str {
    let text = text.strip_prefix('^').unwrap_or(text);
    match text.strip_suffix('$') {
        // A backslash before it makes it a dollar sign, unless that backslash is itself behind one.
        Some(rest) if rest.len().wrapping_sub(rest.trim_end_matches('\\').len()) % 2 == 0 => rest,
        Some(_) | None => text,
    }
}

/// One terminal, so that the lexer holds all texts in one automaton.
fn choice(list: &[String]) -> String {
    let texts: Vec<String> = list.iter().map(|text| Value::from(text.as_str()).to_string()).collect();
    format!("start: CHOICE\nCHOICE: {}", texts.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::unanchored;

    #[test]
    fn anchors_at_the_ends_say_nothing() {
        for (text, plain) in [("^a$", "a"), ("a", "a"), (r"^a\$", r"a\$"), (r"a\\$", r"a\\"), ("$", ""), ("^^a", "^a")]
        {
            assert_eq!(unanchored(text), plain, "{text}");
        }
    }
}
