//! Answers as text, JSON, JSON lines or a NumPy array, on standard output or in a file.

use super::npy::Npy;
use super::{BatchArgs, OutputFormat};
use crate::cli::error::usage;
use anyhow::Result;
use attend_format::AtomicFile;
use serde::Serialize;
use std::io::{BufWriter, Stdout, Write};
use std::path::Path;

/// What a task says of one input. Its JSON form is that of [`Serialize`].
pub trait Answer: Serialize {
    /// The form for people, without a line end.
    fn text(&self) -> String;

    /// The form in an array, for tasks that answer with numbers.
    fn row(&self) -> Option<&[f32]> {
        None
    }
}

/// Writes answers in the chosen form.
pub struct Writer {
    sink: Sink,
    format: OutputFormat,
    written: usize,
}

enum Sink {
    Stdout(BufWriter<Stdout>),
    File(AtomicFile),
    Array(Npy),
}

impl Writer {
    pub fn open(args: &BatchArgs) -> Result<Writer> {
        let format = match (args.json, args.format) {
            (true, _) => OutputFormat::Jsonl,
            (false, Some(format)) => format,
            (false, None) => by_ending(args.output.as_deref()),
        };
        let sink = match (&args.output, format) {
            (None, OutputFormat::Npy) => return Err(usage("--format npy needs --output FILE")),
            (None, _) => Sink::Stdout(BufWriter::new(std::io::stdout())),
            (Some(path), OutputFormat::Npy) => Sink::Array(Npy::new(AtomicFile::create(path)?)?),
            (Some(path), _) => Sink::File(AtomicFile::create(path)?),
        };
        Ok(Writer { sink, format, written: 0 })
    }

    pub fn write<A: Answer>(&mut self, answer: &A) -> Result<()> {
        let mut bytes = Vec::new();
        match self.format {
            OutputFormat::Text => bytes.extend_from_slice(answer.text().as_bytes()),
            OutputFormat::Jsonl => serde_json::to_writer(&mut bytes, answer)?,
            OutputFormat::Json => {
                bytes.extend_from_slice(if self.written == 0 { b"[\n" } else { b",\n" });
                serde_json::to_writer(&mut bytes, answer)?;
            }
            OutputFormat::Npy => {
                let row = answer.row().ok_or_else(|| usage("--format npy is for one vector per input"))?;
                if let Sink::Array(array) = &mut self.sink {
                    array.row(row)?;
                }
            }
        }
        if matches!(self.format, OutputFormat::Text | OutputFormat::Jsonl) {
            bytes.push(b'\n');
        }
        self.written += 1;
        self.put(&bytes)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        match &mut self.sink {
            Sink::Stdout(out) => Ok(out.write_all(bytes)?),
            Sink::File(file) => Ok(file.write(bytes)?),
            Sink::Array(_) => Ok(()),
        }
    }

    /// Lets a reader of standard output see what is there.
    pub fn flush(&mut self) -> Result<()> {
        match &mut self.sink {
            Sink::Stdout(out) => Ok(out.flush()?),
            Sink::File(_) | Sink::Array(_) => Ok(()),
        }
    }

    pub fn finish(mut self) -> Result<()> {
        if self.format == OutputFormat::Json {
            let end: &[u8] = if self.written == 0 { b"[]\n" } else { b"\n]\n" };
            self.put(end)?;
        }
        match self.sink {
            Sink::Stdout(mut out) => Ok(out.flush()?),
            Sink::File(file) => Ok(file.commit()?),
            Sink::Array(array) => array.finish(),
        }
    }
}

fn by_ending(path: Option<&Path>) -> OutputFormat {
    match path.and_then(Path::extension).and_then(|ending| ending.to_str()) {
        Some("npy") => OutputFormat::Npy,
        Some("jsonl" | "ndjson") => OutputFormat::Jsonl,
        Some("json") => OutputFormat::Json,
        _ => OutputFormat::Text,
    }
}
