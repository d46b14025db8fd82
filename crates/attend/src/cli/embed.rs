//! `attend embed`: the vector of each text.

use super::batch::{self, Answer, BatchArgs, Window};
use super::options::ModelArg;
use super::task::{self, Cuts, TaskArgs};
use super::{screen, values};
use anyhow::Result;
use attend_engine::tasks::Pooling;
use attend_engine::tasks::embed::{EmbedOptions, Embedder, Embedding, Prompt, Role};
use attend_engine::tasks::sparse::{self, Sparse, SparseEmbedding, Weight};
use clap::{Args, ValueEnum};
use serde::Serialize;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  attend embed -m all-MiniLM-L6-v2 \"A sentence.\" --json
  attend embed -m model.gguf --input texts.txt --output vectors.npy
  attend embed -m folder --input texts.csv --field body --dimensions 256 --output vectors.jsonl
  attend embed -m splade-folder --sparse --top 20 \"What is a lighthouse?\"

Pooling, normalisation, prompts and the longest text are what the model's folder says.")]
pub struct EmbedArgs {
    #[command(flatten)]
    pub batch: BatchArgs,
    #[command(flatten)]
    pub model: ModelArg,
    #[command(flatten)]
    pub vectors: VectorArgs,
    /// What the texts are to one another, for models with a prompt for each
    #[arg(long, value_name = "ROLE", value_enum)]
    pub role: Option<RoleChoice>,
    /// A weight for every token that the text is about, from the masked-language-model head (SPLADE)
    #[arg(long, conflicts_with_all = ["pooling", "normalize", "no_normalize", "dimensions"])]
    pub sparse: bool,
    /// Of a sparse vector, the N largest weights only
    #[arg(long, value_name = "N", value_parser = values::at_least_one, allow_negative_numbers = true)]
    pub top: Option<usize>,
    #[command(flatten)]
    pub task: TaskArgs,
}

/// How vectors are made, over what the folder says.
#[derive(Debug, Clone, Args)]
pub struct VectorArgs {
    /// How the vectors of tokens become one [default: as the folder says]
    #[arg(long, value_name = "KIND", value_parser = pooling)]
    pub pooling: Option<Pooling>,
    /// Scale vectors to length 1
    #[arg(long, conflicts_with = "no_normalize")]
    pub normalize: bool,
    /// Leave vectors as they are
    #[arg(long)]
    pub no_normalize: bool,
    /// Keep the first N numbers of each vector only (Matryoshka models)
    #[arg(long, value_name = "N", value_parser = values::at_least_one, allow_negative_numbers = true)]
    pub dimensions: Option<usize>,
    /// Put this text in front of each
    #[arg(long, value_name = "TEXT", conflicts_with = "prompt_name")]
    pub prompt: Option<String>,
    /// Put the folder's prompt of this name in front of each
    #[arg(long, value_name = "NAME")]
    pub prompt_name: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RoleChoice {
    Query,
    Document,
}

fn pooling(name: &str) -> Result<Pooling, String> {
    let known = || Pooling::named(&name.replace('-', "_").replace("weighted_mean", "weightedmean"));
    if name == "none" { Some(Pooling::None) } else { known() }
        .ok_or_else(|| "none, cls, mean, max, last, weighted-mean or mean-sqrt-len is wanted".to_owned())
}

impl VectorArgs {
    pub fn options(&self) -> EmbedOptions {
        let prompt = match (&self.prompt, &self.prompt_name) {
            (Some(text), _) => Prompt::Text(text.clone()),
            (None, Some(name)) => Prompt::Named(name.clone()),
            (None, None) => Prompt::Folder,
        };
        let normalize = (self.normalize || self.no_normalize).then_some(self.normalize);
        EmbedOptions { pooling: self.pooling, normalize, dimensions: self.dimensions, prompt }
    }
}

/// The answer of one text.
#[derive(Debug, Serialize)]
struct Vector {
    embedding: Rows,
    tokens: usize,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Rows {
    One(Vec<f32>),
    Each(Vec<Vec<f32>>),
}

impl Answer for Vector {
    fn text(&self) -> String {
        let line = |row: &Vec<f32>| row.iter().map(f32::to_string).collect::<Vec<_>>().join(" ");
        match &self.embedding {
            Rows::One(row) => line(row),
            Rows::Each(rows) => rows.iter().map(|row| line(row) + "\n").collect(),
        }
    }

    fn row(&self) -> Option<&[f32]> {
        match &self.embedding {
            Rows::One(row) => Some(row),
            Rows::Each(_) => None,
        }
    }
}

#[derive(Debug, Serialize)]
struct SparseVector {
    sparse: Vec<Weight>,
    tokens: usize,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
}

impl Answer for SparseVector {
    fn text(&self) -> String {
        let words = self.sparse.iter().map(|weight| format!("{} {:.4}", weight.token, weight.weight));
        words.collect::<Vec<_>>().join("  ")
    }
}

pub fn run(args: &EmbedArgs) -> Result<bool> {
    let session = task::open(&args.model, &args.task)?;
    let model = task::reader(&session, &args.task)?;
    let mut cuts = Cuts::new(&model);
    let embedder = Embedder::new(model, args.vectors.options()).map_err(task::blame)?;
    let role = match args.role {
        None => Role::Plain,
        Some(RoleChoice::Query) => Role::Query,
        Some(RoleChoice::Document) => Role::Document,
    };
    let dense = args.vectors.pooling.is_some() || args.vectors.dimensions.is_some();
    let kind =
        if args.sparse { Some(embedder.sparse().unwrap_or_default()) } else { embedder.sparse().filter(|_| !dense) };
    if let Some(kind) = kind {
        return run_sparse(args, &embedder, role, kind, &mut cuts);
    }
    if let Some(notice) = embedder.notice() {
        screen::notice(&format!("note: {notice}"));
    }
    batch::run(&args.batch, Window::default(), |records, progress| {
        let texts = records.iter().map(batch::Record::text).collect::<Result<Vec<&str>>>()?;
        let found = embedder.embed(&texts, role, &mut task::watch(progress)).map_err(|e| task::placed(e, records))?;
        Ok(found.into_iter().map(|found| vector(found, embedder.per_token(), &mut cuts)).collect())
    })
}

fn vector(found: Embedding, per_token: bool, cuts: &mut Cuts) -> Vector {
    cuts.count(found.cut);
    let embedding = match per_token {
        false => Rows::One(found.values),
        true => Rows::Each(found.values.chunks(found.width.max(1)).map(<[f32]>::to_vec).collect()),
    };
    Vector { embedding, tokens: found.tokens, truncated: found.cut }
}

fn run_sparse(args: &EmbedArgs, embedder: &Embedder<'_>, role: Role, kind: Sparse, cuts: &mut Cuts) -> Result<bool> {
    let prompt = embedder.prompt(role);
    batch::run(&args.batch, Window::default(), |records, progress| {
        let texts: Vec<String> =
            records.iter().map(|record| Ok(format!("{prompt}{}", record.text()?))).collect::<Result<_>>()?;
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let found = sparse::embed(embedder.model(), kind, &texts, &mut task::watch(progress));
        let found = found.map_err(|e| task::placed(e, records))?;
        let answers = found.into_iter().map(|SparseEmbedding { mut weights, tokens, cut }| {
            cuts.count(cut);
            weights.truncate(args.top.unwrap_or(usize::MAX));
            SparseVector { sparse: weights, tokens, truncated: cut }
        });
        Ok(answers.collect())
    })
}
