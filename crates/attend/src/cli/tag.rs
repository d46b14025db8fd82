//! `attend tag`: names, parts of speech and other labels of a text's parts.

use super::batch::{self, Answer, BatchArgs, Record, Window};
use super::options::ModelArg;
use super::task::{self, Cuts, TaskArgs};
use anyhow::Result;
use attend_engine::tasks::tag::{Aggregation, Entity, Tagger};
use clap::{Args, ValueEnum};
use serde::Serialize;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  attend tag -m ner-folder \"Ada Lovelace lived in London.\"
  attend tag -m ner-folder --input texts.txt --json
  attend tag -m pos-folder --aggregation first --ignore-labels \"\" \"They went home.\"

Positions are in characters (code points): the text from start up to, not including, end.")]
pub struct TagArgs {
    #[command(flatten)]
    pub batch: BatchArgs,
    #[command(flatten)]
    pub model: ModelArg,
    /// How tokens are put together: not, by equal neighbouring tags, or by words first (whose label is that of their
    /// first token, their tokens' average, or the surest token)
    #[arg(long, value_name = "KIND", default_value = "simple", value_enum)]
    pub aggregation: AggregationChoice,
    /// Labels that are left out, separated by commas
    #[arg(long, value_name = "LABEL,...", default_value = "O", value_delimiter = ',')]
    pub ignore_labels: Vec<String>,
    #[command(flatten)]
    pub task: TaskArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AggregationChoice {
    None,
    Simple,
    First,
    Average,
    Max,
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Entities(Vec<Entity>);

impl Answer for Entities {
    fn text(&self) -> String {
        let one = |e: &Entity| format!("{} {}-{} {:?} {}", e.entity, e.start, e.end, e.word, task::score(e.score));
        self.0.iter().map(one).collect::<Vec<_>>().join("  ")
    }
}

pub fn run(args: &TagArgs) -> Result<bool> {
    let session = task::open(&args.model, &args.task)?;
    let model = task::reader(&session, &args.task)?;
    let mut cuts = Cuts::new(&model);
    let tagger = Tagger::new(model).map_err(task::blame)?;
    let aggregation = match args.aggregation {
        AggregationChoice::None => Aggregation::None,
        AggregationChoice::Simple => Aggregation::Simple,
        AggregationChoice::First => Aggregation::First,
        AggregationChoice::Average => Aggregation::Average,
        AggregationChoice::Max => Aggregation::Max,
    };
    batch::run(&args.batch, Window::default(), |records, progress| {
        let texts = records.iter().map(Record::text).collect::<Result<Vec<&str>>>()?;
        let found = tagger.tag(&texts, aggregation, &args.ignore_labels, &mut task::watch(progress));
        let found = found.map_err(|e| task::placed(e, records))?;
        found.iter().for_each(|tags| cuts.count(tags.cut));
        Ok(found.into_iter().map(|tags| Entities(tags.entities)).collect())
    })
}
