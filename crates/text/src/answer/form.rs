//! How a model writes, told from its chat template and its vocabulary.

use super::harmony;
use super::program::{CallForm, Opening};
use crate::template::ChatTemplate;
use crate::tokenizer::Tokenizer;

/// The marks around thoughts.
pub(super) type Thinking = (&'static str, &'static str);

const THINKING: [Thinking; 2] = [("<think>", "</think>"), ("[THINK]", "[/THINK]")];

/// The marks that a model puts around its thoughts and calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Form {
    pub(super) calls: Vec<CallForm>,
    pub(super) thinking: Option<Thinking>,
    /// Everything stands in channels.
    pub(super) channels: bool,
    /// The template shows the model which functions there are.
    lists_tools: bool,
    /// How a call is written whose form is not left to the model.
    written: Written,
    /// Calls are written in that form and no other.
    held: bool,
}

/// One way to write calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// `<tool_call>` around objects.
    Tagged,
    /// Objects alone.
    Objects,
    /// `[TOOL_CALLS]` and a list of objects, or with `true` a name and `[ARGS]`.
    Bracketed(bool),
    /// Each call between marks of its own, with `true` around fenced arguments.
    Separated(bool),
    /// `<|tool_call|>` and a list of objects.
    Listed,
    /// A channel that is addressed to a function.
    Channels,
}

impl Form {
    /// What the template says, or where it says nothing the vocabulary.
    pub fn of(template: &ChatTemplate, tokenizer: &Tokenizer) -> Form {
        let sources: Vec<&str> = template.sources().map(|(_, source)| source).collect();
        let says = |mark: &str| sources.iter().any(|source| source.contains(mark));
        let lists_tools = sources.iter().any(|source| mentions(source, "tools"));
        let thinking = THINKING
            .into_iter()
            .find(|(open, close)| says(open) || says(close))
            .or_else(|| THINKING.into_iter().find(|(open, _)| tokenizer.id(open).is_some()));
        let channels = says(harmony::CHANNEL);
        let calls = if channels { Vec::new() } else { calls(&says, lists_tools, tokenizer) };
        let written = match calls.first() {
            None => Written::Channels,
            // There we have said how.
            Some(_) if !lists_tools => Written::Tagged,
            Some(CallForm::Tagged) => Written::Tagged,
            Some(CallForm::PythonTag | CallForm::Bare) => Written::Objects,
            Some(CallForm::Bracketed) => Written::Bracketed(says("[ARGS]")),
            Some(CallForm::Separated) => Written::Separated(says("```json")),
            Some(CallForm::Listed) => Written::Listed,
        };
        Form { calls, thinking, channels, lists_tools, written, held: false }
    }

    /// How a call is written whose form is not left to the model.
    pub fn written(&self) -> Written {
        self.written
    }

    /// The same, for which calls in any other form are text. Where marks may be forgotten, an object at the beginning of an answer
    /// is a call if [`Form::forgets_marks`] says so and its name and arguments come first, in this order.
    pub fn held(self) -> Form {
        let kept: &[CallForm] = match self.written {
            Written::Tagged if self.forgets_marks() => &[CallForm::Tagged, CallForm::Bare],
            Written::Tagged => &[CallForm::Tagged],
            Written::Objects => &[CallForm::PythonTag, CallForm::Bare],
            Written::Bracketed(_) => &[CallForm::Bracketed],
            Written::Separated(_) => &[CallForm::Separated],
            Written::Listed => &[CallForm::Listed],
            Written::Channels => &[],
        };
        let calls = if self.channels { self.calls } else { kept.to_vec() };
        Form { calls, held: true, ..self }
    }

    /// Whether objects without marks, in a fence or not, are calls where an answer begins with them.
    pub fn forgets_marks(&self) -> bool {
        self.written == Written::Tagged && self.calls.contains(&CallForm::Bare)
    }

    pub(super) fn is_held(&self) -> bool {
        self.held
    }

    /// The same, for which thoughts are text.
    pub fn without_thoughts(self) -> Form {
        Form { thinking: None, ..self }
    }

    /// The mark that begins a thought.
    pub fn start_of_thought(&self) -> Option<&'static str> {
        self.thinking.map(|(open, _)| open)
    }

    /// The mark that ends a thought.
    pub fn end_of_thought(&self) -> Option<&'static str> {
        self.thinking.map(|(_, close)| close)
    }

    /// Whether the template shows the model which functions there are, and what they returned.
    pub fn lists_tools(&self) -> bool {
        self.lists_tools
    }

    /// Whether answers have parts even where nothing can be called.
    pub fn has_parts(&self) -> bool {
        self.channels || self.thinking.is_some()
    }

    /// Whether a prompt's end has begun a thought already.
    pub fn is_opened_by(&self, prompt: &str) -> bool {
        self.thinking.is_some_and(|(open, _)| prompt.trim_end().ends_with(open))
    }

    /// The special tokens that must be seen in an answer, with calls or without.
    pub fn marks(&self, calls: bool, tokenizer: &Tokenizer) -> Vec<u32> {
        let channels = if self.channels { harmony::MARKS } else { &[] };
        let thinking = self.thinking.iter().flat_map(|(open, close)| [*open, *close]);
        let called = self.calls.iter().filter(|_| calls).flat_map(|form| form.marks().iter().copied());
        let all = channels.iter().copied().chain(thinking).chain(called);
        all.filter_map(|mark| tokenizer.id(mark)).filter(|&id| tokenizer.is_special(id)).collect()
    }

    pub(super) fn openings(&self) -> impl Iterator<Item = Opening> {
        let each = if self.held { 1 } else { usize::MAX };
        self.calls.iter().flat_map(move |form| form.openings().iter().copied().take(each))
    }

    /// What begins a call at the beginning of an answer, beside marks.
    pub(super) fn bare(&self) -> impl Iterator<Item = (&'static str, Opening)> {
        let (fence, _, _) = CallForm::FENCE;
        let all = [("{", CallForm::BARE), (fence, CallForm::FENCE)].into_iter();
        let kept = match (self.calls.contains(&CallForm::Bare), self.held) {
            (false, _) => 0,
            (true, true) if self.written == Written::Objects => 1,
            (true, _) => 2,
        };
        all.take(kept)
    }
}

fn calls(says: &impl Fn(&str) -> bool, lists_tools: bool, tokenizer: &Tokenizer) -> Vec<CallForm> {
    use CallForm::{Bare, Bracketed, Listed, PythonTag, Separated, Tagged};
    let mut found = Vec::new();
    for form in [Tagged, PythonTag, Bracketed, Separated, Listed] {
        if form.openings().iter().any(|(mark, _, _)| says(mark)) {
            found.push(form);
        }
    }
    if lists_tools && found.is_empty() {
        // Objects with nothing around them are what is left, and what goes with that tag.
        let tag = tokenizer.id("<|python_tag|>").is_some();
        found.extend(if tag { vec![PythonTag, Bare] } else { vec![Bare] });
    }
    // Where we have to say how calls are written, we say this; and where a template says nothing it is most usual.
    if !found.contains(&Tagged) && (!lists_tools || found == [Bare]) {
        found.push(Tagged);
    }
    // Small models forget the marks around an object.
    if !found.contains(&Bare) && (found.contains(&Tagged) || found == [PythonTag]) {
        found.push(Bare);
    }
    found
}

/// Whether a source has this word.
pub(crate) fn mentions(source: &str, word: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    source.match_indices(word).any(|(at, _)| {
        let before = source.get(..at).and_then(|text| text.chars().next_back());
        let after = source.get(at + word.len()..).and_then(|text| text.chars().next());
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}
