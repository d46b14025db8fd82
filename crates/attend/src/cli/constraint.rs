//! The options that say what an answer as a whole must be.

use attend_engine::Constraint;
use clap::Args;
use serde_json::Value;
use std::path::Path;

#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "What the answer must be (one of these)")]
#[group(id = "constraint", multiple = false)]
pub struct ConstraintArgs {
    /// JSON that a schema describes; the schema itself, or a file that holds it
    #[arg(long, value_name = "FILE|SCHEMA", value_parser = schema)]
    pub json_schema: Option<Value>,
    /// A JSON object
    #[arg(long)]
    pub json_object: bool,
    /// A text that a regular expression matches from its beginning to its end
    #[arg(long, value_name = "PATTERN")]
    pub regex: Option<String>,
    /// One of these texts (may be repeated)
    #[arg(long, value_name = "TEXT")]
    pub choice: Vec<String>,
    /// A text of the language that a file describes in Lark's notation, or in llama.cpp's (GBNF)
    #[arg(long, value_name = "FILE", value_parser = grammar)]
    pub grammar: Option<Constraint>,
}

impl ConstraintArgs {
    /// What is wanted, with its flag.
    pub fn wanted(&self) -> Option<(&'static str, Constraint)> {
        if let Some(schema) = &self.json_schema {
            return Some(("json-schema", Constraint::schema(schema.clone())));
        }
        if let Some(pattern) = &self.regex {
            return Some(("regex", Constraint::Regex(pattern.clone())));
        }
        if let Some(grammar) = &self.grammar {
            return Some(("grammar", grammar.clone()));
        }
        if !self.choice.is_empty() {
            return Some(("choice", Constraint::Choice(self.choice.clone())));
        }
        self.json_object.then_some(("json-object", Constraint::JsonObject))
    }
}

fn schema(text: &str) -> Result<Value, String> {
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(text).map_err(|error| format!("the schema is not valid JSON: {error}"));
    }
    let read = file(text)?;
    serde_json::from_str(&read).map_err(|error| format!("{text} is not valid JSON: {error}"))
}

fn grammar(path: &str) -> Result<Constraint, String> {
    let text = file(path)?;
    let ending = Path::new(path).extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    Ok(match ending.to_ascii_lowercase().as_str() {
        "gbnf" => Constraint::Gbnf(text),
        "lark" => Constraint::Lark(text),
        _ => Constraint::grammar(text),
    })
}

/// A file's text, unless it is larger than any constraint may be.
fn file(path: &str) -> Result<String, String> {
    let most = attend_engine::constrain::MAX_TEXT_BYTES as u64;
    let size = std::fs::metadata(path).map_err(|error| format!("{path}: {error}"))?.len();
    if size > most {
        return Err(format!("{path} has {size} bytes, and at most {most} are read"));
    }
    std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))
}
