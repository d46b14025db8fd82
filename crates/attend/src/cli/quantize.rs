//! `attend quantize`: a GGUF file with smaller types.

use super::convert::{describe, write};
use super::error::usage;
use super::options::ModelArg;
use super::{screen, session, values};
use crate::convert::{Mix, Override, Target, tensors, types};
use anyhow::Result;
use attend_kernels::DType;
use attend_model::ExportTensor;
use attend_nn::spec::Body;
use clap::Args;
use regex::Regex;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  attend quantize -m ./SmolLM2-135M smollm2-q4.gguf                 from a Hugging Face folder
  attend quantize -m model-f16.gguf model-q5.gguf --type q5_k_m     from a GGUF file
  attend quantize -m ./model out.gguf --type q4_k_m --tensor 'attn_v=q8_0' --tensor 'blk\\.0\\.=f16'

Vectors and norms stay in 32 bits, tables of positions in 16, and so do value projections of encoders under q8_0. \
Where the rows of a matrix do not fill the blocks of its type, a type of smaller blocks takes its place, and it is \
said. `attend perplexity --reference` tells what a type costs.")]
pub struct QuantizeArgs {
    /// The file to write; its name ends in .gguf
    pub out: PathBuf,
    #[command(flatten)]
    pub model: ModelArg,
    /// The type of the matrices, or a mix of types
    #[arg(long, value_name = "TYPE", default_value = "q4_k_m", value_enum, ignore_case = true)]
    pub r#type: Mix,
    /// A type for the tensors whose names match a pattern, as in 'attn_v=q8_0' (may be repeated; the first match counts)
    #[arg(long, value_name = "REGEX=TYPE", value_parser = tensor_type)]
    pub tensor: Vec<Override>,
    /// Write over what is there
    #[arg(long)]
    pub force: bool,
    /// Threads to compute with [default: the machine's cores]
    #[arg(long, value_name = "N", value_parser = values::threads, allow_negative_numbers = true)]
    pub threads: Option<usize>,
}

/// The types that a tensor may be given.
const TYPES: &[DType] = &[
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::Q8_0,
    DType::Q5_1,
    DType::Q5_0,
    DType::Q4_1,
    DType::Q4_0,
    DType::Q6_K,
    DType::Q5_K,
    DType::Q4_K,
    DType::Q3_K,
    DType::Q2_K,
    DType::IQ4_NL,
    DType::IQ4_XS,
    DType::MXFP4,
];

fn tensor_type(text: &str) -> Result<Override, String> {
    let (pattern, name) = text.rsplit_once('=').ok_or("REGEX=TYPE is wanted")?;
    let pattern = Regex::new(pattern).map_err(|error| error.to_string())?;
    let dtype = TYPES.iter().copied().find(|dtype| dtype.name().eq_ignore_ascii_case(name));
    let known = || TYPES.iter().map(|dtype| dtype.name()).collect::<Vec<_>>().join(", ");
    let dtype = dtype.ok_or_else(|| format!("`{name}` is no type; known are {}", known()))?;
    Ok(Override { pattern, dtype })
}

pub fn run(args: &QuantizeArgs) -> Result<bool> {
    if args.out.extension().is_none_or(|ending| ending != "gguf") {
        return Err(usage(format!("{}: a name that ends in .gguf is wanted", args.out.display())));
    }
    if let Some(threads) = args.threads {
        attend_kernels::set_threads(threads);
    }
    let path = session::locate(&args.model)?;
    let target = Target::new(&args.out, args.force, &path)?;
    let source = describe(&path)?;
    let encoder = matches!(source.spec.body, Body::Encoder(_));
    let chosen = types(&tensors(&source, &target)?, args.r#type, &args.tensor, encoder);
    if let Some(idle) = chosen.idle.first().and_then(|&at| args.tensor.get(at)) {
        return Err(usage(format!("--tensor: no matrix of this model matches `{}`", idle.pattern)));
    }
    chosen.notices.iter().for_each(|notice| screen::notice(&format!("note: {notice}")));
    let of = |tensor: &ExportTensor| chosen.by_name.get(&tensor.name).copied().unwrap_or(tensor.dtype);
    write(&source, &target, &of, Some(args.r#type.file_type()))
}
