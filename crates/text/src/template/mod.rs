//! Chat templates: Jinja, as Hugging Face runs it, within bounds.
//!
//! A template comes with the model's files, so it is untrusted code: it sees only the conversation, cannot reach files,
//! other templates or the environment, and its steps, depth, memory and output are limited.

mod conversation;
mod environment;
mod growth;
mod json;
mod marks;
mod naming;
mod python;
mod source;
mod syntax;

pub use marks::Rendered;

use crate::error::Error;
use crate::guard::MARK;
use crate::tokenizer::Tokenizer;
use marks::Marker;
use serde_json::{Map, Value, json};
use std::path::Path;
use std::time::SystemTime;

/// Longest template accepted, in bytes. The longest known ones have about 30 KB.
const MAX_SOURCE: usize = 1 << 20;
/// Bytes of output, and of any value that is printed.
const MAX_OUTPUT: usize = 4 << 20;
/// Stands in for the end of a message that is to be continued; the trailing space is part of it.
const CONTINUE: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

/// The chat template of a model: one, or several with names (`default`, `tool_use`, `rag`, …).
#[derive(Debug, Clone)]
pub struct ChatTemplate {
    /// (name, source); a single template has the name `default`.
    sources: Vec<(String, String)>,
    /// Names that templates use for special tokens: `bos_token`, `eos_token`, ….
    special: Map<String, Value>,
}

/// A conversation to be rendered.
#[derive(Debug, Clone, Default)]
pub struct Render {
    /// A list of messages, each with `role` and `content` and what else the template looks at.
    pub messages: Value,
    pub tools: Option<Value>,
    pub documents: Option<Value>,
    /// Let the model answer: print the start of its turn.
    pub add_generation_prompt: bool,
    /// Let the model go on with the last message instead of answering it.
    pub continue_final_message: bool,
    /// Further variables (`enable_thinking`, …).
    pub extra: Map<String, Value>,
    /// Which of several templates; the default is `tool_use` when there are tools, else `default`.
    pub name: Option<String>,
    /// The time that `strftime_now` prints; the default is the clock's, in local time.
    pub now: Option<SystemTime>,
}

impl ChatTemplate {
    /// The template of a folder or GGUF file: `chat_template.jinja`, `chat_template.json`, `tokenizer_config.json`
    /// (one text, or a list of named ones), or the key `tokenizer.chat_template`. `None` if the model has none: no
    /// template is ever made up.
    pub fn open(path: &Path) -> Result<Option<ChatTemplate>, Error> {
        source::open(path)
    }

    /// The template of a GGUF file that is already open.
    pub fn from_gguf(metadata: &attend_format::gguf::Metadata) -> Result<Option<ChatTemplate>, Error> {
        source::from_gguf(metadata)
    }

    /// As [`ChatTemplate::open`], but a model without a template is an error.
    pub fn require(path: &Path) -> Result<ChatTemplate, Error> {
        ChatTemplate::open(path)?.ok_or_else(|| Error::NoTemplate { path: path.to_path_buf() })
    }

    /// A template from its source, with the spelling of the special tokens it may print.
    pub fn new(source: impl Into<String>, bos: Option<&str>, eos: Option<&str>) -> ChatTemplate {
        let named = [("bos_token", bos), ("eos_token", eos)];
        let special = named.into_iter().filter_map(|(name, token)| Some((name.to_string(), json!(token?))));
        ChatTemplate { sources: vec![("default".into(), source.into())], special: special.collect() }
    }

    /// Several templates, by name.
    pub fn named(sources: Vec<(String, String)>, special: Map<String, Value>) -> ChatTemplate {
        ChatTemplate { sources, special }
    }

    /// Every template with its name; a single one is called `default`.
    pub fn sources(&self) -> impl Iterator<Item = (&str, &str)> {
        self.sources.iter().map(|(name, source)| (name.as_str(), source.as_str()))
    }

