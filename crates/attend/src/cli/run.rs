//! `attend run`: one prompt, one answer.

use super::batch::InputFormat;
use super::error::{Interrupted, usage};
use super::input::Input;
use super::interrupt::{self, Graceful};
use super::options::{ComputeArgs, ModelArg, TemplateArgs};
use super::sampling::SamplingArgs;
use super::screen;
use super::session::{self, Session};
use anyhow::Result;
use attend_engine::{Choice, Engine, Event, Finish, Guesses, Output, Prompt, Resolved, TokenLogprob};
use attend_text::ChatTemplate;
use clap::Args;
use serde_json::{Value, json};
use std::io::{IsTerminal, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  attend run \"Why is the sky blue?\"
  cat report.txt | attend run \"Summarise this:\"
  attend run -m model.gguf --temperature 0.8 --seed 7 --max-tokens 200 \"Tell me a story.\"
  attend run -m some/folder --raw \"Once upon a time\"
  attend run --json \"2 + 2 =\" | jq .usage

Standard output carries the generated text and nothing else; several answers (--n) are separated by a line of ---.
With --input it carries a line of JSON for each text, in their order, as each would be answered alone.")]
pub struct RunArgs {
    /// The prompt; what is piped in, or each text of --input, goes below it (- waits for standard input)
    pub prompt: Option<String>,
    #[command(flatten)]
    pub model: ModelArg,
    /// Continue the text as it stands: no chat template
    #[arg(long, conflicts_with_all = ["system", "chat_template", "template_var"])]
    pub raw: bool,
    /// What the model is told before the prompt
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    /// One JSON object instead of the text
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub many: ManyArgs,
    #[command(flatten)]
    pub template: TemplateArgs,
    #[command(flatten)]
    pub sampling: SamplingArgs,
    #[command(flatten)]
    pub compute: ComputeArgs,
}

/// Prompts from a file.
#[derive(Debug, Args)]
#[command(next_help_heading = "Many prompts")]
pub struct ManyArgs {
    /// Answer every text of a file (- is standard input), several at a time
    #[arg(long, value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// What the texts are [default: by the file's ending, else a text in each line]
    #[arg(long, value_name = "FORMAT", value_enum, requires = "input")]
    pub input_format: Option<InputFormat>,
    /// The field (JSONL) or column (CSV) that holds the text [default: text, or the only one there is]
    #[arg(long, value_name = "NAME", requires = "input")]
    pub field: Option<String>,
    /// Write the answers to a file, which appears when all of them are there
    #[arg(short, long, value_name = "FILE", requires = "input")]
    pub output: Option<PathBuf>,
}

pub fn run(args: &RunArgs) -> Result<bool> {
    if let Some(file) = &args.many.input {
        return super::run_many::run(args, file);
    }
    let input = Input::begin(args.prompt.as_deref())?;
    let session = session::open(&args.model, &args.compute)?;
    let helper = session::open_draft(&args.sampling, &args.compute)?;
    let draft = helper.as_ref().map(|helper| helper.draft_engine(&args.compute)).transpose()?;
    let engine = session.engine(&args.compute)?.with_draft(draft.as_ref())?;
    let resolved = session.generate_options(&engine, &args.sampling)?;
    let text = input.text()?;
    let template = chosen_template(args, &session, &engine)?;
    let prompt = make_prompt(args, &session, &engine, template.as_ref(), &text)?;
    show_settings(&resolved);
    let graceful = Graceful::begin();
    let mut printer = Printer::new(!args.json);
    let output = engine.generate(prompt, &resolved.options, &mut |event| printer.take(&event));
    let interrupted = interrupt::pressed();
    drop(graceful);
    printer.failure()?;
    let output = output.map_err(|error| context_help(error, &args.compute))?;
    for notice in &output.notices {
        screen::notice(&format!("note: {notice}"));
    }
    match args.json {
        true => print_json(&session, &resolved, &output)?,
        false => printer.finish(&output.choices)?,
    }
    say_how_it_ended(&output);
    if interrupted { Err(Interrupted.into()) } else { Ok(true) }
}

/// The chat template to put prompts in, if any; says so when a model that continues texts has none.
pub fn chosen_template(args: &RunArgs, session: &Session, engine: &Engine<'_>) -> Result<Option<ChatTemplate>> {
    let template = session.template(&args.template)?.filter(|_| !args.raw);
    if template.is_none() {
        if args.system.is_some() {
            return Err(usage("--system needs a chat template, and this model has none"));
        }
        if !args.raw && !engine.is_encoder_decoder() {
            screen::notice(
                "note: this model has no chat template, so it continues the text (--raw says that this is meant)",
            );
        }
    }
    Ok(template)
}

pub fn make_prompt(
    args: &RunArgs,
    session: &Session,
    engine: &Engine<'_>,
    template: Option<&ChatTemplate>,
    text: &str,
) -> Result<Prompt> {
    let Some(template) = template else { return session.plain_prompt(engine, text) };
    let mut messages = Vec::new();
    messages.extend(args.system.as_ref().map(|system| json!({"role": "system", "content": system})));
    messages.push(json!({"role": "user", "content": text}));
    let ids = session.encode_chat(template, &messages, &args.template)?;
    Ok(if engine.is_encoder_decoder() { Prompt::source(ids) } else { Prompt::tokens(ids) })
}

/// Says where each setting comes from, to a user who watches.
pub fn show_settings(resolved: &Resolved) {
    let settings: Vec<String> = resolved.settings.iter().map(ToString::to_string).collect();
    if !settings.is_empty() {
        screen::hint(&format!("[{}]", settings.join(", ")));
    }
}

/// The engine's words about the context, with the option that changes it.
fn context_help(error: attend_engine::Error, compute: &ComputeArgs) -> anyhow::Error {
    match error {
        attend_engine::Error::Context { .. } if compute.context.is_some() => anyhow::anyhow!("{error} (--context)"),
        refused @ attend_engine::Error::Constraint { .. } => usage(refused.to_string()),
        other => other.into(),
    }
}

/// Writes an answer while it is made.
#[derive(Debug)]
pub struct Printer {
    streaming: bool,
    /// The first choice's text that has been written.
    written: String,
    /// Standard output did not take it.
    failure: Option<std::io::Error>,
    bar: screen::LateBar,
}

impl Printer {
    pub fn new(streaming: bool) -> Printer {
        Printer { streaming, written: String::new(), failure: None, bar: screen::LateBar::count("reading the prompt") }
    }

    /// Takes an event; ends the work when the user, or whoever reads our output, wants no more.
    pub fn take(&mut self, event: &Event<'_>) -> ControlFlow<()> {
        match event {
            Event::Prompt { done, total } if done < total => self.bar.at(*done as u64, *total as u64),
            Event::Prompt { .. } => self.bar.clear(),
            Event::Token { choice: 0, text, .. } | Event::Finished { choice: 0, text, .. } => self.write(text),
            Event::Token { .. } | Event::Finished { .. } | Event::Step { .. } => {}
        }
        if self.failure.is_some() || interrupt::pressed() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn write(&mut self, text: &str) {
        if !self.streaming || text.is_empty() || self.failure.is_some() {
            return;
        }
        let mut out = std::io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Ok(()) => self.written.push_str(text),
            Err(error) => self.failure = Some(error),
        }
    }

    /// The error of standard output, if any.
    pub fn failure(&mut self) -> Result<()> {
        self.bar.clear();
        self.failure.take().map_or(Ok(()), |error| Err(error.into()))
    }

    /// Writes what could not be streamed: the result of a search, and the second and later answers.
    pub fn finish(&mut self, choices: &[Choice]) -> Result<()> {
        let mut out = std::io::stdout().lock();
        for (index, choice) in choices.iter().enumerate() {
            let rest =
                if index == 0 { choice.text.strip_prefix(self.written.as_str()).unwrap_or("") } else { &choice.text };
            if index > 0 {
                out.write_all(b"\n---\n")?;
            }
            out.write_all(rest.as_bytes())?;
        }
        // A shell's prompt belongs on a line of its own; a file holds the text as it is.
        if std::io::stdout().is_terminal() {
            out.write_all(b"\n")?;
        }
        Ok(out.flush()?)
    }
}

fn print_json(session: &Session, resolved: &Resolved, output: &Output) -> Result<()> {
    let mut object = output_json(session, output);
    let mut timings = serde_json::to_value(output.timings)?;
    timings["load_seconds"] = json!(session.load_seconds);
    let settings = resolved.settings.iter().map(|s| json!({"name": s.name, "value": s.value, "source": s.source}));
    object["model"] = json!(session.path.display().to_string());
    // How much is guessed follows the clock, as times do.
    object["guesses"] = serde_json::to_value(output.guesses)?;
    object["timings"] = timings;
    object["settings"] = settings.collect();
    writeln!(std::io::stdout(), "{}", serde_json::to_string_pretty(&object)?)?;
    Ok(())
}

/// What is the same for one prompt and for many, and at every time.
pub fn output_json(session: &Session, output: &Output) -> Value {
    let first = output.choices.first();
    let mut object = json!({
        "text": first.map_or("", |choice| &choice.text),
        "token_ids": first.map_or(&[][..], |choice| &choice.token_ids),
        "prompt_token_ids": output.prompt_token_ids,
        "finish_reason": first.map_or("length", |choice| choice.finish.reason()),
        "usage": output.usage,
        "seed": output.seed,
        "notices": output.notices,
    });
    if let Some(choice) = first.filter(|choice| !choice.logprobs.is_empty()) {
        object["logprobs"] = logprobs(session, choice.logprobs.iter().map(Some));
    }
    if let Some(list) = &output.prompt_logprobs {
        object["prompt_logprobs"] = logprobs(session, list.iter().map(Option::as_ref));
    }
    if output.choices.len() > 1 {
        object["choices"] = output.choices.iter().map(|choice| choice_json(session, choice)).collect();
    }
    object
}

fn choice_json(session: &Session, choice: &Choice) -> Value {
    let mut object = json!({
        "index": choice.index,
        "text": choice.text,
        "token_ids": choice.token_ids,
        "finish_reason": choice.finish.reason(),
    });
    if let Some(score) = choice.score {
        object["score"] = json!(score);
    }
    if !choice.logprobs.is_empty() {
        object["logprobs"] = logprobs(session, choice.logprobs.iter().map(Some));
    }
    object
}

/// Log-probabilities with their tokens spelled; null where there is none.
pub fn logprobs<'a>(session: &Session, list: impl Iterator<Item = Option<&'a TokenLogprob>>) -> Value {
    let spell = |id: u32| session.tokenizer.token(id);
    let one = |token: &TokenLogprob| {
        let top = token.top.iter().map(|&(id, logprob)| json!({"id": id, "token": spell(id), "logprob": logprob}));
        let mut object = json!({"id": token.id, "token": spell(token.id), "logprob": token.logprob});
        if !token.top.is_empty() {
            object["top"] = top.collect();
        }
        object
    };
    list.map(|token| token.map_or(Value::Null, one)).collect()
}

/// A line for a user who watches.
pub fn say_how_it_ended(output: &Output) {
    let (usage, timings) = (&output.usage, &output.timings);
    let end = match output.choices.first().map(|choice| &choice.finish) {
        Some(Finish::MaxTokens) => ", stopped at the limit of tokens",
        Some(Finish::Context) => ", stopped because the context is full",
        Some(Finish::Cancelled) => ", interrupted",
        Some(Finish::EndToken(_) | Finish::StopToken(_) | Finish::StopText(_) | Finish::Complete) | None => "",
    };
    let guesses = match output.guesses {
        Guesses { offered: 0, .. } => String::new(),
        Guesses { offered, right } => format!(", {right} of {offered} guesses right"),
    };
    screen::hint(&format!(
        "[{} tokens read at {:.0}/s, {} written at {:.1}/s{guesses}{end}]",
        usage.prompt_tokens,
        timings.prompt_tokens_per_second,
        usage.completion_tokens,
        timings.generation_tokens_per_second
    ));
}
