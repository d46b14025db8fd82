//! A call on its way: the text behind an opening mark, until it is whole or cannot become a call any more.

use super::json::{JsonScan, Seen, items, member};
use super::program::{Opening, Step};
use super::{Call, Functions};
use serde_json::{Map, Value};

/// Bytes of a name.
const MAX_NAME: usize = 128;
/// The members of which one stands first in a call.
const KEYS: [&str; 6] = ["name", "arguments", "parameters", "type", "function", "id"];

/// How far a call has come.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// It needs more text.
    More,
    /// It has ended; what is left behind it is text.
    Done,
    /// It is none, or what follows the calls that were whole is none.
    Broken,
}

/// What a step found.
enum Found {
    /// Go on here.
    At(usize),
    Stop(Progress),
}

pub(super) struct CallReader {
    steps: &'static [Step],
    step: usize,
    /// The opening mark and everything behind it.
    held: String,
    /// What of it was read.
    at: usize,
    /// The JSON that is being read, and how far it was scanned.
    json: Option<(JsonScan, usize)>,
    /// Where the search for the end of a value goes on.
    searched: usize,
    name: String,
    key: String,
    arguments: Map<String, Value>,
    /// Behind the last whole call.
    whole: usize,
    mark: usize,
    found: Vec<Call>,
    /// Only objects that begin with the name and the arguments are calls.
    ordered: bool,
}

impl CallReader {
    /// `held` begins with the opening mark.
    pub fn new((mark, steps, step): Opening, held: String) -> CallReader {
        CallReader {
            steps,
            step,
            held,
            at: mark.len(),
            json: None,
            searched: mark.len(),
            name: String::new(),
            key: String::new(),
            arguments: Map::new(),
            whole: 0,
            mark: mark.len().max(1),
            found: Vec::new(),
            ordered: false,
        }
    }

    /// The same, for which no object is a call that does not begin with the name and the arguments, as one does whose arguments
    /// were held to a schema.
    pub fn ordered(self, ordered: bool) -> CallReader {
        CallReader { ordered, ..self }
    }

    pub fn push(&mut self, text: &str) {
        self.held.push_str(text);
    }

    /// Calls that have become whole.
    pub fn take(&mut self) -> Vec<Call> {
        std::mem::take(&mut self.found)
    }

    /// What was no call: the part that is text for certain, and the rest, which may hold another.
    pub fn into_text(self) -> (String, String) {
        let mut first = self.held;
        let cut = if self.whole > 0 { self.whole } else { self.mark };
        let rest = first.split_off(cut.min(first.len()));
        if self.whole > 0 { (String::new(), rest) } else { (first, rest) }
    }

    /// What stands behind the calls.
    pub fn into_rest(self) -> String {
        let mut held = self.held;
        held.split_off(self.at.min(held.len()))
    }

    /// Goes on as far as the text allows; with `last` there is no more.
    pub fn run(&mut self, functions: &Functions, last: bool) -> Progress {
        loop {
            let Some(step) = self.steps.get(self.step).copied() else { return Progress::Broken };
            match self.one(step, functions, last) {
                Found::At(step) => self.step = step,
                Found::Stop(Progress::More) if last => return Progress::Broken,
                Found::Stop(progress) => return progress,
            }
        }
    }