    /// The names, for people.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.sources.iter().map(|(name, _)| name.as_str())
    }

    /// The template that a request uses.
    pub fn source(&self, request: &Render) -> Result<&str, Error> {
        let find =
            |name: &str| self.sources.iter().find(|(own, _)| own.as_str() == name).map(|(_, source)| source.as_str());
        if let Some(name) = &request.name {
            return find(name.as_str()).ok_or_else(|| Error::Template {
                name: Some(name.clone()),
                problem: format!(
                    "there is none of that name; there are: {}",
                    self.names().collect::<Vec<_>>().join(", ")
                ),
            });
        }
        let has_tools = request.tools.as_ref().is_some_and(|tools| !tools.is_null());
        let chosen = if has_tools { find("tool_use").or_else(|| find("default")) } else { find("default") };
        match (chosen, self.sources.as_slice()) {
            (Some(source), _) => Ok(source),
            (None, [(_, source)]) => Ok(source),
            _ => Err(Error::Template {
                name: None,
                problem: format!("none is the default; choose one of: {}", self.names().collect::<Vec<_>>().join(", ")),
            }),
        }
    }

    /// Renders a conversation to text.
    ///
    /// The text alone no longer tells what the template printed and what the messages contained. To get token ids, use
    /// [`ChatTemplate::render_marked`].
    pub fn render(&self, request: &Render) -> Result<String, Error> {
        let source = self.source(request)?;
        self.run(source, request)
    }

    /// Renders a conversation for [`Tokenizer::encode_chat`]: special tokens of `tokenizer` that are spelled inside the
    /// messages, tools or documents stay text.
    pub fn render_marked(&self, request: &Render, tokenizer: &Tokenizer) -> Result<Rendered, Error> {
        let source = self.source(request)?;
        let marker = Marker::new(tokenizer, source);
        let mut marked = request.clone();
        marker.messages(&mut marked.messages);
        for value in [&mut marked.tools, &mut marked.documents].into_iter().flatten() {
            marker.all(value);
        }
        Ok(Rendered::new(self.run(source, &marked)?))
    }

    fn run(&self, source: &str, request: &Render) -> Result<String, Error> {
        let problem = |problem: String| Error::Template { name: request.name.clone(), problem };
        if source.len() > MAX_SOURCE {
            return Err(problem(format!("{} bytes, the limit is {MAX_SOURCE}", source.len())));
        }
        if request.continue_final_message && request.add_generation_prompt {
            let text = "the last message cannot be continued and answered at once";
            return Err(problem(format!("{text} (continue_final_message with add_generation_prompt)")));
        }
        let mut messages = request.messages.clone();
        let last = if request.continue_final_message { tag_final(&mut messages) } else { None };
        if request.continue_final_message && last.is_none() {
            return Err(problem("the last message has no text that could be continued".into()));
        }
        let mut context = Map::new();
        context.extend(self.special.clone());
        context.insert("messages".into(), messages);
        context.insert("tools".into(), request.tools.clone().unwrap_or(Value::Null));
        context.insert("documents".into(), request.documents.clone().unwrap_or(Value::Null));
        context.insert("add_generation_prompt".into(), Value::Bool(request.add_generation_prompt));
        context.extend(request.extra.clone());
        let text = environment::render(source, Value::Object(context), request)?;
        match last {
            Some(last) => cut_at_tag(&text, &last).ok_or_else(|| {
                problem(
                    "continue_final_message is set, but the final message does not appear in the rendered chat; \
                     the template may drop part of it"
                        .into(),
                )
            }),
            None => Ok(text),
        }
    }
}

/// Puts the tag behind the text of the last message and returns that text.
fn tag_final(messages: &mut Value) -> Option<String> {
    let content = messages.as_array_mut()?.last_mut()?.get_mut("content")?;
    let text = match content {
        Value::String(_) => content,
        Value::Array(parts) => parts.iter_mut().rev().find_map(|part| part.get_mut("text"))?,
        _ => return None,
    };
    let last = text.as_str()?.to_string();
    *text = Value::String(format!("{last}{CONTINUE}"));
    Some(last)
}

/// The rendered chat up to the tag. Where the template trimmed the message, its end is trimmed too.
fn cut_at_tag(text: &str, last: &str) -> Option<String> {
    let tag = CONTINUE.trim_end();
    let at = text.rfind(tag)?;
    if !text.contains(last.trim()) {
        return None;
    }
    let kept = text.get(..at)?;
    Some(if text.get(at..)?.starts_with(CONTINUE) { kept.to_string() } else { kept.trim_end().to_string() })
}

/// Whether a text holds the mark that this crate keeps for itself.
fn has_mark(text: &str) -> bool {
    text.contains(MARK)
}
