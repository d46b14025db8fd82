//! Many inputs, one answer each: what the commands for tasks share.
//!
//! [`run`] reads records ([`input`]) a window at a time, hands each window to the command's work, which may compute it
//! in any order, and writes the answers in the order of the inputs ([`output`]). Work that goes on across windows
//! ([`generate`]) takes and writes as it likes ([`flow`]). Neither all inputs nor all answers are ever in memory, and a file
//! given with `--output` appears only when it is whole.

pub mod csv;
pub mod generate;
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

/// Inputs on their way to answers.
pub struct Flow {
    records: input::Records,
    writer: output::Writer,
    pub progress: Progress,
}

impl Flow {
    /// The next inputs; none when they have ended.
    pub fn take(&mut self, window: Window) -> Result<Vec<Record>> {
        let taken = self.records.window(window)?;
        self.progress.taken(taken.len(), self.records.bytes_read());
        Ok(taken)
    }

    /// Writes the answers that come next.
    pub fn write<A: Answer>(&mut self, answers: &[A]) -> Result<()> {
        self.progress.pause();
        for answer in answers {
            self.writer.write(answer)?;
        }
        self.writer.flush()
    }
}

/// Opens where inputs come from and answers go, and lets `work` take from the one and write to the other. An interruption is
/// the work's to notice.
pub fn flow(args: &BatchArgs, work: impl FnOnce(&mut Flow) -> Result<()>) -> Result<bool> {
    let records = input::open(args)?;
    let writer = output::Writer::open(args)?;
    let mut flow = Flow { progress: Progress::begin(records.total_bytes()), records, writer };
    let graceful = Graceful::begin();
    let outcome = work(&mut flow);
    drop(graceful);
    flow.progress.end(outcome.is_ok());
    outcome?;
    flow.writer.finish()?;
    Ok(true)
}

/// Takes every input through `work`, which gives an answer for each record of a window, in their order.
pub fn run<A: Answer>(
    args: &BatchArgs,
    window: Window,
    mut work: impl FnMut(&[Record], &mut Progress) -> Result<Vec<A>>,
) -> Result<bool> {
    flow(args, |flow| {
        loop {
            let taken = flow.take(window)?;
            if taken.is_empty() {
                return Ok(());
            }
            let answers = work(&taken, &mut flow.progress)?;
            if interrupt::pressed() {
                return Err(Interrupted.into());
            }
            flow.write(&answers)?;
            flow.progress.all_done();
        }
    })
}