    fn one(&mut self, step: Step, functions: &Functions, last: bool) -> Found {
        let next = Found::At(self.step + 1);
        match step {
            Step::Space => {
                let rest = self.rest();
                let text = rest.trim_start().len();
                self.at += rest.len() - text;
                if text == 0 && !last { Found::Stop(Progress::More) } else { next }
            }
            Step::Text(mark) => match self.stands(mark, last) {
                Some(true) => self.skip(mark, self.step + 1),
                Some(false) => Found::Stop(Progress::Broken),
                None => Found::Stop(Progress::More),
            },
            Step::Maybe(mark) => match self.stands(mark, last) {
                Some(true) => {
                    let found = self.skip(mark, self.step + 1);
                    // What closes a call belongs to it.
                    if self.whole > 0 && self.name.is_empty() {
                        self.whole = self.at;
                    }
                    found
                }
                Some(false) => next,
                None => Found::Stop(Progress::More),
            },
            Step::If(mark, step) => match self.stands(mark, last) {
                Some(true) => self.skip(mark, step),
                Some(false) => next,
                None => Found::Stop(Progress::More),
            },
            Step::See(mark, step) => match self.stands(mark, last) {
                Some(true) => Found::At(step),
                Some(false) => next,
                None => Found::Stop(Progress::More),
            },
            Step::Go(step) => Found::At(step),
            Step::Calls => self.json(|reader, text| reader.calls(text, functions)),
            Step::Arguments => self.json(|reader, text| {
                let call = call(std::mem::take(&mut reader.name), text, functions)?;
                Some(vec![call])
            }),
            Step::Name => self.name(),
            Step::Skip(mark) => self.up_to(mark).map_or_else(Found::Stop, |_| next),
            Step::Key => match self.up_to(">") {
                Ok(key) => {
                    self.key = key;
                    next
                }
                Err(progress) => Found::Stop(progress),
            },
            Step::Value(mark) => self.value(mark, functions, last),
            Step::Whole => {
                let arguments = Value::Object(std::mem::take(&mut self.arguments)).to_string();
                match call(std::mem::take(&mut self.name), &arguments, functions) {
                    Some(call) => {
                        self.found.push(call);
                        self.whole = self.at;
                        next
                    }
                    None => Found::Stop(Progress::Broken),
                }
            }
            Step::Done => Found::Stop(Progress::Done),
        }
    }

    fn rest(&self) -> &str {
        self.held.get(self.at..).unwrap_or_default()
    }

    fn skip(&mut self, mark: &str, step: usize) -> Found {
        self.at += mark.len();
        Found::At(step)
    }

    /// Whether a mark stands here; None: it may yet.
    fn stands(&self, mark: &str, last: bool) -> Option<bool> {
        let rest = self.rest();
        match rest.starts_with(mark) {
            true => Some(true),
            false if !last && mark.starts_with(rest) => None,
            false => Some(false),
        }
    }

    fn name(&mut self) -> Found {
        let rest = self.rest();
        let length = rest.find(|c| !is_of_name(c)).unwrap_or(rest.len());
        match length {
            0 if !rest.is_empty() => Found::Stop(Progress::Broken),
            length if length > MAX_NAME => Found::Stop(Progress::Broken),
            // More of it may come.
            length if length == rest.len() => Found::Stop(Progress::More),
            length => {
                self.name = rest.get(..length).unwrap_or_default().to_owned();
                self.at += length;
                Found::At(self.step + 1)
            }
        }
    }

    /// A short text up to a mark, which is taken too.
    fn up_to(&mut self, mark: &str) -> Result<String, Progress> {
        let rest = self.rest();
        match rest.find(mark) {
            Some(length) if length <= MAX_NAME => {
                let text = rest.get(..length).unwrap_or_default().to_owned();
                self.at += length + mark.len();
                Ok(text)
            }
            None if rest.len() <= MAX_NAME => Err(Progress::More),
            Some(_) | None => Err(Progress::Broken),
        }
    }

    /// A value up to a mark. Where the mark is not followed by another argument or the end, it is a part of the value.
    fn value(&mut self, mark: &str, functions: &Functions, last: bool) -> Found {
        self.searched = self.searched.max(self.at);
        loop {
            let unread = self.held.get(self.searched..).unwrap_or_default();
            let Some(found) = unread.find(mark) else {
                // The mark may have begun.
                let mut from = self.held.len().saturating_sub(mark.len()).max(self.searched);
                while !self.held.is_char_boundary(from) {
                    from -= 1;
                }
                self.searched = from;
                return Found::Stop(Progress::More);
            };
            let end = self.searched + found;
            let behind = self.held.get(end + mark.len()..).unwrap_or_default().trim_start();
            let follows =
                ["<parameter=", "</function>"].map(|next| (behind.starts_with(next), next.starts_with(behind)));
            if follows.iter().any(|(whole, _)| *whole) {
                let text = self.held.get(self.at..end).unwrap_or_default();
                let value = functions.value(&self.name, &self.key, unlined(text));
                self.arguments.insert(std::mem::take(&mut self.key), value);
                self.at = end + mark.len();
                self.searched = self.at;
                return Found::At(self.step + 1);
            }
            if follows.iter().any(|(_, begun)| *begun) && !last {
                self.searched = end;
                return Found::Stop(Progress::More);
            }
            self.searched = end + mark.len();
        }
    }

