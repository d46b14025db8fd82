//! Calls that must be made: an answer is held to the model's own form of a call, with arguments that the schema allows.

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
}

impl Forced {
    /// For a model whose calls have this form; none where nothing must be called.
    pub fn new(form: Option<&Form>, offered: &Offered, tokenizer: &Tokenizer) -> Option<Box<Forced>> {
        let form = form.filter(|_| offered.must)?;
        let made = |opened| Constraint::Lark(grammar(form, offered, tokenizer, opened));
        Some(Box::new(Forced { plain: made(false), opened: made(true) }))
    }
}

/// The grammar of one call or more, in Lark's notation.
fn grammar(form: &Form, offered: &Offered, tokenizer: &Tokenizer, opened: bool) -> String {
    // Special tokens are no text, and are told by their ids.
    let mark = |mark: &str| match tokenizer.id(mark).filter(|&id| tokenizer.is_special(id)) {
        Some(id) => format!("<[{id}]>"),
        None => json!(mark).to_string(),
    };
    let (begin, between, end) = around(form.written(), &mark);
    let mut lark = String::new();
    let thought = form.end_of_thought().filter(|_| opened);
    let first = if thought.is_some() { "thought " } else { "" };
    let _ = match offered.single {
        true => writeln!(lark, "start: {first}{begin} call {end}"),
        false => writeln!(lark, "start: {first}{begin} call ({between} call)* {end}"),
    };
    if let Some(close) = thought {
        let close = mark(close);
        let _ = match close.starts_with('<') {
            true => writeln!(lark, r#"thought: /(.|\n)*/ {close} "\n"? "\n"?"#),
            false => writeln!(lark, "thought: thinking \"\\n\"? \"\\n\"?\nthinking[suffix={close}]: /(.|\\n)*/"),
        };
    }
    let mut calls = Vec::new();
    for (index, (name, schema, strict)) in offered.schemas().enumerate() {
        let one = one(form.written(), name, &format!("arguments_{index}"), &mark);
        let arguments = json_in_lark(&object(schema), !strict);
        let _ = writeln!(lark, "call_{index}: {one}\narguments_{index}: {arguments}");
        calls.push(format!("call_{index}"));
    }
    let _ = writeln!(lark, "call: {}", calls.join(" | "));
    lark
}

/// What stands before all calls, between two, and behind them.
fn around(written: Written, mark: &impl Fn(&str) -> String) -> (String, String, String) {
    let none = String::new;
    match written {
        Written::Tagged => (none(), json!("\n").to_string(), none()),
        Written::Objects => (none(), json!("; ").to_string(), none()),
        Written::Bracketed(true) => (none(), none(), none()),
        Written::Bracketed(false) => {
            (format!("{} \"[\"", mark("[TOOL_CALLS]")), json!(", ").to_string(), json!("]").to_string())
        }
        Written::Separated(_) => (mark("<｜tool▁calls▁begin｜>"), none(), mark("<｜tool▁calls▁end｜>")),
        Written::Listed => {
            (format!("{} \"[\"", mark("<|tool_call|>")), json!(", ").to_string(), json!("]").to_string())
        }
        Written::Channels => (none(), format!("{} {} \"assistant\"", mark("<|call|>"), mark("<|start|>")), none()),
    }
}

/// One call of a function.
fn one(written: Written, name: &str, arguments: &str, mark: &impl Fn(&str) -> String) -> String {
    let text = |text: String| json!(text).to_string();
    let object = |key: &str| {
        let begin = text(format!("{{\"name\": {}, \"{key}\": ", json!(name)));
        format!("{begin} {arguments} \"}}\"")
    };
    match written {
        Written::Tagged => {
            let (open, close) = (mark("<tool_call>"), mark("</tool_call>"));
            format!("{open} \"\\n\" {} \"\\n\" {close}", object("arguments"))
        }
        Written::Objects => object("parameters"),
        Written::Bracketed(false) | Written::Listed => object("arguments"),
        Written::Bracketed(true) => {
            format!("{} {} {} {arguments}", mark("[TOOL_CALLS]"), text(name.into()), mark("[ARGS]"))
        }
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

/// A schema of arguments, which are an object even where it does not say so.
fn object(schema: &Value) -> Value {
    let mut schema = schema.clone();
    if let Some(map) = schema.as_object_mut() {
        map.entry("type").or_insert_with(|| json!("object"));
    }
    schema
}
