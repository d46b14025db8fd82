//! Answers in channels: `<|channel|>NAME<|message|>TEXT<|end|>`, one message after the other.

use super::call::is_of_name;
use super::functions::Functions;
use super::{Call, Part};
use serde_json::{Map, Value};

pub(super) const CHANNEL: &str = "<|channel|>";
const MESSAGE: &str = "<|message|>";
const START: &str = "<|start|>";
/// What a message ends with.
const ENDS: [&str; 4] = ["<|end|>", "<|call|>", "<|return|>", START];
/// All of them.
pub(super) const MARKS: &[&str] = &[CHANNEL, MESSAGE, START, "<|end|>", "<|call|>", "<|return|>", "<|constrain|>"];
/// Bytes of a header.
const MAX_HEADER: usize = 512;

/// Where in the messages an answer is.
pub(super) struct Channels {
    at: At,
    /// The arguments of a call so far.
    held: String,
}

enum At {
    /// Before `<|message|>`; the prompt ends in the first one.
    Header {
        first: bool,
    },
    Reasoning,
    Content,
    /// The arguments of a function.
    Call(String),
}

impl Channels {
    pub fn new() -> Channels {
        Channels { at: At::Header { first: true }, held: String::new() }
    }

    /// Takes what is certain from what is pending.
    pub fn run(&mut self, pending: &mut String, functions: &Functions, last: bool, parts: &mut Vec<Part>) {
        while match self.at {
            At::Header { first } => self.header(pending, (first, last)),
            At::Reasoning | At::Content | At::Call(_) => self.body(pending, functions, last, parts),
        } {}
    }

    fn header(&mut self, pending: &mut String, (first, last): (bool, bool)) -> bool {
        let marked = pending.trim_start();
        let begins = |mark: &str| mark.starts_with(marked) || marked.starts_with(mark);
        let header = !first || [CHANNEL, START, "to="].into_iter().any(begins);
        match pending.find(MESSAGE) {
            Some(at) if header && at <= MAX_HEADER => {
                self.at = addressed(pending.get(..at).unwrap_or_default());
                *pending = pending.split_off(at + MESSAGE.len());
                true
            }
            _ if header && !last && pending.len() <= MAX_HEADER => false,
            // A header that was cut off says nothing.
            _ if last && (pending.is_empty() || MARKS.iter().any(|mark| marked.starts_with(mark))) => {
                pending.clear();
                false
            }
            // A model that writes no header says something.
            _ => {
                self.at = At::Content;
                true
            }
        }
    }

    fn body(&mut self, pending: &mut String, functions: &Functions, last: bool, parts: &mut Vec<Part>) -> bool {
        let end = ENDS.iter().filter_map(|end| Some((pending.find(end)?, end.len()))).min();
        let (text, ended) = match end {
            Some((at, length)) => {
                let rest = pending.split_off(at + length);
                let mut text = std::mem::replace(pending, rest);
                text.truncate(at);
                (text, true)
            }
            None => {
                let begun = |end: &&str| (1..end.len()).rev().find(|&length| pending.ends_with(&end[..length]));
                let keep = if last { 0 } else { ENDS.iter().filter_map(begun).max().unwrap_or(0) };
                let kept = pending.split_off(pending.len() - keep);
                (std::mem::replace(pending, kept), last)
            }
        };
        match &self.at {
            At::Reasoning if !text.is_empty() => parts.push(Part::Reasoning(text)),
            At::Content if !text.is_empty() => parts.push(Part::Content(text)),
            At::Call(_) => self.held.push_str(&text),
            At::Reasoning | At::Content | At::Header { .. } => {}
        }
        if ended && let At::Call(name) = std::mem::replace(&mut self.at, At::Header { first: false }) {
            let arguments = std::mem::take(&mut self.held);
            let whole = serde_json::from_str::<Map<String, Value>>(&arguments).is_ok() && functions.knows(&name);
            let call = Call { name, arguments: arguments.trim().to_owned() };
            parts.push(if whole { Part::Call(call) } else { Part::Content(arguments) });
        }
        end.is_some()
    }
}

/// What stands in a message: it is named by its channel, or goes to a function.
fn addressed(header: &str) -> At {
    let word = |text: &str| text.chars().take_while(|&c| is_of_name(c)).collect::<String>();
    let to = header.find("to=").and_then(|at| header.get(at + 3..)).map(word).unwrap_or_default();
    if let Some(name) = to.strip_prefix("functions.") {
        return At::Call(name.to_owned());
    }
    match header.rfind(CHANNEL).and_then(|at| header.get(at + CHANNEL.len()..)).map(|rest| word(rest.trim_start())) {
        Some(channel) if channel == "analysis" => At::Reasoning,
        Some(_) | None => At::Content,
    }
}
