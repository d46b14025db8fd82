//! `attend show`: what a model is made of, read off its description; no weights are read.

mod machine;
mod tables;
mod words;

use super::options::{ComputeArgs, ModelArg};
use super::session;
use anyhow::Result;
use attend_format::gguf::{Array, Value as GgufValue};
use attend_kernels::DType;
use attend_model::Described;
use attend_text::{ChatTemplate, Tokenizer};
use clap::Args;
use machine::Computing;
use serde_json::{Map, Value, json};
use std::io::Write;
use std::path::Path;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  attend show                      the default model
  attend show -m model.gguf --metadata
  attend show -m some/folder --json | jq .spec

Layers that are alike are shown once, with the layers that they stand for.")]
pub struct ShowArgs {
    #[command(flatten)]
    pub model: ModelArg,
    /// Also everything that the files say about themselves
    #[arg(long)]
    pub metadata: bool,
    /// Every tensor of every layer, not one layer of each kind
    #[arg(long)]
    pub tensors: bool,
    /// One JSON object
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub compute: ComputeArgs,
}

/// Everything that is shown.
struct Shown {
    described: Described,
    tokenizer: Result<Tokenizer, String>,
    template: Result<Option<ChatTemplate>, String>,
    computing: Computing,
}

pub fn run(args: &ShowArgs) -> Result<bool> {
    session::prepare(&args.compute)?;
    let described = session::design(&args.model)?;
    let path = described.checkpoint.path().to_path_buf();
    // A description by itself has no files beside it.
    let beside = described.checkpoint.has_weights() || path.is_dir();
    let shown = Shown {
        computing: Computing::of(&described, &args.compute)?,
        // A model can be shown without them; what is wrong with them is shown too.
        tokenizer: match beside {
            true => Tokenizer::open(&path).map_err(|error| error.to_string()),
            false => Err("a description has none".into()),
        },
        template: match beside {
            true => ChatTemplate::open(&path).map_err(|error| error.to_string()),
            false => Ok(None),
        },
        described,
    };
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&as_json(&path, &shown)?)?)?;
        return Ok(true);
    }
    tables::write(&mut out, args, &shown)?;
    if args.metadata {
        writeln!(out, "\nmetadata")?;
        for (key, value) in metadata(&shown.described) {
            let text = value.to_string();
            let cut: String = text.chars().take(160).collect();
            writeln!(out, "  {key} = {cut}{}", if cut.len() < text.len() { " ..." } else { "" })?;
        }
    }
    Ok(true)
}

fn as_json(path: &Path, shown: &Shown) -> Result<Value> {
    let described = &shown.described;
    let tensors = described.tensors.iter().map(|tensor| {
        json!({
            "name": tensor.ours,
            "shape": tensor.shape,
            "dtype": tensor.dtype.to_string(),
            "bytes": tensor_bytes(tensor.dtype, tensor.elements()),
            "file": tensor.file.file_name().map(|name| name.to_string_lossy()),
            "file_tensor": tensor.theirs,
        })
    });
    let by_type: Map<String, Value> = described
        .by_type()
        .into_iter()
        .map(|(dtype, (parameters, bytes))| (dtype.to_string(), json!({"parameters": parameters, "bytes": bytes})))
        .collect();
    Ok(json!({
        "path": path.display().to_string(),
        "format": words::kind(&described.checkpoint),
        "architecture": described.architecture,
        "parameters": u64::try_from(described.parameters()).ok(),
        "weight_bytes": described.weight_bytes(),
        "context": described.spec.context,
        "by_type": by_type,
        "spec": described.spec,
        "tensors": tensors.collect::<Vec<_>>(),
        "computing": shown.computing,
        "generation": described.generation,
        "tokenizer": tokenizer(shown),
        "chat_template": shown.template.as_ref().is_ok_and(Option::is_some),
        "notices": described.notices,
        "metadata": metadata(described),
    }))
}

fn tokenizer(shown: &Shown) -> Value {
    match &shown.tokenizer {
        Err(message) => json!({"error": message}),
        Ok(tokenizer) => json!({
            "kind": tokenizer.kind(),
            "vocabulary": tokenizer.vocab_size(),
            "bos": tokenizer.bos(),
            "eos": tokenizer.eos(),
            "pad": tokenizer.pad(),
            "unk": tokenizer.unk(),
            "end_ids": tokenizer.end_ids(),
            "adds_bos": tokenizer.adds_bos(),
        }),
    }
}

fn tensor_bytes(dtype: DType, elements: usize) -> u64 {
    dtype.bytes(elements).unwrap_or(0) as u64
}

/// What the files say about themselves: GGUF's metadata, or config.json.
fn metadata(described: &Described) -> Map<String, Value> {
    match described.checkpoint.gguf() {
        Some(metadata) => metadata.iter().map(|(key, value)| (key.to_owned(), gguf_value(value))).collect(),
        None => described.checkpoint.config().map().clone(),
    }
}

/// Lists of tokens and merges are as long as the vocabulary: of long arrays only the type and the length is told.
const LONG: usize = 64;

fn gguf_value(value: &GgufValue) -> Value {
    match value {
        GgufValue::String(text) => json!(text),
        GgufValue::Bool(flag) => json!(flag),
        GgufValue::Array(array) if array.len() > LONG => {
            json!(format!("{} values of type {}", array.len(), array.type_name()))
        }
        GgufValue::Array(Array::String(strings)) => strings.iter().collect(),
        GgufValue::Array(Array::Bool(flags)) => json!(flags),
        GgufValue::Array(array) => match (array.integers(), array.numbers()) {
            (Some(integers), _) => integers.map(whole).collect(),
            (None, Some(numbers)) => numbers.map(|number| json!(number)).collect(),
            (None, None) => json!(format!("{} values of type {}", array.len(), array.type_name())),
        },
        number => number.as_i128().map_or_else(|| json!(number.as_f64()), whole),
    }
}

fn whole(value: i128) -> Value {
    i64::try_from(value).map(Value::from).or_else(|_| u64::try_from(value).map(Value::from)).unwrap_or(Value::Null)
}
