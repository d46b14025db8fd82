//! `attend zero-shot`: labels of one's own, judged by a model of entailment.

use super::batch::{self, BatchArgs, Record, Window};
use super::classify::LabelList;
use super::error::usage;
use super::options::ModelArg;
use super::task::{self, Cuts, TaskArgs};
use anyhow::Result;
use attend_engine::tasks::zero_shot::{Candidates, TEMPLATE, ZeroShot};
use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  attend zero-shot -m nli-folder --labels sport,politics,food \"The match was lost.\"
  attend zero-shot -m nli-folder --labels urgent,spam --multi-label --input mails.txt --json
  attend zero-shot -m nli-folder --labels sport --hypothesis-template \"This text is about {}.\" \"The match was lost.\"")]
pub struct ZeroShotArgs {
    #[command(flatten)]
    pub batch: BatchArgs,
    #[command(flatten)]
    pub model: ModelArg,
    /// The labels, separated by commas; inputs may bring their own `labels`
    #[arg(long, value_name = "LABEL,...", value_delimiter = ',')]
    pub labels: Vec<String>,
    /// The sentence that a label is put into
    #[arg(long, value_name = "TEXT", default_value = TEMPLATE)]
    pub hypothesis_template: String,
    /// Judge every label by itself: several may be true
    #[arg(long)]
    pub multi_label: bool,
    #[command(flatten)]
    pub task: TaskArgs,
}

pub fn run(args: &ZeroShotArgs) -> Result<bool> {
    let session = task::open(&args.model, &args.task)?;
    let model = task::reader(&session, &args.task)?;
    let mut cuts = Cuts::new(&model);
    let judge = ZeroShot::new(model).map_err(task::blame)?;
    let given: Vec<String> = trimmed(&args.labels);
    batch::run(&args.batch, Window::default(), |records, progress| {
        let labels = |record: &Record| match record.list_opt(&["labels", "candidate_labels"])? {
            Some(own) => Ok(if own.len() == 1 { trimmed(&split(&own)) } else { own }),
            None if given.is_empty() => Err(usage(format!("{}: --labels is wanted, or `labels`", record.place))),
            None => Ok(given.clone()),
        };
        let labels = records.iter().map(labels).collect::<Result<Vec<_>>>()?;
        let texts = records.iter().zip(&labels);
        let texts = texts.map(|(record, labels)| Ok(Candidates { text: record.text()?, labels }));
        let texts = texts.collect::<Result<Vec<_>>>()?;
        let found = judge.judge(&texts, &args.hypothesis_template, args.multi_label, &mut task::watch(progress));
        let found = found.map_err(|e| task::placed(e, records))?;
        found.iter().for_each(|judged| cuts.count(judged.cut));
        Ok(found.into_iter().map(|judged| LabelList(judged.labels)).collect())
    })
}

/// A column of a table holds its labels as one string.
fn split(labels: &[String]) -> Vec<String> {
    labels.iter().flat_map(|label| label.split(',')).map(str::to_owned).collect()
}

fn trimmed(labels: &[String]) -> Vec<String> {
    labels.iter().map(|label| label.trim().to_owned()).filter(|label| !label.is_empty()).collect()
}
