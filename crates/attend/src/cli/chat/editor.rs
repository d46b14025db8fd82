//! Line editing: history, completion of commands, texts of several lines.

use super::commands::NAMES;
use anyhow::Result;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Context, Helper};
use std::io::IsTerminal;
use std::path::PathBuf;

/// What was typed.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    Text(String),
    Nothing,
    End,
}

pub struct Editor {
    inner: rustyline::Editor<Assistant, DefaultHistory>,
    history: Option<PathBuf>,
}

impl Editor {
    pub fn open() -> Result<Editor> {
        let mut inner = rustyline::Editor::new()?;
        inner.set_helper(Some(Assistant));
        // A script's lines are nobody's history.
        let history = super::history_file().filter(|_| std::io::stdin().is_terminal());
        if let Some(file) = &history {
            // The first time there is none.
            let _ = inner.load_history(file);
        }
        Ok(Editor { inner, history })
    }

    pub fn read(&mut self) -> Result<Line> {
        let text = match self.inner.readline(">>> ") {
            Ok(text) => text,
            Err(ReadlineError::Eof) => return Ok(Line::End),
            Err(ReadlineError::Interrupted) => {
                super::screen::notice("(Ctrl-D or /exit leaves)");
                return Ok(Line::Nothing);
            }
            Err(error) => return Err(error.into()),
        };
        if text.trim().is_empty() {
            return Ok(Line::Nothing);
        }
        if let Some(file) = &self.history {
            // A conversation is not worth less because its lines cannot be kept.
            let _ = self.inner.add_history_entry(&text);
            let _ = file.parent().map(std::fs::create_dir_all);
            let _ = self.inner.save_history(file);
        }
        Ok(Line::Text(unfold(&text)))
    }
}

/// The text that was meant: without the quotes around several lines and the strokes at their ends.
fn unfold(text: &str) -> String {
    let text = text.trim();
    if let Some(inner) = text.strip_prefix(QUOTES).and_then(|rest| rest.strip_suffix(QUOTES)) {
        return inner.trim_matches('\n').to_owned();
    }
    text.replace("\\\n", "\n")
}

const QUOTES: &str = "\"\"\"";

fn is_complete(text: &str) -> bool {
    let quoted = text.trim_start().starts_with(QUOTES);
    if quoted { text.matches(QUOTES).count() >= 2 } else { !text.ends_with('\\') }
}

struct Assistant;

impl Validator for Assistant {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(if is_complete(context.input()) { ValidationResult::Valid(None) } else { ValidationResult::Incomplete })
    }
}

impl Completer for Assistant {
    type Candidate = String;

    fn complete(&self, line: &str, position: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        let typed = line.get(..position).unwrap_or(line);
        let fitting = NAMES.iter().filter(|name| typed.starts_with('/') && name.starts_with(typed));
        Ok((0, fitting.map(|name| (*name).to_owned()).collect()))
    }
}

impl Hinter for Assistant {
    type Hint = String;
}

impl Highlighter for Assistant {}

impl Helper for Assistant {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_lines() {
        assert!(is_complete("one line") && !is_complete("goes on\\") && !is_complete("\"\"\"open"));
        assert!(is_complete("\"\"\"a\nb\"\"\""));
        assert_eq!(unfold("\"\"\"\na\n  b\n\"\"\""), "a\n  b");
        assert_eq!(unfold("a\\\nb"), "a\nb");
        assert_eq!(unfold(" plain \"\"\" "), "plain \"\"\"");
    }
}
