//! Inputs as records: from the command line, a file or standard input; as lines, JSON lines or CSV.

use super::csv::{Csv, skip_byte_order_mark};
use super::{BatchArgs, InputFormat, Window};
use crate::cli::error::usage;
use anyhow::{Context, Result, anyhow, bail};
use attend_format::json::{Limits, parse};
use serde_json::{Map, Value};
use std::cell::Cell;
use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Read, Stdin};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Bytes that one input may have: what is longer is a mistake, and would only fill the memory.
pub const MAX_RECORD: usize = 64 << 20;

/// One input.
#[derive(Debug, Clone)]
pub struct Record {
    /// Where it stands, for messages: `inputs.jsonl, line 3`.
    pub place: String,
    fields: Map<String, Value>,
    bytes: usize,
}

/// The field of an input that is nothing but a text.
const TEXT: &str = "text";

impl Record {
    fn plain(place: String, text: String) -> Record {
        let bytes = text.len();
        Record { place, fields: Map::from_iter([(TEXT.to_owned(), Value::String(text))]), bytes }
    }

    /// The record's text.
    pub fn text(&self) -> Result<&str> {
        self.field(&[TEXT])
    }

    /// The first of these fields that is there.
    pub fn field(&self, names: &[&str]) -> Result<&str> {
        self.field_opt(names)?.ok_or_else(|| {
            let there: Vec<&str> = self.fields.keys().map(String::as_str).collect();
            anyhow!("{}: `{}` is missing; there is {}", self.place, names.join("` or `"), there.join(", "))
        })
    }

    pub fn field_opt(&self, names: &[&str]) -> Result<Option<&str>> {
        match self.value(names) {
            None => Ok(None),
            Some((_, Value::String(text))) => Ok(Some(text)),
            Some((name, _)) => bail!("{}: `{name}` must be a string", self.place),
        }
    }

    /// A list of strings under the first of these names that is there; a string counts as a list of one.
    pub fn list_opt(&self, names: &[&str]) -> Result<Option<Vec<String>>> {
        let Some((name, value)) = self.value(names) else { return Ok(None) };
        let wrong = || anyhow!("{}: `{name}` must be a list of strings", self.place);
        match value {
            Value::String(text) => Ok(Some(vec![text.clone()])),
            Value::Array(list) => list
                .iter()
                .map(|item| item.as_str().map(str::to_owned).ok_or_else(wrong))
                .collect::<Result<_>>()
                .map(Some),
            _ => Err(wrong()),
        }
    }

    fn value<'n>(&self, names: &[&'n str]) -> Option<(&'n str, &Value)> {
        names.iter().find_map(|name| Some((*name, self.fields.get(*name).filter(|value| !value.is_null())?)))
    }

    /// Lets the field `name` be the text, or the only string there is when no name is given.
    fn choose_text(&mut self, name: Option<&str>) -> Result<()> {
        let only = || match self.fields.iter().next() {
            Some((name, Value::String(_))) if self.fields.len() == 1 => Some(name.clone()),
            _ => None,
        };
        let chosen = match name {
            Some(name) => Some(name.to_owned()),
            None if self.fields.contains_key(TEXT) => None,
            None => only(),
        };
        if let Some(name) = chosen.filter(|name| name != TEXT) {
            let text = self.field(&[&name])?.to_owned();
            self.fields.insert(TEXT.to_owned(), Value::String(text));
        }
        Ok(())
    }
}

/// The inputs, one after another.
pub struct Records {
    source: Source,
    field: Option<String>,
    total: Option<u64>,
    read: Rc<Cell<u64>>,
}

enum Source {
    Texts(std::iter::Enumerate<std::vec::IntoIter<String>>),
    Lines { name: String, reader: Reader, line: usize, json: bool },
    Whole { name: String, reader: Option<Reader> },
    Table { name: String, csv: Csv<Reader>, columns: Vec<String> },
}

type Reader = BufReader<Counted>;

/// A file or standard input that counts what was read of it.
#[derive(Debug)]
struct Counted {
    inner: Inner,
    read: Rc<Cell<u64>>,
}

#[derive(Debug)]
enum Inner {
    File(File),
    Stdin(Stdin),
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = match &mut self.inner {
            Inner::File(file) => file.read(buffer)?,
            Inner::Stdin(stdin) => stdin.read(buffer)?,
        };
        self.read.set(self.read.get() + count as u64);
        Ok(count)
    }
}

