//! Comma-separated values (RFC 4180): records that may span lines, quoted fields, doubled quotes.

use super::input::MAX_RECORD;
use anyhow::{Result, bail};
use std::io::BufRead;

/// Reads one record after another and counts lines for messages.
#[derive(Debug)]
pub struct Csv<R> {
    source: R,
    delimiter: u8,
    /// The line of the next byte, from 1.
    line: usize,
    started: bool,
}

/// Where a record's next byte stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    FieldStart,
    Plain,
    Quoted,
    /// Behind a quote inside a quoted field: its end, or the first of two.
    Quote,
}

impl<R: BufRead> Csv<R> {
    pub fn new(source: R, delimiter: u8) -> Csv<R> {
        Csv { source, delimiter, line: 1, started: false }
    }

    /// The next record and the line it begins in; `None` at the end. Empty lines are no records.
    pub fn record(&mut self) -> Result<Option<(usize, Vec<String>)>> {
        if !std::mem::replace(&mut self.started, true) {
            skip_byte_order_mark(&mut self.source)?;
        }
        let mut begin = self.line;
        let (mut fields, mut field, mut at, mut size) = (Vec::new(), Vec::new(), At::FieldStart, 0usize);
        loop {
            let Some(byte) = next_byte(&mut self.source)? else {
                if at == At::Quoted {
                    bail!("line {begin}: a quoted field does not end");
                }
                if at == At::FieldStart && fields.is_empty() {
                    return Ok(None);
                }
                fields.push(text(field, begin)?);
                return Ok(Some((begin, fields)));
            };
            size += 1;
            if size > MAX_RECORD {
                bail!("line {begin}: the record is longer than {MAX_RECORD} bytes");
            }
            if byte == b'\n' {
                self.line += 1;
            }
            match (at, byte) {
                (At::Quoted, b'"') => at = At::Quote,
                (At::Quoted, _) => field.push(byte),
                (At::FieldStart, b'"') => at = At::Quoted,
                (At::Quote, b'"') => {
                    field.push(b'"');
                    at = At::Quoted;
                }
                (At::FieldStart | At::Plain | At::Quote, b'\n') => {
                    if at != At::Quote && field.last() == Some(&b'\r') {
                        field.pop();
                    }
                    if at != At::Quote && field.is_empty() && fields.is_empty() {
                        (begin, at) = (self.line, At::FieldStart);
                        continue;
                    }
                    fields.push(text(field, begin)?);
                    return Ok(Some((begin, fields)));
                }
                (At::FieldStart | At::Plain | At::Quote, _) if byte == self.delimiter => {
                    fields.push(text(std::mem::take(&mut field), begin)?);
                    at = At::FieldStart;
                }
                // The carriage return of a line's end.
                (At::Quote, b'\r') => {}
                (At::Quote, _) => bail!("line {}: text stands behind a closing quote", self.line),
                (At::FieldStart | At::Plain, _) => {
                    field.push(byte);
                    at = At::Plain;
                }
            }
        }
    }
}

fn text(bytes: Vec<u8>, line: usize) -> Result<String> {
    String::from_utf8(bytes).map_err(|_| anyhow::anyhow!("line {line}: not UTF-8 text"))
}

fn next_byte(source: &mut impl BufRead) -> Result<Option<u8>> {
    let byte = source.fill_buf()?.first().copied();
    source.consume(usize::from(byte.is_some()));
    Ok(byte)
}

/// Spreadsheets write one in front.
pub fn skip_byte_order_mark(source: &mut impl BufRead) -> Result<()> {
    if source.fill_buf()?.starts_with(b"\xef\xbb\xbf") {
        source.consume(3);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Result<Vec<(usize, Vec<String>)>> {
        let mut csv = Csv::new(text.as_bytes(), b',');
        std::iter::from_fn(|| csv.record().transpose()).collect()
    }

    #[test]
    fn records_as_spreadsheets_write_them() {
        let found = all("\u{feff}a,b\r\n1,\"x, y\"\r\n\r\n\"he said \"\"no\"\"\",\"two\nlines\"\n,\nlast,").unwrap();
        let wanted: &[(usize, &[&str])] = &[
            (1, &["a", "b"]),
            (2, &["1", "x, y"]),
            (4, &["he said \"no\"", "two\nlines"]),
            (6, &["", ""]),
            (7, &["last", ""]),
        ];
        assert_eq!(found.len(), wanted.len());
        for (found, wanted) in found.iter().zip(wanted) {
            assert_eq!(
                (found.0, found.1.iter().map(String::as_str).collect::<Vec<_>>()),
                (wanted.0, wanted.1.to_vec())
            );
        }
        assert_eq!(all("\"\"\n").unwrap(), [(1, vec![String::new()])]);
    }

    #[test]
    fn broken_records_name_their_line() {
        assert!(all("a\n\"open").unwrap_err().to_string().contains("line 2"));
        assert!(all("a\nb\n\"x\"y").unwrap_err().to_string().contains("line 3"));
    }
}
