//! Calls that are held to a form: an answer that must call, and one that may, whose calls are the model's own form of a call with
//! arguments that the schema allows from the mark on that begins them.

use crate::functions::Offered;
use attend_engine::{Constraint, json_in_lark};
use attend_text::{Form, Tokenizer, Written};
use serde_json::{Value, json};
use std::fmt::Write;

/// What an answer must be, by how its prompt ends.
#[derive(Debug, Clone)]
pub struct Forced {
    pub plain: Constraint,
    /// Behind a prompt that has begun a thought, which is thought to its end.
    pub opened: Constraint,
    /// A call must be made. Else whatever else the answer is held to comes before it.
    pub must: bool,
}

impl Forced {
    /// For a model whose calls have this form; none where nothing must be called, and nothing that may be is strict.
    pub fn new(form: Option<&Form>, offered: &Offered, tokenizer: &Tokenizer) -> Option<Box<Forced>> {
        let form = form.filter(|_| offered.must || offered.binds())?;
        let made = |opened| Constraint::Lark(Lark { form, offered, tokenizer, opened }.text());
        Some(Box::new(Forced { plain: made(false), opened: made(true), must: offered.must }))
    }
}

/// How calls are written: marks, and what stands around and between calls.
struct Shape {
    /// What begins all of them, or with `each` every one.
    open: Option<&'static str>,
    each: bool,
    begin: String,
    between: String,
    end: String,
}

impl Shape {
    fn of(written: Written, mark: impl Fn(&str) -> String) -> Shape {
        let text = |text: &str| json!(text).to_string();
        let shape = |open, each| Shape { open, each, begin: String::new(), between: String::new(), end: String::new() };
        let list = |open| Shape { begin: text("["), between: text(", "), end: text("]"), ..shape(Some(open), false) };
        match written {
            Written::Tagged => Shape { between: text("\n"), ..shape(Some("<tool_call>"), true) },
            Written::Objects => Shape { between: text("; "), ..shape(None, false) },
            Written::Bracketed(true) => shape(Some("[TOOL_CALLS]"), true),
            Written::Bracketed(false) => list("[TOOL_CALLS]"),
            Written::Separated(_) => {
                Shape { end: mark("<｜tool▁calls▁end｜>"), ..shape(Some("<｜tool▁calls▁begin｜>"), false) }
            }
            Written::Listed => list("<|tool_call|>"),
            Written::Channels => {
                let between = format!("{} {} \"assistant\"", mark("<|call|>"), mark("<|start|>"));
                Shape { between, ..shape(None, false) }
            }
        }
    }
}

/// A grammar in the making, in Lark's notation.
struct Lark<'a> {
    form: &'a Form,
    offered: &'a Offered,
    tokenizer: &'a Tokenizer,
    opened: bool,
}

