//! `attend translate`: texts in another language.

use super::batch::BatchArgs;
use super::options::{ComputeArgs, ModelArg};
use super::writing::{Job, WritingArgs};
use anyhow::Result;
use attend_engine::Writing;
use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  attend translate -m some/opus-mt-en-de \"Good morning.\"
  attend translate -m some/nllb --source-lang eng_Latn --target-lang French --input texts.jsonl --json
  attend translate -m some/t5 --source-lang en --target-lang de --beams 4 \"The house is wonderful.\"
  cat lines.txt | attend translate -m some/opus-mt-en-ROMANCE --target-lang fra

Languages are codes as the model spells them (fr_XX, fra_Latn, fr), other codes of the same language, or its English name. \
A translation stands on a line; with --n, each of the best behind its score.")]
pub struct TranslateArgs {
    #[command(flatten)]
    pub model: ModelArg,
    /// The language of the texts [default: the tokenizer's own]
    #[arg(long, value_name = "LANGUAGE")]
    pub source_lang: Option<String>,
    /// The language to translate into [default: the one that the model's files name]
    #[arg(long, value_name = "LANGUAGE")]
    pub target_lang: Option<String>,
    #[command(flatten)]
    pub writing: WritingArgs,
    #[command(flatten)]
    pub batch: BatchArgs,
    #[command(flatten)]
    pub compute: ComputeArgs,
}

pub fn run(args: &TranslateArgs) -> Result<bool> {
    let task = Writing::Translate { source: args.source_lang.clone(), target: args.target_lang.clone() };
    let TranslateArgs { model, batch, writing, compute, .. } = args;
    Job { field: "translation", task, model, batch, writing, compute }.run()
}
