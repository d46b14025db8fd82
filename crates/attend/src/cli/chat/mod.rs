//! `attend chat`: a conversation in the terminal.

mod commands;
mod editor;

use super::error::usage;
use super::interrupt::Graceful;
use super::options::{ComputeArgs, ModelArg, TemplateArgs};
use super::prefix::Recall;
use super::run::{Printer, say_how_it_ended, show_settings};
use super::sampling::SamplingArgs;
use super::screen;
use super::session::{self, Session};
use crate::models::Folder;
use anyhow::{Result, anyhow};
use attend_engine::model_source::ModelSource;
use attend_engine::vocabulary::Vocabulary;
use attend_engine::{Draft, Engine, Finish, GenerateOptions, Limits, Output, Prompt, Schedule, generate};
use attend_kernels::RopeScaling;
use attend_nn::spec::{ModelSpec, Position};
use attend_text::ChatTemplate;
use clap::Args;
use commands::Command;
use editor::{Editor, Line};
use serde_json::{Value, json};
use std::io::Write;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  attend chat
  attend chat -m model.gguf --system \"Answer in one sentence.\" --temperature 0.7

In the conversation: /help lists the commands, \"\"\" begins and ends a text of several lines, a \\ at a line's end goes on \
in the next one, Ctrl-C ends an answer, Ctrl-D or /exit leaves.")]
pub struct ChatArgs {
    #[command(flatten)]
    pub model: ModelArg,
    /// What the model is told before the conversation
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    #[command(flatten)]
    pub template: TemplateArgs,
    #[command(flatten)]
    pub sampling: SamplingArgs,
    #[command(flatten)]
    pub compute: ComputeArgs,
}

/// A conversation and what it is held with.
struct Chat<'s> {
    args: &'s ChatArgs,
    session: &'s Session,
    engine: &'s Engine<'s>,
    template: ChatTemplate,
    recall: Recall<'s, ModelSource<'s>>,
    draft: Option<Recall<'s, ModelSource<'s>>>,
    options: GenerateOptions,
    system: Option<String>,
    /// User and assistant in turn.
    messages: Vec<Value>,
    last: Option<Output>,
}

pub fn run(args: &ChatArgs) -> Result<bool> {
    let session = session::open(&args.model, &args.compute)?;
    let helper = session::open_draft(&args.sampling, &args.compute)?;
    let draft = helper.as_ref().map(|helper| helper.draft_engine(&args.compute)).transpose()?;
    let engine = session.engine(&args.compute)?.with_draft(draft.as_ref())?;
    let template = session.template(&args.template)?.ok_or_else(|| {
        anyhow!(
            "{}: the model has no chat template; give one with --chat-template, or use `attend run --raw`",
            session.path.display()
        )
    })?;
    if engine.is_encoder_decoder() {
        return Err(anyhow!(
            "{}: an encoder-decoder answers one text at a time; use `attend run`",
            session.path.display()
        ));
    }
    let resolved = session.generate_options(&engine, &args.sampling)?;
    if resolved.options.length.n > 1 || resolved.options.beam.num_beams > 1 {
        return Err(usage(
            "--n and --beams give several answers, of which a conversation can go on from one only; use `attend run`",
        ));
    }
    show_settings(&resolved);
    let recall = remember(&engine);
    let draft = engine.draft().map(remember);
    let (options, system) = (resolved.options, args.system.clone());
    let mut chat = Chat {
        args,
        session: &session,
        engine: &engine,
        template,
        recall,
        draft,
        options,
        system,
        messages: Vec::new(),
        last: None,
    };
    screen::hint("/help lists the commands; Ctrl-D leaves");
    chat.converse(&mut Editor::open()?)
}

/// A source that does not compute the turns of a conversation twice.
fn remember<'e>(engine: &'e Engine<'_>) -> Recall<'e, ModelSource<'e>> {
    Recall::new(engine.source(), !length_dependent(engine.source().spec()))
}

