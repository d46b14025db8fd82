//! `attend verify`: the arguments; the work is in [`crate::verify`].

use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  attend verify goldens
  attend verify goldens --filter '^llama'
  attend verify my-model-recorded --json

Each case runs twice, watched (textbook attention, every place compared) and as users get it; both must agree with the \
reference. The last line counts the cases; the exit code is 1 when one failed.")]
pub struct VerifyArgs {
    /// Folders that hold golden cases, at any depth
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Only cases whose name matches
    #[arg(long, value_name = "REGEX")]
    pub filter: Option<regex::Regex>,
    /// One JSON object
    #[arg(long)]
    pub json: bool,
}
