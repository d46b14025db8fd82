//! `attend summarize`: the gist of each text.

use super::batch::BatchArgs;
use super::options::{ComputeArgs, ModelArg};
use super::writing::{Job, WritingArgs};
use anyhow::Result;
use attend_engine::Writing;
use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  attend summarize -m some/bart-large-cnn --input article.txt --input-format whole
  attend summarize -m some/t5 --beams 4 --max-tokens 60 --input articles.jsonl --json
  attend summarize -m some/pegasus --truncate --n 3 --input articles.csv --field body

Inputs that are longer than the model reads are refused; --truncate cuts them, and says so.")]
pub struct SummarizeArgs {
    #[command(flatten)]
    pub model: ModelArg,
    #[command(flatten)]
    pub writing: WritingArgs,
    #[command(flatten)]
    pub batch: BatchArgs,
    #[command(flatten)]
    pub compute: ComputeArgs,
}

pub fn run(args: &SummarizeArgs) -> Result<bool> {
    let SummarizeArgs { model, batch, writing, compute } = args;
    Job { field: "summary", task: Writing::Summarize, model, batch, writing, compute }.run()
}
