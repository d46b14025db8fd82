//! What the commands for tasks share: how a model is opened for one, how errors name their input, what was cut.

use super::batch::{Progress, Record};
use super::error::{Interrupted, usage};
use super::options::{AdapterArgs, AttentionChoice, CacheType, ComputeArgs, ComputeType, ModelArg};
use super::session::{self, Session};
use super::{interrupt, screen, values};
use anyhow::{Result, anyhow};
use attend_engine::Error;
use attend_engine::tasks::{BATCH_TOKENS, Limit, Step, TaskModel, TaskOptions};
use clap::Args;
use std::ops::ControlFlow;

/// How inputs are read and the model is computed.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Computing")]
pub struct TaskArgs {
    /// Cut inputs that are longer than the model reads, instead of refusing them
    #[arg(long)]
    pub truncate: bool,
    /// Cut every input to N tokens
    #[arg(long, value_name = "N", value_parser = values::at_least_one, allow_negative_numbers = true)]
    pub max_length: Option<usize>,
    /// Tokens that are computed at once; answers do not depend on it, memory does
    #[arg(long, value_name = "N", default_value_t = BATCH_TOKENS, value_parser = values::at_least_one, allow_negative_numbers = true)]
    pub batch_tokens: usize,
    /// Threads to compute with [default: the machine's cores]
    #[arg(long, value_name = "N", value_parser = values::threads, allow_negative_numbers = true)]
    pub threads: Option<usize>,
    /// Arithmetic of the weights: auto follows the file and the machine, f32 widens every weight exactly, q8_0 rounds plain
    /// weights to eight bits as they are read
    #[arg(long, value_name = "TYPE", default_value = "auto", value_enum)]
    pub dtype: ComputeType,
    /// The fast attention, or the one that spells out every step
    #[arg(long, value_name = "KIND", default_value = "flash", value_enum)]
    pub attention: AttentionChoice,
    #[command(flatten)]
    pub adapters: AdapterArgs,
}

impl TaskArgs {
    fn compute(&self) -> ComputeArgs {
        ComputeArgs {
            threads: self.threads,
            dtype: self.dtype,
            // Nothing is cached between inputs.
            kv_type: CacheType::F16,
            context: None,
            attention: self.attention,
            adapters: self.adapters.clone(),
        }
    }
}

/// Opens the model that was named. There is no default: the one that `run` has writes text and nothing else.
pub fn open(model: &ModelArg, args: &TaskArgs) -> Result<Session> {
    if model.model.is_none() {
        return Err(usage("name a model for this task with -m"));
    }
    session::open(model, &args.compute())
}

/// The model made ready to read inputs.
pub fn reader<'s>(session: &'s Session, args: &TaskArgs) -> Result<TaskModel<'s>> {
    let options = TaskOptions {
        run: session::engine_options(&args.compute()).run,
        batch_tokens: args.batch_tokens,
        max_length: args.max_length,
        truncate: args.truncate,
    };
    TaskModel::new(&session.loaded, &session.tokenizer, &options).map_err(blame)
}

/// Counts steps, and stops them when the user wants no more.
pub fn watch(progress: &mut Progress) -> impl FnMut(Step) -> ControlFlow<()> + '_ {
    |step| {
        progress.add(step.inputs, step.tokens);
        if interrupt::pressed() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// The engine's error with the place of the record that it is about.
pub fn placed(error: Error, records: &[Record]) -> anyhow::Error {
    match error {
        Error::Cancelled => Interrupted.into(),
        Error::Input { index, source } => {
            let place =
                records.get(index).map_or_else(|| format!("input {}", index + 1), |record| record.place.clone());
            match *source {
                Error::TooLong { .. } => anyhow!("{place}: {source} (--truncate)"),
                Error::Parameter { .. } => usage(format!("{place}: {source}")),
                other => anyhow!("{place}: {other}"),
            }
        }
        other => blame(other),
    }
}

/// A complaint about a parameter is a mistake of usage.
pub fn blame(error: Error) -> anyhow::Error {
    match error {
        Error::Parameter { .. } | Error::ContextTooLong { .. } => usage(error.to_string()),
        other => other.into(),
    }
}

/// Counts inputs that were cut; says so when it is dropped, for the answers that were written are of cut texts.
#[derive(Debug)]
pub struct Cuts {
    limit: Option<Limit>,
    cut: usize,
    all: usize,
}

impl Cuts {
    pub fn new(model: &TaskModel<'_>) -> Cuts {
        Cuts { limit: model.limit().cloned(), cut: 0, all: 0 }
    }

    pub fn count(&mut self, cut: bool) {
        self.all += 1;
        self.cut += usize::from(cut);
    }
}

impl Drop for Cuts {
    fn drop(&mut self) {
        let Some(Limit { tokens, source, .. }) = self.limit.as_ref().filter(|_| self.cut > 0) else { return };
        screen::notice(&format!("note: {} of {} inputs were cut to {tokens} tokens ({source})", self.cut, self.all));
    }
}

/// A score as people read it.
pub fn score(value: f32) -> String {
    format!("{value:.4}")
}