impl Lark<'_> {
    /// Special tokens are no text, and are told by their ids.
    fn mark(&self, mark: &str) -> String {
        match self.special(mark) {
            Some(id) => format!("<[{id}]>"),
            None => json!(mark).to_string(),
        }
    }

    fn special(&self, mark: &str) -> Option<u32> {
        self.tokenizer.id(mark).filter(|&id| self.tokenizer.is_special(id))
    }

    fn text(&self) -> String {
        let mut lark = String::new();
        let thought = self.thought(&mut lark);
        let shape = Shape::of(self.form.written(), |mark| self.mark(mark));
        match self.offered.must {
            true => self.must(&shape, thought, &mut lark),
            false => self.may(&shape, thought, &mut lark),
        }
        self.calls(&mut lark);
        lark
    }

    /// A thought that comes first, where one was begun or its mark cannot be text.
    fn thought(&self, lark: &mut String) -> &'static str {
        let Some((open, close)) = self.form.start_of_thought().zip(self.form.end_of_thought()) else { return "" };
        let open = self.special(open).filter(|_| !self.offered.must);
        if !self.opened && open.is_none() {
            return "";
        }
        let _ = match self.special(close) {
            Some(id) => writeln!(lark, r#"thought: /(.|\n)*/ <[{id}]> "\n"? "\n"?"#),
            None => {
                let close = json!(close);
                writeln!(lark, "thought: thinking \"\\n\"? \"\\n\"?\nthinking[suffix={close}]: /(.|\\n)*/")
            }
        };
        match (self.opened, open) {
            (false, Some(id)) => {
                let _ = writeln!(lark, "thinks: <[{id}]> thought");
                "thinks? "
            }
            _ => "thought ",
        }
    }

    /// One call or more, and nothing else.
    fn must(&self, shape: &Shape, first: &str, lark: &mut String) {
        let Shape { begin, between, end, .. } = shape;
        let open = shape.open.map(|open| self.mark(open)).unwrap_or_default();
        let (all, each) = if shape.each { ("", open.as_str()) } else { (open.as_str(), "") };
        let more = if self.offered.single { String::new() } else { format!("({between} {each} call)*") };
        let _ = writeln!(lark, "start: {first}{all} {begin} {each} call {more} {end}");
    }

    /// Text, and calls in it from the mark on that begins them.
    fn may(&self, shape: &Shape, first: &str, lark: &mut String) {
        let Shape { begin, between, end, .. } = shape;
        let more = if self.offered.single || shape.each { String::new() } else { format!("({between} call)*") };
        let _ = match (self.form.written(), shape.open) {
            // An answer is calls or a text that does not begin like one.
            (Written::Objects, _) | (_, None) if self.form.written() != Written::Channels => {
                let tag = self.special("<|python_tag|>").map(|id| format!("<[{id}]>? ")).unwrap_or_default();
                writeln!(lark, "start: {first}({tag}call {more} | plain)\nplain: /\\s*([^{{\\s](.|\\n)*)?/")
            }
            (_, None) => {
                let (channel, message) = (self.mark("<|channel|>"), self.mark("<|message|>"));
                let (over, begun) = (self.mark("<|end|>"), self.mark("<|start|>"));
                let part = format!("{channel} /analysis|commentary|final/ {message} /(.|\\n)*/ | call");
                let next = format!("({over} {begun} \"assistant\" | {between})");
                writeln!(lark, "start: part ({next} part)*\npart: {part}")
            }
            (_, Some(open)) => {
                let block = format!("{begin} call {more} {end}");
                let _ = match self.special(open) {
                    Some(id) => writeln!(lark, "until: text? <[{id}]>"),
                    None => writeln!(lark, "until[suffix={}]: /(.|\\n)*/", json!(open)),
                };
                let _ = writeln!(lark, "text: /(.|\\n)+/");
                let (one, all) = if self.bare(lark) { ("bare text? | ", "bare* ") } else { ("", "") };
                match self.offered.single {
                    true => writeln!(lark, "start: {first}({one}until {block} | text?)"),
                    false => writeln!(lark, "start: {first}{all}(until {block})* text?"),
                }
            }
        };
    }

    /// Calls at the beginning of an answer whose marks the model forgets, if it may: what names a function is read there, in a
    /// fence or not, until its arguments come.
    fn bare(&self, lark: &mut String) -> bool {
        if !self.form.forgets_marks() {
            return false;
        }
        let mut all = Vec::new();
        for (index, (name, ..)) in self.offered.schemas().enumerate() {
            let name: String = name
                .chars()
                .flat_map(|c| ['\\', c].into_iter().skip(usize::from(c.is_alphanumeric() || c == '_')))
                .collect();
            let begin = r#"\s*(```json\s*)?;?\s*\{\s*"name"\s*:\s*"#;
            let _ = writeln!(lark, r#"bare_{index}[lazy]: /{begin}"{name}"\s*,\s*"(arguments|parameters)"\s*:/"#);
            all.push(format!(r#"bare_{index} " "? arguments_{index}"#));
        }
        let _ = writeln!(lark, "bare: ({}) /\\s*\\}}/", all.join(" | "));
        true
    }

    /// The calls of all functions.
    fn calls(&self, lark: &mut String) {
        let mut calls = Vec::new();
        for (index, (name, schema, strict)) in self.offered.schemas().enumerate() {
            let one = self.one(name, &format!("arguments_{index}"));
            let arguments = match (strict, self.offered.must) {
                (false, false) => json_in_lark(&json!({"type": "object"}), true),
                (strict, _) => json_in_lark(&object(schema), !strict),
            };
            let _ = writeln!(lark, "call_{index}: {one}\narguments_{index}: {arguments}");
            calls.push(format!("call_{index}"));
        }
        let _ = writeln!(lark, "call: {}", calls.join(" | "));
    }

    /// One call of a function, behind the mark that begins it.
    fn one(&self, name: &str, arguments: &str) -> String {
        let mark = |mark| self.mark(mark);
        let text = |text: String| json!(text).to_string();
        let object = |key: &str| {
            let begin = text(format!("{{\"name\": {}, \"{key}\": ", json!(name)));
            format!("{begin} {arguments} \"}}\"")
        };
        match self.form.written() {
            Written::Tagged => format!("\"\\n\" {} \"\\n\" {}", object("arguments"), mark("</tool_call>")),
            Written::Objects => object("parameters"),
            Written::Bracketed(false) | Written::Listed => object("arguments"),
            Written::Bracketed(true) => format!("{} {} {arguments}", text(name.into()), mark("[ARGS]")),
            Written::Separated(fenced) => {
                let (begin, parted, end) =
                    (mark("<｜tool▁call▁begin｜>"), mark("<｜tool▁sep｜>"), mark("<｜tool▁call▁end｜>"));
                match fenced {
                    true => {
                        let head = text(format!("{name}\n```json\n"));
                        format!("{begin} \"function\" {parted} {head} {arguments} \"\\n```\" {end}")
                    }
                    false => format!("{begin} {} {parted} {arguments} {end}", text(name.into())),
                }
            }
            Written::Channels => {
                let to = text(format!("commentary to=functions.{name} "));
                format!(
                    "{} {to} {} \"json\" {} {arguments}",
                    mark("<|channel|>"),
                    mark("<|constrain|>"),
                    mark("<|message|>")
                )
            }
        }
    }
}

/// A schema of arguments, which are an object even where it does not say so.
fn object(schema: &Value) -> Value {
    let mut schema = schema.clone();
    if let Some(map) = schema.as_object_mut() {
        map.entry("type").or_insert_with(|| json!("object"));
    }
    schema
}
