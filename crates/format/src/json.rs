//! JSON of untrusted files: bounded in size, depth and number of values before anything is built from it.

use std::path::Path;

use serde_json::Value;

use crate::{Error, Source};

/// The deepest nesting of a JSON document.
pub const MAX_DEPTH: usize = 128;

/// How large a JSON document may be.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of the file.
    pub bytes: u64,
    /// Values (each number, string, list, ... is one). A value takes far more memory than its text, so a limit on
    /// bytes alone would let a small file of empty lists fill the memory.
    pub values: usize,
}

impl Limits {
    /// For `config.json` and its like.
    pub const CONFIG: Limits = Limits { bytes: 64 << 20, values: 500_000 };
    /// For `tokenizer.json`, which holds a vocabulary and its merges.
    pub const TOKENIZER: Limits = Limits { bytes: 256 << 20, values: 16_000_000 };
}

/// Reads a text file of at most `limit` bytes; a byte order mark is dropped.
pub fn read_text(path: &Path, limit: u64) -> Result<String, Error> {
    text_of(&Source::open(path)?, limit)
}

pub(crate) fn text_of(source: &Source, limit: u64) -> Result<String, Error> {
    let file = source.path();
    let size = source.length();
    if size > limit {
        return Err(Error::TooLarge { file: file.to_path_buf(), what: "size in bytes", size, limit });
    }
    let mut bytes = source.bytes_at(0, size)?;
    if bytes.starts_with(b"\xef\xbb\xbf") {
        bytes.drain(..3);
    }
    String::from_utf8(bytes).map_err(|_| Error::NotUtf8 { file: file.to_path_buf(), field: "the text".into() })
}

/// Reads a JSON file within `limits`. See [`parse`] for what is accepted.
pub fn read(path: &Path, limits: Limits) -> Result<Value, Error> {
    parse(path, &read_text(path, limits.bytes)?, limits)
}

/// Parses JSON text that errors attribute to `file`.
///
/// Python's `NaN`, `Infinity` and `-Infinity` are accepted outside strings and become the strings of the same
/// spelling, so that a file which holds one somewhere still loads, while a number read from it is refused. Where a
/// key appears twice in one object the last one counts, as in Python and JavaScript.
pub fn parse(file: &Path, text: &str, limits: Limits) -> Result<Value, Error> {
    let strict = check(file, text, limits.values)?;
    serde_json::from_str(strict.as_deref().unwrap_or(text)).map_err(|error| syntax(file, &error))
}

pub(crate) fn syntax(file: &Path, error: &serde_json::Error) -> Error {
    Error::Json { file: file.to_path_buf(), problem: crate::error::shown(&error.to_string()) }
}

/// Bounds depth and number of values in one pass over the text. Returns a rewritten text when it held Python's words.
pub(crate) fn check(file: &Path, text: &str, values: usize) -> Result<Option<String>, Error> {
    let mut rewritten: Option<String> = None;
    let (mut copied, mut depth, mut count) = (0, 0usize, 1usize);
    let mut rest = text;
    while let Some(at) = rest.find(['"', '[', ']', '{', '}', ',', 'N', 'I']) {
        let (_, found) = rest.split_at(at);
        let here = text.len() - found.len();
        let mut skip = 1;
        match found.as_bytes().first() {
            Some(b'"') => skip = string_length(found),
            Some(b'[' | b'{') => {
                depth += 1;
                count += 1;
                if depth > MAX_DEPTH {
                    let field = "the document".into();
                    return Err(Error::TooDeep { file: file.to_path_buf(), field, limit: MAX_DEPTH });
                }
            }
            Some(b']' | b'}') => depth = depth.saturating_sub(1),
            Some(b',') => count += 1,
            _ => {
                // As a key it is left alone, for the parser to refuse.
                let is_value =
                    |word: &&str| found.strip_prefix(*word).is_some_and(|after| !after.trim_start().starts_with(':'));
                let word = ["NaN", "Infinity"].into_iter().find(is_value);
                if let Some(word) = word {
                    skip = word.len();
                    let before = text.get(copied..here).unwrap_or_default();
                    let (before, sign) = match before.strip_suffix('-') {
                        Some(before) => (before, "-"),
                        None => (before, ""),
                    };
                    let out = rewritten.get_or_insert_default();
                    out.push_str(before);
                    out.push_str(&format!("\"{sign}{word}\""));
                    copied = here + skip;
                }
            }
        }
        if count > values {
            let (size, limit) = (count as u64, values as u64);
            return Err(Error::TooLarge { file: file.to_path_buf(), what: "number of JSON values", size, limit });
        }
        rest = found.get(skip..).unwrap_or_default();
    }
    if let Some(out) = &mut rewritten {
        out.push_str(text.get(copied..).unwrap_or_default());
    }
    Ok(rewritten)
}

/// Bytes of the string that `text` starts with, quotes included; all of `text` when it does not end.
fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}
