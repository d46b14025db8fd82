//! `attend convert`: a model in the other kind of file.

use super::error::Interrupted;
use super::interrupt::{self, Graceful};
use super::options::ModelArg;
use super::{screen, session};
use crate::convert::{self, Error, Plan, Target, Written, is_plain};
use anyhow::Result;
use attend_kernels::DType;
use attend_model::{Described, ExportTensor};
use clap::{Args, ValueEnum};
use std::io::Write;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  attend convert -m ./SmolLM2-135M smollm2.gguf             a Hugging Face folder as a GGUF file
  attend convert -m ./SmolLM2-135M smollm2.gguf --dtype f32
  attend convert -m model-q8_0.gguf ./model --dtype bf16    a GGUF file as a Hugging Face folder

The tokenizer, the chat template and the defaults of generation go with the weights. Vectors are written in 32 bits in \
GGUF files, as every reader of the format expects. `attend quantize` writes the smaller types.")]
pub struct ConvertArgs {
    /// Where to write: a name that ends in .gguf is a GGUF file, any other a folder
    pub out: PathBuf,
    #[command(flatten)]
    pub model: ModelArg,
    /// The type of the matrices [default: the model's own; f16 for block types that become a folder]
    #[arg(long, value_name = "TYPE", value_enum)]
    pub dtype: Option<PlainType>,
    /// Write over what is there
    #[arg(long)]
    pub force: bool,
}

/// The types without blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PlainType {
    F32,
    F16,
    Bf16,
}

impl PlainType {
    /// `general.file_type` of files with matrices of this type.
    fn file_type(self) -> u32 {
        match self {
            PlainType::F32 => 0,
            PlainType::F16 => 1,
            PlainType::Bf16 => 32,
        }
    }

    fn dtype(self) -> DType {
        match self {
            PlainType::F32 => DType::F32,
            PlainType::F16 => DType::F16,
            PlainType::Bf16 => DType::BF16,
        }
    }
}

pub fn run(args: &ConvertArgs) -> Result<bool> {
    let path = session::locate(&args.model)?;
    let target = Target::new(&args.out, args.force, &path)?;
    let source = describe(&path)?;
    let gguf = target.is_gguf();
    let types = |tensor: &ExportTensor| match args.dtype {
        _ if gguf && is_plain(tensor) => DType::F32,
        Some(wanted) => wanted.dtype(),
        None if !gguf && tensor.dtype.is_quantized() => DType::F16,
        None => tensor.dtype,
    };
    write(&source, &target, &types, args.dtype.map(PlainType::file_type))
}

/// Describes a model and says what there is to say about it.
pub fn describe(path: &Path) -> Result<Described> {
    attend_kernels::choose().map_err(|message| anyhow::anyhow!(message))?;
    let source = attend_model::describe(path)?;
    source.notices.iter().for_each(|notice| screen::notice(&format!("note: {notice}")));
    Ok(source)
}

/// Writes under a bar and says what was written.
pub fn write(
    source: &Described,
    target: &Target,
    types: &dyn Fn(&ExportTensor) -> DType,
    file_type: Option<u32>,
) -> Result<bool> {
    let _graceful = Graceful::begin();
    let mut bar = screen::LateBar::bytes("writing");
    let mut progress = |done, total| {
        bar.at(done, total);
        !interrupt::pressed()
    };
    let outcome = convert::write(source, target, &mut Plan { types, file_type, progress: &mut progress });
    bar.clear();
    match outcome {
        Ok(written) => say(target.path(), &written),
        Err(Error::Interrupted) => Err(Interrupted.into()),
        Err(error) => Err(error.into()),
    }
}

fn say(path: &Path, written: &Written) -> Result<bool> {
    written.notices.iter().for_each(|notice| screen::notice(&format!("note: {notice}")));
    let share =
        |(dtype, count, bytes): &(DType, usize, u64)| format!("{count} tensors in {dtype} ({})", screen::bytes(*bytes));
    let types: Vec<String> = written.types.iter().map(share).collect();
    writeln!(std::io::stdout(), "{}: {}: {}", path.display(), screen::bytes(written.bytes), types.join(", "))?;
    Ok(true)
}
