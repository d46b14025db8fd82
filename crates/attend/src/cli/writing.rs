//! What `translate` and `summarize` share: the options of writing, and the loop over the inputs.

use super::batch::generate::Generator;
use super::batch::{Answer, BatchArgs, Record};
use super::error::usage;
use super::options::{ComputeArgs, ModelArg};
use super::session::{self, Session};
use super::{run, sampling, screen, values};
use anyhow::{Result, anyhow};
use attend_engine::{Choice, Engine, GenerateOptions, Output, Prompt, TextTask, Writing};
use clap::Args;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Writing")]
pub struct WritingArgs {
    /// Beam search with so many beams [default: what the model's files say, else 1]
    #[arg(long, value_name = "N", value_parser = values::at_least_one, allow_negative_numbers = true)]
    pub beams: Option<usize>,
    /// Above 0 favours long answers, below 0 short ones
    #[arg(long, value_name = "X", value_parser = values::finite, allow_negative_numbers = true)]
    pub length_penalty: Option<f32>,
    /// When the search ends: true (enough answers), false (no better one is likely), never (none is possible)
    #[arg(long, value_name = "WHEN", value_parser = sampling::WHEN)]
    pub early_stopping: Option<String>,
    /// The N best answers with their scores, from at least as many beams
    #[arg(long, value_name = "N", value_parser = values::at_least_one, allow_negative_numbers = true)]
    pub n: Option<usize>,
    /// The most tokens of an answer [default: what the model's files say]
    #[arg(long, value_name = "N", value_parser = values::count, allow_negative_numbers = true)]
    pub max_tokens: Option<usize>,
    /// No end before so many tokens
    #[arg(long, value_name = "N", value_parser = values::count, allow_negative_numbers = true)]
    pub min_tokens: Option<usize>,
    /// No sequence of N tokens twice (0: off)
    #[arg(long, value_name = "N", value_parser = values::count, allow_negative_numbers = true)]
    pub no_repeat_ngram_size: Option<usize>,
    /// Words in front of every text, in place of those that the model's files give for the task
    #[arg(long, value_name = "TEXT")]
    pub prefix: Option<String>,
    /// Cut inputs at the end that are longer than the model reads, and say so; without it they are refused
    #[arg(long)]
    pub truncate: bool,
}

/// A command's task: its name for the answers, and what it asks of the model.
pub struct Job<'a> {
    /// The field of the JSON form that holds the best text.
    pub field: &'static str,
    pub task: Writing,
    pub model: &'a ModelArg,
    pub batch: &'a BatchArgs,
    pub writing: &'a WritingArgs,
    pub compute: &'a ComputeArgs,
}

impl Job<'_> {
    pub fn run(&self) -> Result<bool> {
        if self.model.model.is_none() {
            return Err(usage("name a model for this task with -m"));
        }
        let session = session::open(self.model, self.compute)?;
        let engine = session.engine(self.compute)?;
        let task = engine.text_task(&self.task, self.writing.prefix.as_deref()).map_err(mistake)?;
        for notice in &task.notices {
            screen::notice(&format!("note: {notice}"));
        }
        let options = self.options(&session, &engine, &task)?;
        let prompt = |record: &Record| self.prompt(&engine, &task, record);
        let answer = |output: Output, cut_from| Written { field: self.field, choices: output.choices, cut_from };
        Generator { engine: &engine, options, prompt, answer }.run(self.batch)
    }

    /// The settings of the files for the task, and over them what was given.
    fn options(&self, session: &Session, engine: &Engine<'_>, task: &TextTask) -> Result<GenerateOptions> {
        let w = self.writing;
        let mut given: Vec<(&'static str, &'static str, Value)> = Vec::new();
        let mut add = |name, flag, value: Option<Value>| given.extend(value.map(|value| (name, flag, value)));
        let short = |number: f32| number.to_string().parse::<f64>().map_or(Value::Null, Value::from);
        add("num_beams", "beams", w.beams.map(Value::from));
        add("length_penalty", "length-penalty", w.length_penalty.map(short));
        add("early_stopping", "early-stopping", w.early_stopping.as_deref().map(sampling::early_stopping));
        add("max_tokens", "max-tokens", w.max_tokens.map(Value::from));
        add("min_tokens", "min-tokens", w.min_tokens.map(Value::from));
        add("no_repeat_ngram_size", "no-repeat-ngram-size", w.no_repeat_ngram_size.map(Value::from));
        add("num_return_sequences", "n", w.n.map(Value::from));
        let beams = task.generation.num_beams.unwrap_or(1);
        if w.beams.is_none() && w.n.is_some_and(|n| n > beams) {
            add("num_beams", "n", w.n.map(Value::from));
        }
        // One answer to each text: what a file says of several is for other callers.
        if w.n.is_none() && task.generation.num_return_sequences.is_some_and(|n| n > 1) {
            add("num_return_sequences", "n", Some(json!(1)));
        }
        let flags: Vec<(String, &'static str)> =
            given.iter().map(|(name, flag, _)| (name.to_string(), *flag)).collect();
        let values = given.into_iter().map(|(name, _, value)| (name.to_owned(), value));
        let resolved = engine.task_options(task, values).map_err(|error| session::blame(error, &flags))?;
        let vocab = session.loaded.model.vocab().unwrap_or(usize::MAX);
        resolved.options.validate(vocab).map_err(|error| session::blame(error, &flags))?;
        run::show_settings(&resolved);
        Ok(resolved.options)
    }

    /// A record's prompt, and how many tokens it had where some were cut off.
    fn prompt(&self, engine: &Engine<'_>, task: &TextTask, record: &Record) -> Result<(Prompt, Option<usize>)> {
        let at = |error: attend_engine::Error| anyhow!("{}: {error}", record.place);
        let ready = engine.task_prompt(task, record.text()?, self.writing.truncate).map_err(at)?;
        let tokens = ready.prompt.encoder_ids.as_ref().map_or(0, Vec::len);
        if let Some(whole) = ready.cut_from {
            screen::notice(&format!("note: {}: cut from {whole} to {tokens} tokens", record.place));
        }
        Ok((ready.prompt, ready.cut_from))
    }
}

/// A language that the model does not know is a mistake in the command line.
fn mistake(error: attend_engine::Error) -> anyhow::Error {
    match error {
        attend_engine::Error::Text(attend_text::Error::Language { .. }) => usage(error.to_string()),
        other => other.into(),
    }
}

/// The answers to one text.
struct Written {
    field: &'static str,
    choices: Vec<Choice>,
    cut_from: Option<usize>,
}

impl Written {
    fn best(&self) -> &str {
        self.choices.first().map_or("", |choice| choice.text.as_str())
    }
}

impl Answer for Written {
    fn text(&self) -> String {
        if self.choices.len() < 2 {
            return self.best().to_owned();
        }
        let line = |choice: &Choice| format!("{:.4}\t{}", choice.score.unwrap_or(f32::NAN), choice.text);
        self.choices.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

impl Serialize for Written {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry(self.field, self.best())?;
        let choice = |choice: &Choice| {
            json!({
                "text": choice.text,
                "score": choice.score,
                "token_ids": choice.token_ids,
                "finish_reason": choice.finish.reason(),
            })
        };
        map.serialize_entry("choices", &self.choices.iter().map(choice).collect::<Vec<_>>())?;
        if let Some(tokens) = self.cut_from {
            map.serialize_entry("truncated_from", &tokens)?;
        }
        map.end()
    }
}
