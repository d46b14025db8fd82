//! Many inputs, one answer each: what the commands for tasks share.
//!
//! [`run`] reads records ([`input`]) a window at a time, hands each window to the command's work, which may compute it
//! in any order, and writes the answers in the order of the inputs ([`output`]). Neither all inputs nor all answers are
//! ever in memory, and a file given with `--output` appears only when it is whole.

pub mod csv;
pub mod input;
pub mod npy;
pub mod output;
pub mod progress;

pub use input::Record;
pub use output::Answer;
pub use progress::Progress;

use super::error::Interrupted;
use super::interrupt::{self, Graceful};
use anyhow::Result;
use clap::{Args, ValueEnum};
use std::ops::ControlFlow;
use std::path::PathBuf;

/// Where inputs come from and where answers go.
#[derive(Debug, Clone, Args)]
pub struct BatchArgs {
    /// The texts, an answer for each; standard input, a line each, when there are none
    #[arg(value_name = "TEXT")]
    pub texts: Vec<String>,
    /// Read the inputs from a file (- is standard input)
    #[arg(long, value_name = "FILE", conflicts_with = "texts", help_heading = "Input and output")]
    pub input: Option<PathBuf>,
    /// What the inputs are [default: by the file's ending, else a text in each line]
    #[arg(long, value_name = "FORMAT", value_enum, help_heading = "Input and output")]
    pub input_format: Option<InputFormat>,
    /// The field (JSONL) or column (CSV) that holds the text [default: text, or the only one there is]
    #[arg(long, value_name = "NAME", help_heading = "Input and output")]
    pub field: Option<String>,
    /// One line of JSON for each input; the same as --format jsonl
    #[arg(long, conflicts_with = "format", help_heading = "Input and output")]
    pub json: bool,
    /// How answers are written [default: text, or by the ending of --output]
    #[arg(long, value_name = "FORMAT", value_enum, help_heading = "Input and output")]
    pub format: Option<OutputFormat>,
    /// Write the answers to a file, which appears when all of them are there
    #[arg(short, long, value_name = "FILE", help_heading = "Input and output")]
    pub output: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum InputFormat {
    /// A text in each line
    Text,
    /// The whole file is one text
    Whole,
    /// In each line a JSON string, or an object with the text in one of its fields
    Jsonl,
    /// Comma-separated values; the first record names the columns
    Csv,
    /// The same with tabs
    Tsv,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// For people
    Text,
    /// One JSON list of all answers
    Json,
    /// One line of JSON for each input
    Jsonl,
    /// A NumPy array, a row for each input (embeddings)
    Npy,
}

/// Inputs that are computed together. Their order inside is the work's own business, so the window bounds how much
/// sorting by length can gain, and how long the first answer takes.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    pub records: usize,
    pub bytes: usize,
}

impl Default for Window {
    fn default() -> Window {
        Window { records: 512, bytes: 1 << 20 }
    }
}

/// Takes every input through `work`, which gives an answer for each record of a window, in their order.
pub fn run<A: Answer>(
    args: &BatchArgs,
    window: Window,
    mut work: impl FnMut(&[Record], &mut Progress) -> Result<Vec<A>>,
) -> Result<bool> {
    let mut records = input::open(args)?;
    let mut writer = output::Writer::open(args)?;
    let mut progress = Progress::begin(records.total_bytes());
    let graceful = Graceful::begin();
    let outcome = (|| -> Result<()> {
        loop {
            let taken = records.window(window)?;
            if taken.is_empty() {
                return Ok(());
            }
            let answers = work(&taken, &mut progress)?;
            if interrupt::pressed() {
                return Err(Interrupted.into());
            }
            progress.pause();
            for answer in &answers {
                writer.write(answer)?;
            }
            writer.flush()?;
            progress.finished(taken.len(), records.bytes_read());
        }
    })();
    drop(graceful);
    progress.end(outcome.is_ok());
    outcome?;
    writer.finish()?;
    Ok(true)
}

/// What a loop over batches should do next: stop when the user has pressed Ctrl-C.
pub fn go_on() -> ControlFlow<()> {
    if interrupt::pressed() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}
