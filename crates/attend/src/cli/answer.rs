//! `attend answer`: answers to questions, as parts of a given context.

use super::batch::{self, BatchArgs, Record, Window};
use super::error::usage;
use super::options::ModelArg;
use super::task::{self, TaskArgs};
use super::values;
use anyhow::{Context, Result};
use attend_engine::tasks::answer::{Answer, AnswerOptions, Answerer, Question};
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  attend answer -m qa-folder --context \"Ada was born in London.\" \"Where was Ada born?\"
  attend answer -m qa-folder --context-file book.txt --top-k 3 --json \"Who is the captain?\"
  attend answer -m qa-folder --input questions.jsonl --json    lines {\"question\": ..., \"context\": ...}

Positions are in characters (code points) of the context. A context of any length is read in parts that overlap.")]
pub struct AnswerArgs {
    #[command(flatten)]
    pub batch: BatchArgs,
    #[command(flatten)]
    pub model: ModelArg,
    /// Where to look; inputs may bring their own `context`
    #[arg(long, value_name = "TEXT", conflicts_with = "context_file")]
    pub context: Option<String>,
    /// Where to look, in a file
    #[arg(long, value_name = "FILE")]
    pub context_file: Option<PathBuf>,
    /// Answers to each question
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::at_least_one, allow_negative_numbers = true)]
    pub top_k: usize,
    /// Most tokens of an answer
    #[arg(long, value_name = "N", default_value = "15", value_parser = values::at_least_one, allow_negative_numbers = true)]
    pub max_answer_length: usize,
    /// Tokens that neighbouring parts of a long context share [default: 128]
    #[arg(long, value_name = "N", value_parser = values::count, allow_negative_numbers = true)]
    pub doc_stride: Option<usize>,
    /// That there is no answer may be the answer: an empty text
    #[arg(long)]
    pub no_answer: bool,
    /// Let answers begin and end inside words
    #[arg(long)]
    pub inside_words: bool,
    #[command(flatten)]
    pub task: TaskArgs,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Answers {
    One(Answer),
    Several(Vec<Answer>),
}

impl batch::Answer for Answers {
    fn text(&self) -> String {
        let line = |a: &Answer| format!("{}  {}  {}-{}", a.text, task::score(a.score), a.start, a.end);
        match self {
            Answers::One(answer) => line(answer),
            Answers::Several(answers) => answers.iter().map(line).collect::<Vec<_>>().join("  |  "),
        }
    }
}

pub fn run(args: &AnswerArgs) -> Result<bool> {
    let given = match (&args.context, &args.context_file) {
        (Some(text), _) => Some(text.clone()),
        (None, Some(path)) => Some(std::fs::read_to_string(path).with_context(|| path.display().to_string())?),
        (None, None) => None,
    };
    let session = task::open(&args.model, &args.task)?;
    // Parts are cut to the length themselves.
    let reader = task::reader(&session, &TaskArgs { max_length: None, ..args.task.clone() })?;
    let options = AnswerOptions {
        top: args.top_k,
        max_answer: args.max_answer_length,
        max_length: args.task.max_length,
        stride: args.doc_stride,
        no_answer: args.no_answer,
        whole_words: !args.inside_words,
    };
    let answerer = Answerer::new(reader, options).map_err(task::blame)?;
    batch::run(&args.batch, Window::default(), |records, progress| {
        let question = |record: &Record| -> Result<(String, String)> {
            let question = record.field(&["question", "text"])?.to_owned();
            match record.field_opt(&["context"])?.or(given.as_deref()) {
                Some(context) => Ok((question, context.to_owned())),
                None => Err(usage(format!("{}: --context is wanted, or `context`", record.place))),
            }
        };
        let questions = records.iter().map(question).collect::<Result<Vec<_>>>()?;
        let questions: Vec<Question<'_>> =
            questions.iter().map(|(question, context)| Question { question, context }).collect();
        let found = answerer.answer(&questions, &mut task::watch(progress)).map_err(|e| task::placed(e, records))?;
        let answers = found.into_iter().map(|mut answers| match answers.len() {
            1 if args.top_k == 1 => Answers::One(answers.remove(0)),
            _ => Answers::Several(answers),
        });
        Ok(answers.collect())
    })
}
