//! `attend fill`: the likeliest tokens for the gaps of a text.

use super::batch::{self, Answer, BatchArgs, Record, Window};
use super::options::ModelArg;
use super::task::{self, Cuts, TaskArgs};
use super::values;
use anyhow::Result;
use attend_engine::tasks::fill::{Filler, Filling};
use clap::Args;
use serde::Serialize;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  attend fill -m bert-folder \"Paris is the [MASK] of France.\"
  attend fill -m roberta-folder --top-k 3 --json \"Paris is the <mask> of France.\"

A text with several gaps has a list of tokens for each, every gap filled by itself.")]
pub struct FillArgs {
    #[command(flatten)]
    pub batch: BatchArgs,
    #[command(flatten)]
    pub model: ModelArg,
    /// Tokens for each gap
    #[arg(long, value_name = "N", default_value = "5", value_parser = values::at_least_one, allow_negative_numbers = true)]
    pub top_k: usize,
    #[command(flatten)]
    pub task: TaskArgs,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Fillings {
    One(Vec<Filling>),
    Each(Vec<Vec<Filling>>),
}

impl Answer for Fillings {
    fn text(&self) -> String {
        let line = |mask: &Vec<Filling>| {
            mask.iter()
                .map(|one| format!("{} {}", one.token.trim(), task::score(one.score)))
                .collect::<Vec<_>>()
                .join("  ")
        };
        match self {
            Fillings::One(mask) => line(mask),
            Fillings::Each(masks) => masks.iter().map(line).collect::<Vec<_>>().join("  |  "),
        }
    }
}

pub fn run(args: &FillArgs) -> Result<bool> {
    let session = task::open(&args.model, &args.task)?;
    let model = task::reader(&session, &args.task)?;
    let mut cuts = Cuts::new(&model);
    let filler = Filler::new(model).map_err(task::blame)?;
    batch::run(&args.batch, Window::default(), |records, progress| {
        let texts = records.iter().map(Record::text).collect::<Result<Vec<&str>>>()?;
        let found =
            filler.fill(&texts, args.top_k, &mut task::watch(progress)).map_err(|e| task::placed(e, records))?;
        let answers = found.into_iter().map(|filled| {
            cuts.count(filled.cut);
            let mut masks = filled.masks;
            if masks.len() == 1 { Fillings::One(masks.remove(0)) } else { Fillings::Each(masks) }
        });
        Ok(answers.collect())
    })
}