/// Opens what the arguments name.
pub fn open(args: &BatchArgs) -> Result<Records> {
    let read = Rc::new(Cell::new(0));
    let records = |source, total| Records { source, field: args.field.clone(), total, read: read.clone() };
    let stdin_named = args.input.as_deref() == Some(Path::new("-")) || args.texts == ["-"];
    if !args.texts.is_empty() && !stdin_named {
        if let Some(option) = args.input_format.map(|_| "--input-format").or(args.field.as_ref().map(|_| "--field")) {
            return Err(usage(format!("{option} is for --input and standard input, not for texts as arguments")));
        }
        return Ok(records(Source::Texts(args.texts.clone().into_iter().enumerate()), None));
    }
    let file = args.input.as_ref().filter(|_| !stdin_named);
    let (inner, total, name) = match file {
        Some(path) => {
            let file = File::open(path).with_context(|| path.display().to_string())?;
            let total = file.metadata().ok().filter(|data| data.is_file()).map(|data| data.len());
            (Inner::File(file), total, path.display().to_string())
        }
        None if std::io::stdin().is_terminal() && !stdin_named => {
            return Err(usage("a text is wanted, as an argument, with --input, or on standard input"));
        }
        None => (Inner::Stdin(std::io::stdin()), None, "standard input".to_owned()),
    };
    let mut reader = BufReader::with_capacity(1 << 16, Counted { inner, read: read.clone() });
    let source = match args.input_format.unwrap_or_else(|| by_ending(file)) {
        InputFormat::Whole => Source::Whole { name, reader: Some(reader) },
        format @ (InputFormat::Text | InputFormat::Jsonl) => {
            skip_byte_order_mark(&mut reader).with_context(|| name.clone())?;
            Source::Lines { name, reader, line: 0, json: format == InputFormat::Jsonl }
        }
        format @ (InputFormat::Csv | InputFormat::Tsv) => {
            let mut csv = Csv::new(reader, if format == InputFormat::Csv { b',' } else { b'\t' });
            let columns = csv.record().with_context(|| name.clone())?.map(|(_, names)| names).unwrap_or_default();
            Source::Table { name, csv, columns }
        }
    };
    Ok(records(source, total))
}

fn by_ending(path: Option<&PathBuf>) -> InputFormat {
    match path.and_then(|path| path.extension()).and_then(|ending| ending.to_str()) {
        Some("jsonl" | "ndjson" | "json") => InputFormat::Jsonl,
        Some("csv") => InputFormat::Csv,
        Some("tsv") => InputFormat::Tsv,
        _ => InputFormat::Text,
    }
}

impl Records {
    /// Bytes of the file, where that is known.
    pub fn total_bytes(&self) -> Option<u64> {
        self.total
    }

    pub fn bytes_read(&self) -> u64 {
        self.read.get()
    }

    /// The next records: as many as the window holds, at least one unless the inputs end.
    pub fn window(&mut self, window: Window) -> Result<Vec<Record>> {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while taken.len() < window.records.max(1) && bytes < window.bytes.max(1) {
            let Some(record) = self.next()? else { break };
            bytes += record.bytes;
            taken.push(record);
        }
        Ok(taken)
    }

    fn next(&mut self) -> Result<Option<Record>> {
        let mut record = match &mut self.source {
            Source::Texts(texts) => match texts.next() {
                Some((index, text)) => Record::plain(format!("text {}", index + 1), text),
                None => return Ok(None),
            },
            Source::Whole { name, reader } => match reader.take() {
                Some(mut reader) => Record::plain(name.clone(), whole(&mut reader).with_context(|| name.clone())?),
                None => return Ok(None),
            },
            Source::Lines { name, reader, line, json } => loop {
                let Some(text) = next_line(reader).with_context(|| format!("{name}, line {}", *line + 1))? else {
                    return Ok(None);
                };
                *line += 1;
                let place = format!("{name}, line {line}");
                if !*json {
                    break Record::plain(place, text);
                }
                if !text.trim().is_empty() {
                    break from_json(place, &text)?;
                }
            },
            Source::Table { name, csv, columns } => {
                let Some((line, values)) = csv.record().with_context(|| name.clone())? else { return Ok(None) };
                from_row(format!("{name}, line {line}"), columns, values)?
            }
        };
        record.choose_text(self.field.as_deref())?;
        Ok(Some(record))
    }
}