/// Whether a token's rotation depends on how long the prompt is.
fn length_dependent(spec: &ModelSpec) -> bool {
    spec.output_stack().layers.iter().any(|layer| match &layer.attention.position {
        Position::Rope(rope) => matches!(rope.scaling, RopeScaling::Dynamic { .. } | RopeScaling::Long { .. }),
        Position::None
        | Position::Alibi(_)
        | Position::RelativeBias(_)
        | Position::StackBias
        | Position::Disentangled(_) => false,
    })
}

impl<'s> Chat<'s> {
    fn converse(&mut self, editor: &mut Editor) -> Result<bool> {
        loop {
            match editor.read()? {
                Line::End => return Ok(true),
                Line::Nothing => {}
                Line::Text(text) if text.starts_with('/') => match commands::parse(&text) {
                    Ok(Command::Exit) => return Ok(true),
                    // A command that fails leaves the conversation as it is.
                    Ok(command) => {
                        self.obey(command).unwrap_or_else(|error| super::error::say_error(&super::error::whole(&error)))
                    }
                    Err(message) => super::error::say_error(&message),
                },
                Line::Text(text) => {
                    self.messages.push(json!({"role": "user", "content": text}));
                    if let Err(error) = self.answer() {
                        self.messages.pop();
                        self.survive(error)?;
                    }
                }
            }
        }
    }

    /// Errors of one turn are said and the conversation goes on; a closed output ends it.
    fn survive(&self, error: anyhow::Error) -> Result<()> {
        if error.chain().any(|cause| cause.is::<std::io::Error>()) {
            return Err(error);
        }
        super::error::say_error(&super::error::whole(&error));
        Ok(())
    }

    /// Answers the last message.
    fn answer(&mut self) -> Result<()> {
        let mut messages = Vec::new();
        messages.extend(self.system.as_ref().map(|system| json!({"role": "system", "content": system})));
        messages.extend(self.messages.iter().cloned());
        let ids = self.session.encode_chat(&self.template, &messages, &self.args.template)?;
        self.announce_room(ids.len());
        let graceful = Graceful::begin();
        let mut printer = Printer::new(true);
        let output =
            generate::answer(self.schedule(), (&Prompt::tokens(ids), &self.options), &mut |event| printer.take(&event));
        drop(graceful);
        printer.failure()?;
        let output = output.map_err(|error| match error {
            attend_engine::Error::Context { .. } => {
                anyhow!("{error}; /undo takes the last turn back, /reset begins anew")
            }
            other => other.into(),
        })?;
        self.recalls().for_each(Recall::keep);
        printer.finish(&[])?;
        let mut out = std::io::stdout().lock();
        out.write_all(b"\n")?;
        out.flush()?;
        for notice in &output.notices {
            screen::hint(&format!("note: {notice}"));
        }
        if let Some(choice) = output.choices.first() {
            self.messages.push(json!({"role": "assistant", "content": choice.text}));
            if choice.finish == Finish::Context {
                screen::notice("note: the context is full; /reset begins anew, /undo takes turns back");
            }
        }
        say_how_it_ended(&output);
        self.last = Some(output);
        Ok(())
    }

