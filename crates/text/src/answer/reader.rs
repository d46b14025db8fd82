//! Takes an answer apart while it comes.

use super::Part;
use super::call::{CallReader, Progress};
use super::form::Form;
use super::functions::Functions;
use super::harmony::Channels;
use super::program::Opening;
use std::sync::Arc;

/// Bytes that are read again at most because what looked like a call was none; beyond that calls are not looked for.
const AGAIN: usize = 4 << 20;

/// Reads one answer.
pub struct AnswerReader {
    functions: Arc<Functions>,
    form: Form,
    channels: Option<Channels>,
    openings: Vec<Opening>,
    stage: Stage,
    /// Text of which it is not known yet what it is.
    pending: String,
    /// White space that is text only if more text follows.
    space: String,
    /// Something else came before, from which the text is parted by white space that is no part of it.
    fresh: bool,
    again: usize,
    /// One call is enough.
    single: bool,
    called: bool,
}

enum Stage {
    /// Nothing was said yet; with `true` nothing was thought either.
    Start(bool),
    Thinking(&'static str),
    Text,
    Call(Box<CallReader>),
    /// Nothing that comes is wanted.
    Over,
}

impl AnswerReader {
    /// `opened`: the prompt ends inside a thought. Without functions, calls are text.
    pub fn new(form: &Form, functions: Arc<Functions>, opened: bool) -> AnswerReader {
        let openings = if functions.is_empty() { Vec::new() } else { form.openings().collect() };
        let stage = match form.thinking {
            Some((_, close)) if opened => Stage::Thinking(close),
            _ => Stage::Start(true),
        };
        AnswerReader {
            channels: form.channels.then(Channels::new),
            functions,
            form: form.clone(),
            openings,
            fresh: matches!(stage, Stage::Thinking(_)),
            stage,
            pending: String::new(),
            space: String::new(),
            again: 0,
            single: false,
            called: false,
        }
    }

    /// The same, for which the answer ends with its first call.
    pub fn single(self, single: bool) -> AnswerReader {
        AnswerReader { single, ..self }
    }

    /// Whether nothing that comes is wanted any more.
    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    /// The next piece of the answer.
    pub fn push(&mut self, text: &str) -> Vec<Part> {
        self.pending.push_str(text);
        let mut parts = Vec::new();
        self.go(false, &mut parts);
        parts
    }

    /// The end of the answer.
    pub fn finish(&mut self) -> Vec<Part> {
        let mut parts = Vec::new();
        self.go(true, &mut parts);
        if matches!(self.stage, Stage::Start(_) | Stage::Text) && !self.fresh && !self.space.is_empty() {
            parts.push(Part::Content(std::mem::take(&mut self.space)));
        }
        self.stage = Stage::Over;
        parts
    }

    fn go(&mut self, last: bool, parts: &mut Vec<Part>) {
        if let Some(channels) = &mut self.channels {
            let mut found = Vec::new();
            channels.run(&mut self.pending, &self.functions, last, &mut found);
            for part in found {
                self.give(part, parts);
            }
            return;
        }
        while match &self.stage {
            Stage::Start(_) => self.start(last),
            Stage::Thinking(close) => self.think(close, last, parts),
            Stage::Text => self.text(last, parts),
            Stage::Call(_) => self.call(last, parts),
            Stage::Over => {
                self.pending.clear();
                false
            }
        } {}
    }

    /// Hands a part out, unless the answer is over.
    fn give(&mut self, part: Part, parts: &mut Vec<Part>) {
        if self.is_over() {
            return;
        }
        if matches!(part, Part::Call(_)) {
            self.called = true;
            if self.single {
                self.stage = Stage::Over;
            }
        }
        parts.push(part);
    }

    /// Each of the stages returns whether the next one can go on.
    fn start(&mut self, last: bool) -> bool {
        let text = self.pending.trim_start();
        let (space, text) = self.pending.split_at(self.pending.len() - text.len());
        if !self.fresh {
            self.space.push_str(space);
        }
        let text = text.to_owned();
        self.pending = text;
        if self.pending.is_empty() {
            return false;
        }
        if let (Stage::Start(true), Some((open, close))) = (&self.stage, self.form.thinking) {
            if let Some(rest) = self.pending.strip_prefix(open) {
                self.pending = rest.to_owned();
                self.begin_behind(Stage::Thinking(close));
                return true;
            }
            if open.starts_with(self.pending.as_str()) && !last {
                return false;
            }
        }
        let bare = || self.form.bare().filter(|_| !self.openings_off());
        if !last && bare().any(|(begin, _)| begin.len() > self.pending.len() && begin.starts_with(&self.pending)) {
            return false;
        }
        let opening = bare().find(|(begin, _)| self.pending.starts_with(begin));
        self.stage = match opening {
            Some((_, opening)) => {
                let call = CallReader::new(opening, std::mem::take(&mut self.pending));
                Stage::Call(Box::new(call.ordered(self.form.is_held())))
            }
            None => Stage::Text,
        };
        true
    }

