//! `attend rerank`: which documents answer a query best.

use super::batch::{self, Answer, BatchArgs, Record, Window};
use super::embed::VectorArgs;
use super::options::ModelArg;
use super::task::{self, Cuts, TaskArgs};
use super::values;
use anyhow::Result;
use attend_engine::tasks::Task;
use attend_engine::tasks::embed::Embedder;
use attend_engine::tasks::rerank::{Ranked, Reranker, is_cross_encoder};
use clap::Args;
use serde::Serialize;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  attend rerank -m cross-encoder --query \"capital of France\" \"Paris is.\" \"Rome is.\"
  attend rerank -m cross-encoder --query \"capital of France\" --input documents.txt --top-n 3 --json
  attend rerank -m embedder --input queries.jsonl --json     lines {\"query\": ..., \"documents\": [...]}

A cross-encoder reads query and document together; with any other model their vectors are compared.")]
pub struct RerankArgs {
    #[command(flatten)]
    pub batch: BatchArgs,
    #[command(flatten)]
    pub model: ModelArg,
    /// What the documents should answer; without it each input brings its own `query` and `documents`
    #[arg(long, value_name = "TEXT")]
    pub query: Option<String>,
    /// The best N documents only
    #[arg(long, value_name = "N", value_parser = values::at_least_one, allow_negative_numbers = true)]
    pub top_n: Option<usize>,
    /// Scores of a cross-encoder as the model gives them, not between 0 and 1
    #[arg(long)]
    pub raw_scores: bool,
    #[command(flatten)]
    pub vectors: VectorArgs,
    #[command(flatten)]
    pub task: TaskArgs,
}

#[derive(Debug, Serialize)]
struct Document {
    index: usize,
    score: f32,
    text: String,
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Ranking(Vec<Document>);

impl Answer for Ranking {
    fn text(&self) -> String {
        let line = |d: &Document| format!("{:>7}  {:>4}  {}", task::score(d.score), d.index, one_line(&d.text));
        self.0.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

pub fn run(args: &RerankArgs) -> Result<bool> {
    let session = task::open(&args.model, &args.task)?;
    let model = task::reader(&session, &args.task)?;
    let mut cuts = Cuts::new(&model);
    Task::Rerank.check(session.loaded.model.spec())?;
    let ranker = match is_cross_encoder(session.loaded.model.spec()) {
        true => Reranker::cross(model, args.raw_scores).map_err(task::blame)?,
        false => {
            let embedder = Embedder::new(model, args.vectors.options()).map_err(task::blame)?;
            if let Some(notice) = embedder.notice() {
                super::screen::notice(&format!("note: {notice}"));
            }
            Reranker::Vectors(Box::new(embedder))
        }
    };
    let mut ranking = |ranked: Vec<Ranked>, documents: &[&str]| {
        ranked.iter().for_each(|document| cuts.count(document.cut));
        let found = ranked.into_iter().take(args.top_n.unwrap_or(usize::MAX));
        let document = |Ranked { index, score, .. }| Document {
            index,
            score,
            text: documents.get(index).copied().unwrap_or_default().to_owned(),
        };
        Ranking(found.map(document).collect())
    };
    let Some(query) = &args.query else {
        return batch::run(&args.batch, Window::default(), |records, progress| {
            let one = |record: &Record| {
                let query = record.field(&["query", "question"])?;
                let documents = record.list_opt(&["documents", "texts", "passages"])?;
                let documents = documents.ok_or_else(|| anyhow::anyhow!("{}: `documents` is missing", record.place))?;
                let documents: Vec<&str> = documents.iter().map(String::as_str).collect();
                let ranked = ranker.rank(query, &documents, &mut task::watch(progress));
                Ok(ranking(ranked.map_err(|e| within(e, record))?, &documents))
            };
            records.iter().map(one).collect()
        });
    };
    // One ranking needs all documents.
    let window = Window { records: usize::MAX, bytes: usize::MAX };
    batch::run(&args.batch, window, |records, progress| {
        let documents = records.iter().map(|r| r.field(&["text", "document"])).collect::<Result<Vec<&str>>>()?;
        let ranked =
            ranker.rank(query, &documents, &mut task::watch(progress)).map_err(|e| task::placed(e, records))?;
        Ok(vec![ranking(ranked, &documents)])
    })
}

/// An error about one of a record's documents.
fn within(error: attend_engine::Error, record: &Record) -> anyhow::Error {
    match error {
        attend_engine::Error::Input { index, source } => {
            task::placed(*source, &[]).context(format!("{}, document {}", record.place, index + 1))
        }
        other => task::placed(other, &[]),
    }
}
