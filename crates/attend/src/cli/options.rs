//! Options that several commands share: which model, and how it is computed.

use super::values;
use attend_kernels::{Compute, DType};
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use serde_json::Value;
use std::ffi::OsString;
use std::path::PathBuf;

/// Which model a command works on.
#[derive(Debug, Clone, Args)]
pub struct ModelArg {
    /// A folder, a GGUF file, a hub id (owner/name, owner/name:Q4_K_M) or a name from `attend list`; the default
    /// model when absent
    #[arg(short, long, value_name = "MODEL")]
    pub model: Option<OsString>,
}

/// How the model is computed.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Computing")]
pub struct ComputeArgs {
    /// Threads to compute with [default: the machine's cores]
    #[arg(long, value_name = "N", value_parser = values::threads, allow_negative_numbers = true)]
    pub threads: Option<usize>,

    /// Arithmetic of the weights: auto follows the file and the machine, f32 widens every weight exactly, q8_0 rounds plain
    /// weights to eight bits as they are read
    #[arg(long, value_name = "TYPE", default_value = "auto", value_enum)]
    pub dtype: ComputeType,

    /// How keys and values are kept in the cache
    #[arg(long, value_name = "TYPE", default_value = "f16", value_enum)]
    pub kv_type: CacheType,

    /// The most tokens a sequence may have, prompt and answer together [default: what the model was made for]
    #[arg(long, value_name = "N", value_parser = values::context, allow_negative_numbers = true)]
    pub context: Option<usize>,

    /// The fast attention, or the one that spells out every step
    #[arg(long, value_name = "KIND", default_value = "flash", value_enum)]
    pub attention: AttentionChoice,

    #[command(flatten)]
    pub adapters: AdapterArgs,
}

/// Which adapters stand beside the weights.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Computing")]
pub struct AdapterArgs {
    /// A LoRA adapter to compute with, and how strongly it counts [default: 1]: a folder with adapter_config.json
    /// (may be repeated)
    #[arg(long, value_name = "ADAPTER[=SCALE]", value_parser = OsStringValueParser::new().try_map(adapter))]
    pub lora: Vec<AdapterArg>,
}

/// An adapter that was named, and what its own scale is multiplied by.
#[derive(Debug, Clone, PartialEq)]
pub struct AdapterArg {
    pub path: PathBuf,
    pub strength: f64,
}

pub fn adapter(word: OsString) -> Result<AdapterArg, String> {
    let whole = || AdapterArg { path: word.clone().into(), strength: 1.0 };
    // A path that is no text is a whole one.
    let Some(text) = word.to_str() else { return Ok(whole()) };
    let Some((path, number)) = text.rsplit_once('=') else { return Ok(whole()) };
    match number.parse::<f64>() {
        Ok(strength) if strength.is_finite() => Ok(AdapterArg { path: path.into(), strength }),
        // A folder may have this sign in its name.
        _ if std::path::Path::new(text).exists() => Ok(whole()),
        _ => Err("a number is wanted after the =".into()),
    }
}

/// How a conversation becomes a prompt.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Chat template")]
pub struct TemplateArgs {
    /// Use the template in this file instead of the model's own
    #[arg(long, value_name = "FILE")]
    pub chat_template: Option<PathBuf>,
    /// A variable that the template looks at, as in enable_thinking=false; the value is JSON, else text (may be repeated)
    #[arg(long, value_name = "NAME=VALUE", value_parser = template_variable)]
    pub template_var: Vec<(String, Value)>,
}

fn template_variable(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text.split_once('=').ok_or("NAME=VALUE is wanted")?;
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Err("a name of letters, digits and _ is wanted before the =".into());
    }
    Ok((name.to_owned(), serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()))))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ComputeType {
    Auto,
    F32,
    #[value(name = "q8_0", alias = "int8")]
    Q8_0,
}

impl ComputeType {
    /// What it means for the loader: the arithmetic, and the type that plain matrices are given.
    pub fn chosen(self) -> (Compute, Option<DType>) {
        match self {
            ComputeType::Auto => (Compute::Native, None),
            ComputeType::F32 => (Compute::F32, None),
            ComputeType::Q8_0 => (Compute::Native, Some(DType::Q8_0)),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CacheType {
    F32,
    F16,
    Bf16,
    #[value(name = "q8_0")]
    Q8_0,
    #[value(name = "q4_0")]
    Q4_0,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AttentionChoice {
    Flash,
    Textbook,
}