    fn openings_off(&self) -> bool {
        self.functions.is_empty() || self.again > AGAIN
    }

    /// Goes on behind something that white space parts from what follows.
    fn begin_behind(&mut self, stage: Stage) {
        self.space.clear();
        self.fresh = true;
        self.stage = stage;
    }

    fn think(&mut self, close: &'static str, last: bool, parts: &mut Vec<Part>) -> bool {
        if let Some(at) = self.pending.find(close) {
            let rest = self.pending.split_off(at);
            self.emit(Part::Reasoning, parts);
            self.pending = rest.get(close.len()..).unwrap_or_default().to_owned();
            self.begin_behind(Stage::Start(false));
            return true;
        }
        self.emit_certain(&[close], last, Part::Reasoning, parts);
        false
    }

    fn text(&mut self, last: bool, parts: &mut Vec<Part>) -> bool {
        let openings = if self.openings_off() { &[] } else { self.openings.as_slice() };
        let places = openings.iter().filter_map(|opening| Some((self.pending.find(opening.0)?, *opening)));
        let Some((at, opening)) = places.min_by_key(|(at, _)| *at) else {
            let marks: Vec<&'static str> = openings.iter().map(|(mark, _, _)| *mark).collect();
            self.emit_certain(&marks, last, Part::Content, parts);
            return false;
        };
        let call = self.pending.split_off(at);
        self.emit(Part::Content, parts);
        self.stage = Stage::Call(Box::new(CallReader::new(opening, call)));
        true
    }

    fn call(&mut self, last: bool, parts: &mut Vec<Part>) -> bool {
        let Stage::Call(mut call) = std::mem::replace(&mut self.stage, Stage::Text) else { return false };
        call.push(&self.pending);
        self.pending.clear();
        let progress = call.run(&self.functions, last);
        let found = call.take();
        if !found.is_empty() {
            self.space.clear();
            self.fresh = true;
        }
        for found in found {
            self.give(Part::Call(found), parts);
        }
        match progress {
            _ if self.is_over() => return true,
            Progress::More => {
                self.stage = Stage::Call(call);
                return false;
            }
            Progress::Done => self.pending = call.into_rest(),
            Progress::Broken => {
                let (text, rest) = call.into_text();
                self.pending = text;
                // At the end nothing in it can be a call any more that is whole.
                if last {
                    self.pending.push_str(&rest);
                    self.emit(Part::Content, parts);
                    return false;
                }
                self.emit(Part::Content, parts);
                self.again = self.again.saturating_add(rest.len());
                self.pending = rest;
            }
        }
        !self.pending.is_empty()
    }

    /// Hands out what is pending, but for what one of the marks may begin with.
    fn emit_certain(&mut self, marks: &[&str], last: bool, kind: fn(String) -> Part, parts: &mut Vec<Part>) {
        let begun = |mark: &&str| {
            let mut lengths = (1..mark.len()).rev().filter(|&length| mark.is_char_boundary(length));
            lengths.find(|&length| mark.get(..length).is_some_and(|begin| self.pending.ends_with(begin)))
        };
        let keep = if last { 0 } else { marks.iter().filter_map(begun).max().unwrap_or(0) };
        let kept = self.pending.split_off(self.pending.len() - keep);
        self.emit(kind, parts);
        self.pending = kept;
    }

    /// Hands out what is pending, but for white space at its end.
    fn emit(&mut self, kind: fn(String) -> Part, parts: &mut Vec<Part>) {
        let pending = std::mem::take(&mut self.pending);
        let text = if self.fresh { pending.trim_start() } else { pending.as_str() };
        let body = text.trim_end();
        if !body.is_empty() {
            let mut out = std::mem::take(&mut self.space);
            out.push_str(body);
            self.fresh = false;
            parts.push(kind(out));
        }
        if !self.fresh {
            self.space.push_str(text.get(body.len()..).unwrap_or_default());
        }
    }
}
