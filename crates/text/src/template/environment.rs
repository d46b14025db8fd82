//! The environment in which a template runs.

use super::{MAX_OUTPUT, Render, growth, json, python, syntax};
use crate::error::{Error, shorten};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value};
use minijinja::{AutoEscape, Environment, Error as JinjaError, ErrorKind, State};
use minijinja_contrib::pycompat;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

/// Steps of one rendering. Data costs steps too, one for 64 bytes, so this also bounds memory.
const MAX_STEPS: u64 = 1_000_000;
/// Nesting of macros, loops and calls.
const MAX_DEPTH: usize = 200;

/// Output that stops at the limit.
struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_OUTPUT {
            return Err(io::Error::other("the output is too long"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Most words and signs of one tag; real ones stay below a few hundred.
const MAX_TAG: usize = 5_000;
/// Stack of the thread that renders: enough for the deepest nesting that the limits allow.
const STACK: usize = 64 << 20;

/// Longest time that a rendering may take; real ones take milliseconds. What steps are charged for ends sooner.
///
/// One thing is not: walking through lists that were repeated inside each other without ever being named, as in
/// `[[[1] * 1000] * 1000] * 1000 == ...`. The engine charges a repeated text for its length, but makes a repeated list
/// out of one reference and charges a comparison of two for their outermost items only. Its operators cannot be replaced
/// (the environment has hooks for filters, tests, functions, methods and printing), and a count behind each `*`, as
/// [`super::naming`] puts one behind each name, would need the operands' bounds, which only the engine's parser knows.
const TIME_LIMIT: Duration = Duration::from_secs(5);

/// Runs a template, on a thread of its own because of the stack, and because a rendering that takes too long can only
/// be left behind: no step of the engine is interrupted.
pub(super) fn render(source: &str, context: serde_json::Value, request: &Render) -> Result<String, Error> {
    let problem = |problem: String| Error::Template { name: request.name.clone(), problem };
    if syntax::has_long_tag(source, MAX_TAG) {
        return Err(problem(format!("a tag has more than {MAX_TAG} words and signs")));
    }
    let (sender, receiver) = mpsc::sync_channel(1);
    let job = Job { source: source.to_string(), name: request.name.clone(), now: request.now };
    let thread = std::thread::Builder::new().name("template".into()).stack_size(STACK);
    thread
        .spawn(move || sender.send(job.run(context)))
        .map_err(|error| problem(format!("no thread to render on: {error}")))?;
    match receiver.recv_timeout(TIME_LIMIT) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => Err(problem(format!("it needs more than {} seconds", TIME_LIMIT.as_secs()))),
        Err(RecvTimeoutError::Disconnected) => Err(problem("the template engine failed".into())),
    }
}

/// What the thread needs of a request.
struct Job {
    source: String,
    name: Option<String>,
    now: Option<SystemTime>,
}

impl Job {
    fn run(&self, context: serde_json::Value) -> Result<String, Error> {
        let refused = Arc::new(OnceLock::new());
        let problem = |error: JinjaError| match refused.get() {
            Some(message) => Error::Refused { message: String::clone(message) },
            None => Error::Template { name: self.name.clone(), problem: describe(&error, &self.source) },
        };
        let mut environment = environment().map_err(problem)?;
        let said = refused.clone();
        environment.add_function("raise_exception", move |message: String| -> Result<String, JinjaError> {
            let _ = said.set(shorten_message(&message));
            Err(JinjaError::new(ErrorKind::InvalidOperation, message))
        });
        let now = self.now;
        environment.add_function("strftime_now", move |format: String| strftime(now, &format));
        let rewritten = syntax::rewrite(&self.source);
        let template = environment.template_from_named_str("chat_template", &rewritten).map_err(problem)?;
        let mut out = Bounded(Vec::new());
        match template.render_captured_to(Serde(context), &mut out) {
            Ok(_) => Ok(String::from_utf8_lossy(&out.0).into_owned()),
            Err(error) => Err(problem(error)),
        }
    }
}

fn environment<'source>() -> Result<Environment<'source>, JinjaError> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_fuel(Some(MAX_STEPS));
    environment.set_recursion_limit(MAX_DEPTH);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_unknown_method_callback(method);
    environment.set_formatter(|out, state, value| {
        let text = python::text(value)?;
        state.consume_fuel(text.len() as u64 / 64)?;
        Ok(out.write_str(&text)?)
    });
    environment.add_filter("tojson", json::tojson);
    environment.add_filter(growth::COUNTED, growth::counted);
    environment.add_filter("chain", growth::chain);
    // Only prints to a debugger's console; here it would show the whole context.
    environment.remove_global("debug");
    Ok(environment)
}

/// Python's methods. The widths in a text that is formatted ask for padding, which nothing else accounts for.
fn method(state: &mut State, value: &Value, name: &str, arguments: &[Value]) -> Result<Value, JinjaError> {
    if name == "format"
        && let Some(text) = value.as_str()
    {
        let asked = syntax::widths(text);
        if asked > MAX_OUTPUT as u64 {
            return Err(JinjaError::new(
                ErrorKind::InvalidOperation,
                format!("format: {asked} characters are asked for"),
            ));
        }
        state.consume_fuel(asked / 64)?;
    }
    pycompat::unknown_method_callback(state, value, name, arguments)
}

fn strftime(now: Option<SystemTime>, format: &str) -> Result<String, JinjaError> {
    let fail = |error: &dyn std::fmt::Display| {
        JinjaError::new(ErrorKind::InvalidOperation, format!("strftime_now(`{}`): {error}", shorten(format)))
    };
    if format.len() > 256 {
        return Err(fail(&"the format is too long"));
    }
    let time = match now {
        Some(time) => jiff::Zoned::try_from(time).map_err(|error| fail(&error))?,
        None => jiff::Zoned::now(),
    };
    // A width in a directive asks for padding: `%9999999d` would ask for a lot of it.
    let mut text = String::new();
    let digits = format.bytes().fold((0, 0), |(run, longest), byte| {
        let run = if byte.is_ascii_digit() { run + 1 } else { 0 };
        (run, longest.max(run))
    });
    if digits.1 > 2 && format.contains('%') {
        return Err(fail(&"the format has a large width"));
    }
    write!(text, "{}", time.strftime(format)).map_err(|_| fail(&"unknown directive"))?;
    Ok(text)
}

fn describe(error: &JinjaError, source: &str) -> String {
    let mut text = match error.kind() {
        ErrorKind::OutOfFuel => format!("it needs more than {MAX_STEPS} steps"),
        _ => error.to_string(),
    };
    if let Some(line) = error.line().and_then(|line| source.lines().nth(line.saturating_sub(1))) {
        text.push_str(&format!(" (`{}`)", shorten(line.trim())));
    }
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text.push_str(&format!(": {inner}"));
        cause = inner.source();
        if text.len() > 2000 {
            break;
        }
    }
    shorten_message(&text)
}

fn shorten_message(text: &str) -> String {
    text.chars().take(1000).collect()
}