    /// Reads JSON, and with its end the calls in it.
    fn json(&mut self, read: impl FnOnce(&mut CallReader, &str) -> Option<Vec<Call>>) -> Found {
        let (mut scan, from) = self.json.take().unwrap_or_else(|| (JsonScan::new(), self.at));
        let bytes = self.held.as_bytes();
        for (at, &byte) in bytes.iter().enumerate().skip(from) {
            match scan.push(byte) {
                Seen::More => {}
                Seen::Broken => return Found::Stop(Progress::Broken),
                Seen::End => {
                    let text = self.held.get(self.at..=at).unwrap_or_default().to_owned();
                    let Some(calls) = read(self, &text) else { return Found::Stop(Progress::Broken) };
                    self.found.extend(calls);
                    self.at = at + 1;
                    self.whole = self.at;
                    return Found::At(self.step + 1);
                }
            }
        }
        let length = self.held.len();
        let named = matches!(self.steps.get(self.step), Some(Step::Calls));
        if named && from < self.at + 64 && !may_be_call(self.rest()) {
            return Found::Stop(Progress::Broken);
        }
        self.json = Some((scan, length));
        Found::Stop(Progress::More)
    }

    fn calls(&self, text: &str, functions: &Functions) -> Option<Vec<Call>> {
        if self.ordered && !is_ordered(text) {
            return None;
        }
        let list = if text.trim_start().starts_with('[') { items(text) } else { vec![text] };
        let one = |text: &str| {
            let inner = member(text, "function").filter(|inner| inner.starts_with('{')).unwrap_or(text);
            let name = member(inner, "name").or_else(|| member(inner, "function"))?;
            let name: String = serde_json::from_str(name).ok()?;
            let arguments = member(inner, "arguments").or_else(|| member(inner, "parameters")).unwrap_or("{}");
            call(name, arguments, functions)
        };
        list.into_iter().map(one).collect::<Option<Vec<Call>>>().filter(|calls| !calls.is_empty())
    }
}

/// A call of a known function with an object of arguments, which may be written as its text.
fn call(name: String, arguments: &str, functions: &Functions) -> Option<Call> {
    let arguments = match arguments.trim() {
        "null" => "{}".to_owned(),
        quoted if quoted.starts_with('"') => serde_json::from_str::<String>(quoted).ok()?.trim().to_owned(),
        plain => plain.to_owned(),
    };
    serde_json::from_str::<Map<String, Value>>(&arguments).ok()?;
    functions.knows(&name).then_some(Call { name, arguments })
}

pub(super) fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '/')
}

/// Whether the beginning of an object or a list may be that of calls.
pub(super) fn may_be_call(text: &str) -> bool {
    let text = text.trim_start_matches(|c: char| c == '[' || c.is_ascii_whitespace());
    let Some(text) = text.strip_prefix('{') else { return text.is_empty() };
    let text = text.trim_start();
    let Some(text) = text.strip_prefix('"') else { return text.is_empty() };
    KEYS.iter().any(|key| match text.split_once('"') {
        Some((own, _)) => own == *key,
        None => key.starts_with(text),
    })
}

/// Whether this is an object of a name, written without escapes, and arguments, in this order.
fn is_ordered(text: &str) -> bool {
    let [name, arguments] = items(text)[..] else { return false };
    let key =
        |member: &str, wanted: &[&str]| member.split_once(':').is_some_and(|(key, _)| wanted.contains(&key.trim_end()));
    text.starts_with('{')
        && key(name, &["\"name\""])
        && !name.contains('\\')
        && key(arguments, &["\"arguments\"", "\"parameters\""])
}

/// Without the line breaks that stand between a value and its marks.
fn unlined(text: &str) -> &str {
    let text = text.strip_prefix('\n').unwrap_or(text);
    text.strip_suffix('\n').unwrap_or(text)
}