fn from_json(place: String, line: &str) -> Result<Record> {
    let value = parse(Path::new(&place), line, Limits { bytes: MAX_RECORD as u64, values: 1 << 20 })?;
    match value {
        Value::String(text) => Ok(Record::plain(place, text)),
        Value::Object(fields) => Ok(Record { place, fields, bytes: line.len() }),
        _ => bail!("{place}: a string or an object is wanted in each line"),
    }
}

fn from_row(place: String, columns: &[String], values: Vec<String>) -> Result<Record> {
    if values.len() != columns.len() {
        bail!("{place}: {} values, but the first record names {} columns", values.len(), columns.len());
    }
    let bytes = values.iter().map(String::len).sum();
    let fields = columns.iter().cloned().zip(values.into_iter().map(Value::String)).collect();
    Ok(Record { place, fields, bytes })
}

/// A line without its end; `None` behind the last.
fn next_line(reader: &mut impl BufRead) -> Result<Option<String>> {
    let mut bytes = Vec::new();
    let count = reader.by_ref().take(MAX_RECORD as u64 + 1).read_until(b'\n', &mut bytes)?;
    if count > MAX_RECORD {
        bail!("longer than {MAX_RECORD} bytes");
    }
    if count == 0 {
        return Ok(None);
    }
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
    }
    String::from_utf8(bytes).map(Some).map_err(|_| anyhow!("not UTF-8 text"))
}

fn whole(reader: &mut impl BufRead) -> Result<String> {
    skip_byte_order_mark(reader)?;
    let mut bytes = Vec::new();
    reader.by_ref().take(MAX_RECORD as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > MAX_RECORD {
        bail!("longer than {MAX_RECORD} bytes");
    }
    let text = String::from_utf8(bytes).map_err(|_| anyhow!("not UTF-8 text"))?;
    Ok(text.strip_suffix('\n').map(str::to_owned).unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        batch: BatchArgs,
    }

    /// The texts of a file of this name and content, or the first error.
    fn texts(name: &str, content: &str, options: &[&str]) -> Result<Vec<String>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        let path = path.to_str().unwrap();
        let line = Line::try_parse_from(["x", "--input", path].iter().chain(options)).unwrap();
        let mut records = open(&line.batch)?;
        let (mut texts, window) = (Vec::new(), Window { records: 2, bytes: 1 << 20 });
        loop {
            let taken = records.window(window)?;
            if taken.is_empty() {
                return Ok(texts);
            }
            for record in &taken {
                texts.push(record.text()?.to_owned());
            }
        }
    }

    #[test]
    fn every_format_gives_its_texts_in_order() {
        assert_eq!(texts("a.txt", "one\r\n\ntwo", &[]).unwrap(), ["one", "", "two"]);
        assert_eq!(texts("a.txt", "one\ntwo\n", &["--input-format", "whole"]).unwrap(), ["one\ntwo"]);
        let lines = "\"one\"\n\n{\"text\": \"two\", \"other\": 1}\n{\"body\": \"three\"}\n";
        assert_eq!(texts("a.jsonl", lines, &[]).unwrap(), ["one", "two", "three"]);
        assert_eq!(texts("a.csv", "id,text\n1,\"a, b\"\n2,c\n", &[]).unwrap(), ["a, b", "c"]);
        assert_eq!(texts("a.csv", "id,body\n1,x\n", &["--field", "body"]).unwrap(), ["x"]);
        assert_eq!(texts("a.tsv", "sentence\na, b\n", &[]).unwrap(), ["a, b"]);
        assert_eq!(texts("a.txt", "", &[]).unwrap(), [""; 0]);
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        for (name, content, options, wanted) in [
            ("a.jsonl", "\"x\"\n17\n", &[][..], "line 2"),
            ("a.jsonl", "{\"a\": \"x\", \"b\": \"y\"}", &[], "`text` is missing; there is a, b"),
            ("a.jsonl", "{\"text\": 5}", &[], "`text` must be a string"),
            ("a.jsonl", "{", &[], "line 1"),
            ("a.csv", "a,b\n1\n", &[], "names 2 columns"),
            ("a.csv", "a,b\n1,2\n", &["--field", "c"], "`c` is missing; there is a, b"),
        ] {
            let error = format!("{:#}", texts(name, content, options).unwrap_err());
            assert!(error.contains(wanted) && error.contains(name), "{content}: {error}");
        }
    }
}
