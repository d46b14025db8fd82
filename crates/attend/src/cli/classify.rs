//! `attend classify`: the labels of each text, or a number.

use super::batch::{self, Answer, BatchArgs, Record, Window};
use super::options::ModelArg;
use super::task::{self, Cuts, TaskArgs};
use super::values;
use anyhow::Result;
use attend_engine::tasks::classify::{Classifier, Function};
use attend_engine::tasks::{Labelled, Text};
use clap::{Args, ValueEnum};
use serde::Serialize;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  attend classify -m folder \"I liked it.\"
  attend classify -m folder --input reviews.csv --field review --top-k 1 --json
  attend classify -m nli-folder \"A man eats.\" --text-pair \"Somebody has lunch.\"

Scores sum to 1, or stand each by itself for a model of several labels at once; a regression gives its number.")]
pub struct ClassifyArgs {
    #[command(flatten)]
    pub batch: BatchArgs,
    #[command(flatten)]
    pub model: ModelArg,
    /// The second text of each pair; inputs may bring their own `text_pair`
    #[arg(long, value_name = "TEXT")]
    pub text_pair: Option<String>,
    /// The best N labels only
    #[arg(long, value_name = "N", value_parser = values::at_least_one, allow_negative_numbers = true)]
    pub top_k: Option<usize>,
    /// How the model's outputs become scores [default: as its problem_type says]
    #[arg(long, value_name = "KIND", value_enum)]
    pub function: Option<FunctionChoice>,
    #[command(flatten)]
    pub task: TaskArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FunctionChoice {
    Softmax,
    Sigmoid,
    None,
}

/// A list of labels, the best first.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct LabelList(pub Vec<Labelled>);

impl Answer for LabelList {
    fn text(&self) -> String {
        self.0.iter().map(|one| format!("{} {}", one.label, task::score(one.score))).collect::<Vec<_>>().join("  ")
    }
}

pub fn run(args: &ClassifyArgs) -> Result<bool> {
    let session = task::open(&args.model, &args.task)?;
    let model = task::reader(&session, &args.task)?;
    let mut cuts = Cuts::new(&model);
    let function = args.function.map(|choice| match choice {
        FunctionChoice::Softmax => Function::Softmax,
        FunctionChoice::Sigmoid => Function::Sigmoid,
        FunctionChoice::None => Function::None,
    });
    let classifier = Classifier::new(model, function).map_err(task::blame)?;
    let top = args.top_k.unwrap_or(usize::MAX);
    batch::run(&args.batch, Window::default(), |records, progress| {
        let text = |record: &'_ Record| -> Result<(String, Option<String>)> {
            let own = record.field_opt(&["text_pair"])?.map(str::to_owned);
            Ok((record.text()?.to_owned(), own.or_else(|| args.text_pair.clone())))
        };
        let texts = records.iter().map(text).collect::<Result<Vec<_>>>()?;
        let texts: Vec<Text<'_>> =
            texts.iter().map(|(first, second)| Text { first, second: second.as_deref() }).collect();
        let found =
            classifier.classify(&texts, top, &mut task::watch(progress)).map_err(|e| task::placed(e, records))?;
        found.iter().for_each(|classes| cuts.count(classes.cut));
        Ok(found.into_iter().map(|classes| LabelList(classes.labels)).collect())
    })
}