    /// A loop for one answer.
    fn schedule(&self) -> Schedule<'_, Recall<'s, ModelSource<'s>>> {
        let context = self.engine.draft().and_then(|draft| draft.surroundings().context);
        let draft = self.draft.as_ref().map(|source| Draft { source, context });
        let vocabulary = Some(&self.session.tokenizer as &dyn Vocabulary);
        Schedule::new(&self.recall, vocabulary, self.engine.surroundings(), Limits::default()).with_draft(draft)
    }

    /// The past as the model knows it, and as its draft model does.
    fn recalls(&self) -> impl Iterator<Item = &Recall<'s, ModelSource<'s>>> {
        std::iter::once(&self.recall).chain(&self.draft)
    }

    /// Says when little room is left: nothing is ever dropped from a conversation to make some.
    fn announce_room(&self, tokens: usize) {
        let Some(context) = self.engine.surroundings().context else { return };
        if tokens < context && tokens > context / 10 * 9 {
            screen::notice(&format!("note: the conversation has {tokens} of the context's {context} tokens"));
        }
    }

    fn obey(&mut self, command: Command) -> Result<()> {
        match command {
            Command::Help => screen::notice(commands::HELP),
            Command::Exit => {}
            Command::Reset => {
                self.messages.clear();
                self.last = None;
                self.recalls().for_each(Recall::clear);
                screen::notice("a new conversation");
            }
            Command::System(None) => screen::notice(self.system.as_deref().unwrap_or("(no system message)")),
            Command::System(Some(text)) => self.system = (text != "none").then_some(text),
            Command::Save(file) => self.save(&file)?,
            Command::Load(file) => self.load(&file)?,
            Command::Set(None) => screen::notice(&serde_json::to_string_pretty(&self.options)?),
            Command::Set(Some((name, value))) => self.set(&name, value)?,
            Command::Stats => self.stats(),
            Command::Regenerate => {
                let before = self.messages.clone();
                self.drop_answer()?;
                if let Err(error) = self.answer() {
                    self.messages = before;
                    return Err(error);
                }
            }
            Command::Undo => {
                self.drop_answer()?;
                self.messages.pop();
                screen::notice(&format!("{} turns left", self.messages.len() / 2));
            }
        }
        Ok(())
    }

    fn drop_answer(&mut self) -> Result<()> {
        if self.messages.is_empty() {
            return Err(anyhow!("the conversation is empty"));
        }
        if self.messages.last().is_some_and(|message| message["role"] == "assistant") {
            self.messages.pop();
        }
        Ok(())
    }

    fn set(&mut self, name: &str, value: Value) -> Result<()> {
        let name = match name.trim_start_matches('-').replace('-', "_").as_str() {
            "typical" => "typical_p".to_owned(),
            "repeat_penalty" => "repetition_penalty".to_owned(),
            other => other.to_owned(),
        };
        let mut options = self.options.clone();
        options.set(&name, value)?;
        options.validate(self.session.loaded.model.vocab().unwrap_or(usize::MAX))?;
        self.options = options;
        Ok(())
    }

    fn stats(&self) {
        let Some(output) = &self.last else { return screen::notice("nothing was answered yet") };
        let (usage, timings) = (&output.usage, &output.timings);
        screen::notice(&format!(
            "{} prompt tokens, {} of them from the cache, in {:.2} s; {} tokens written in {:.2} s ({:.1}/s); seed {}; context {}",
            usage.prompt_tokens,
            self.recall.reused(),
            timings.prompt_seconds,
            usage.completion_tokens,
            timings.generation_seconds,
            timings.generation_tokens_per_second,
            output.seed,
            self.engine.surroundings().context.map_or("without limit".into(), |context| context.to_string()),
        ));
    }

    fn save(&self, file: &str) -> Result<()> {
        let object =
            json!({"model": self.session.path.display().to_string(), "system": self.system, "messages": self.messages});
        std::fs::write(file, serde_json::to_string_pretty(&object)?).map_err(|error| anyhow!("{file}: {error}"))?;
        screen::notice(&format!("saved to {file}"));
        Ok(())
    }

    fn load(&mut self, file: &str) -> Result<()> {
        let text = std::fs::read_to_string(file).map_err(|error| anyhow!("{file}: {error}"))?;
        let (system, messages) = commands::conversation(&text).map_err(|message| anyhow!("{file}: {message}"))?;
        screen::notice(&format!("{} messages", messages.len()));
        (self.system, self.messages, self.last) = (system, messages, None);
        Ok(())
    }
}

/// Where lines that were typed are kept: beside the models.
fn history_file() -> Option<std::path::PathBuf> {
    let folder = Folder::locate().ok()?;
    Some(folder.path.parent()?.join("chat-history.txt"))
}
