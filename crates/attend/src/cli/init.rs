//! `attend init`: random weights for a description.

use super::{screen, values};
use anyhow::Result;
use attend_kernels::DType;
use attend_model::InitOptions;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  attend init palm.toml my-model
  attend init small.json my-model --seed 7 --weights bf16

The folder holds the description and model.safetensors, with tensors under our own names. With a tokenizer.json beside \
them it is a model as any other: `attend run -m my-model`.")]
pub struct InitArgs {
    /// A description: a .toml or .json file (docs/specs.md)
    #[arg(value_name = "SPEC")]
    pub spec: PathBuf,
    /// The folder to write
    #[arg(value_name = "OUT")]
    pub out: PathBuf,
    /// The same seed gives the same weights
    #[arg(long, value_name = "N", default_value = "0")]
    pub seed: u64,
    /// The type of the matrices: f32, f16 or bf16
    #[arg(long, value_name = "TYPE", default_value = "f32", value_parser = values::plain_type)]
    pub weights: DType,
}

pub fn run(args: &InitArgs) -> Result<bool> {
    let file = attend_model::init(&args.spec, &args.out, &InitOptions { seed: args.seed, dtype: args.weights })?;
    screen::hint(&format!("{} written", file.display()));
    Ok(true)
}
