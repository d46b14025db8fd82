//! `attend similarity`: how alike texts are, by their vectors.

use super::batch::{self, Answer, BatchArgs, Record, Window};
use super::embed::VectorArgs;
use super::error::usage;
use super::options::ModelArg;
use super::screen;
use super::task::{self, Cuts, TaskArgs};
use anyhow::Result;
use attend_engine::tasks::embed::{Embedder, Embedding, Role};
use clap::Args;
use serde::Serialize;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  attend similarity -m folder \"A man eats.\" \"Somebody has lunch.\"
  attend similarity -m folder --query \"lunch\" \"A man eats.\" \"It rains.\"
  attend similarity -m folder --input pairs.csv --json       columns text and text_pair
  attend similarity -m folder \"one\" \"two\" \"three\"            each with each

The measure is the one that the model's folder names, else the cosine.")]
pub struct SimilarityArgs {
    #[command(flatten)]
    pub batch: BatchArgs,
    #[command(flatten)]
    pub model: ModelArg,
    /// Compare every text with this one
    #[arg(long, value_name = "TEXT")]
    pub query: Option<String>,
    #[command(flatten)]
    pub vectors: VectorArgs,
    #[command(flatten)]
    pub task: TaskArgs,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Likeness {
    One {
        score: f32,
    },
    /// With each text, in order.
    All {
        scores: Vec<f32>,
    },
}

impl Answer for Likeness {
    fn text(&self) -> String {
        match self {
            Likeness::One { score } => task::score(*score),
            Likeness::All { scores } => {
                scores.iter().map(|s| format!("{:>7}", task::score(*s))).collect::<Vec<_>>().join(" ")
            }
        }
    }

    fn row(&self) -> Option<&[f32]> {
        match self {
            Likeness::One { score } => Some(std::slice::from_ref(score)),
            Likeness::All { scores } => Some(scores),
        }
    }
}

const FIRST: [&str; 4] = ["text", "sentence1", "text1", "first"];
const SECOND: [&str; 4] = ["text_pair", "sentence2", "text2", "second"];

pub fn run(args: &SimilarityArgs) -> Result<bool> {
    let texts = &args.batch.texts;
    if args.query.is_none() && texts.len() == 1 && texts != &["-"] {
        return Err(usage("a second text to compare with is wanted, or --query"));
    }
    let session = task::open(&args.model, &args.task)?;
    let model = task::reader(&session, &args.task)?;
    let mut cuts = Cuts::new(&model);
    let embedder = Embedder::new(model, args.vectors.options()).map_err(task::blame)?;
    if let Some(notice) = embedder.notice() {
        screen::notice(&format!("note: {notice}"));
    }
    if embedder.per_token() {
        return Err(usage("this model gives a vector for each token; choose a --pooling"));
    }
    let like = |a: &Embedding, b: &Embedding| embedder.similarity().of(&a.values, &b.values);
    let mut vectors =
        |texts: &[&str], role, records: &[Record], progress: &mut batch::Progress| -> Result<Vec<Embedding>> {
            let found =
                embedder.embed(texts, role, &mut task::watch(progress)).map_err(|e| task::placed(e, records))?;
            found.iter().for_each(|vector| cuts.count(vector.cut));
            Ok(found)
        };
    if let Some(query) = &args.query {
        let mut asked = None;
        return batch::run(&args.batch, Window::default(), |records, progress| {
            let texts = records.iter().map(Record::text).collect::<Result<Vec<&str>>>()?;
            if asked.is_none() {
                asked = vectors(&[query], Role::Query, &[], progress)?.pop();
            }
            let found = vectors(&texts, Role::Document, records, progress)?;
            let scores = asked.iter().flat_map(|asked| found.iter().map(move |vector| like(asked, vector)));
            Ok(scores.map(|score| Likeness::One { score }).collect())
        });
    }
    if texts.len() > 1 {
        // All of them are one window: each is compared with each.
        let window = Window { records: usize::MAX, bytes: usize::MAX };
        let own = texts.len();
        return batch::run(&args.batch, window, |records, progress| {
            let texts = records.iter().map(Record::text).collect::<Result<Vec<&str>>>()?;
            let found = vectors(&texts, Role::Plain, records, progress)?;
            if let ([a, b], 2) = (found.as_slice(), own) {
                return Ok(vec![Likeness::One { score: like(a, b) }]);
            }
            let row = |a: &Embedding| Likeness::All { scores: found.iter().map(|b| like(a, b)).collect() };
            Ok(found.iter().map(row).collect())
        });
    }
    batch::run(&args.batch, Window::default(), |records, progress| {
        let first = records.iter().map(|record| record.field(&FIRST)).collect::<Result<Vec<&str>>>()?;
        let second = records.iter().map(|record| record.field(&SECOND)).collect::<Result<Vec<&str>>>()?;
        let first = vectors(&first, Role::Plain, records, progress)?;
        let second = vectors(&second, Role::Plain, records, progress)?;
        Ok(first.iter().zip(&second).map(|(a, b)| Likeness::One { score: like(a, b) }).collect())
    })
}
