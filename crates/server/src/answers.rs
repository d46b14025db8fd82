//! Answers of models taken apart for the dialects: thoughts, text, and calls with their ids.

use crate::functions::Offered;
use crate::host::Facts;
use crate::host::ask::{Enough, Said, Taken};
use attend_engine::Finish;
use attend_text::{AnswerReader, Call, Form, Functions, Part};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Reads the answers to one prompt.
pub struct Answers {
    /// None: all is text.
    form: Option<Form>,
    functions: Arc<Functions>,
    single: bool,
    opened: bool,
    readers: BTreeMap<usize, AnswerReader>,
    called: Vec<usize>,
    /// Told when a call came behind which nothing is wanted.
    enough: Option<Enough>,
}

/// A whole answer.
#[derive(Debug, Default)]
pub struct Whole {
    pub reasoning: String,
    pub content: String,
    pub calls: Vec<Call>,
}

impl Answers {
    /// Of a conversation with a model that can call what is offered; thoughts are told apart, or are text.
    pub fn new(facts: &Facts, offered: &Offered, separate: bool) -> Answers {
        let form = facts.form.clone().map(|form| if separate { form } else { form.without_thoughts() });
        let form = form.map(|form| if offered.binds() { form.held() } else { form });
        let form = form.filter(|form| form.has_parts() || !offered.is_empty());
        Answers { form, functions: offered.functions(), single: offered.single, ..Answers::plain() }
    }

    /// All is text.
    pub fn plain() -> Answers {
        Answers {
            form: None,
            functions: Arc::default(),
            single: false,
            opened: false,
            readers: BTreeMap::new(),
            called: Vec::new(),
            enough: None,
        }
    }

    /// What ends the answer behind its first call, where that is all that is wanted and there is but one answer.
    pub fn enough(&mut self, choices: usize) -> Option<Enough> {
        self.enough = (self.single && self.form.is_some() && choices == 1).then(Enough::default);
        self.enough.clone()
    }

    /// Another one for the same prompt, that looks on while an answer comes which is wanted whole.
    pub fn watcher(&self) -> impl FnMut(&Said) + use<> {
        let mut answers = Answers {
            form: self.form.clone(),
            functions: Arc::clone(&self.functions),
            single: self.single,
            enough: self.enough.clone(),
            ..Answers::plain()
        };
        move |said| match said {
            Said::Accepted(taken) => answers.begin(taken),
            Said::Token(piece) => drop(answers.push(piece.choice, &piece.text)),
            Said::Finished { .. } | Said::Done { .. } | Said::Failed(_) => {}
        }
    }

    /// The engine's parameters that show what has to be seen.
    pub fn given(&self, facts: &Facts) -> Option<(String, Value)> {
        let marks = self.form.as_ref()?.marks(!self.functions.is_empty(), &facts.tokenizer);
        (!marks.is_empty()).then(|| ("show_special".to_owned(), json!(marks)))
    }

    /// What became of the prompt.
    pub fn begin(&mut self, taken: &[Taken]) {
        self.opened = taken.iter().any(|taken| taken.opened);
    }

    /// The next piece of a choice.
    pub fn push(&mut self, choice: usize, text: &str) -> Vec<Part> {
        let parts = match self.reader(choice) {
            Some(reader) => reader.push(text),
            None if text.is_empty() => Vec::new(),
            None => vec![Part::Content(text.to_owned())],
        };
        self.note(choice, parts)
    }

    /// The end of a choice, with its last piece.
    pub fn finish(&mut self, choice: usize, text: &str) -> Vec<Part> {
        let mut parts = self.push(choice, text);
        if let Some(reader) = self.reader(choice) {
            parts.extend(reader.finish());
        }
        self.note(choice, parts)
    }

    /// A choice that came at once.
    pub fn whole(&mut self, choice: usize, text: &str) -> Whole {
        let mut whole = Whole::default();
        for part in self.finish(choice, text) {
            match part {
                Part::Reasoning(text) => whole.reasoning.push_str(&text),
                Part::Content(text) => whole.content.push_str(&text),
                Part::Call(call) => whole.calls.push(call),
            }
        }
        whole
    }

    /// Whether a choice ended by itself, and with calls.
    pub fn calls(&self, choice: usize, finish: &Finish) -> bool {
        let ended = match finish {
            Finish::EndToken(_) | Finish::StopToken(_) | Finish::StopText(_) | Finish::Complete => true,
            // It was we who ended it.
            Finish::Cancelled => self.enough.as_ref().is_some_and(|enough| enough.load(Ordering::Relaxed)),
            Finish::MaxTokens | Finish::Context => false,
        };
        ended && self.called.contains(&choice)
    }

    fn reader(&mut self, choice: usize) -> Option<&mut AnswerReader> {
        let form = self.form.as_ref()?;
        let make = || AnswerReader::new(form, Arc::clone(&self.functions), self.opened).single(self.single);
        Some(self.readers.entry(choice).or_insert_with(make))
    }

    fn note(&mut self, choice: usize, parts: Vec<Part>) -> Vec<Part> {
        if parts.iter().any(|part| matches!(part, Part::Call(_))) && !self.called.contains(&choice) {
            self.called.push(choice);
            if let Some(enough) = &self.enough {
                enough.store(true, Ordering::Relaxed);
            }
        }
        parts
    }
}

/// A fresh id of a call, which nobody can guess.
pub fn call_id(prefix: &str) -> String {
    let random = || RandomState::new().hash_one(0u8);
    let id = format!("{:016x}{:016x}", random(), random());
    format!("{prefix}{}", &id[..24])
}

/// The arguments of a call as an object.
pub fn object(call: &Call) -> Value {
    serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}))
}
