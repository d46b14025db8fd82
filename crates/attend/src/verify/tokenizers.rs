//! Tokenizer cases: the ids, pieces, offsets, decoded texts and streams of hard strings.

use super::case::read_json;
use super::compare::Comparison;
use super::report::Outcome;
use anyhow::{Context, Result};
use attend_text::{EncodeOptions, Origin, Tokenizer, Truncation, TruncationStrategy};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// A folder with further tokenizers, `NAME/tokenizer.json` each.
const MODELS_VARIABLE: &str = "ATTEND_TEST_MODELS";

/// What the truncation cases that fail do not repeat: their length, and which pair they truncate.
const DEFAULT_LENGTH: usize = 12;
const DEFAULT_PAIR: usize = 3;

pub fn verify(file: &Path) -> Result<Outcome> {
    let golden = read_json(file)?;
    let Some(path) = tokenizer_file(file, &golden)? else {
        let source = golden.get("source").and_then(Value::as_str).unwrap_or("unknown source");
        return Ok(Outcome::skipped("tokenizer", format!("its tokenizer.json is not here ({source})")));
    };
    let tokenizer = Tokenizer::open(&path)?;
    let mut comparison = Comparison::default();
    for case in list(&golden, "strings") {
        check_string(&tokenizer, case, &mut comparison)?;
    }
    for case in list(&golden, "pairs") {
        check_pair(&tokenizer, case, &mut comparison)?;
    }
    for case in list(&golden, "truncation") {
        check_truncation(&tokenizer, &golden, case, &mut comparison)?;
    }
    Ok(Outcome::of("tokenizer", comparison, None))
}

/// The tokenizer beside the case, or in the folder of real ones, when it is the very file that the case was made with.
fn tokenizer_file(file: &Path, golden: &Value) -> Result<Option<PathBuf>> {
    let stem = file.file_stem().unwrap_or_default();
    let beside = file.with_file_name(stem).join("tokenizer.json");
    let elsewhere =
        std::env::var_os(MODELS_VARIABLE).map(|folder| Path::new(&folder).join(stem).join("tokenizer.json"));
    let expected = golden.get("sha256").and_then(Value::as_str).context("the case has no sha256")?;
    for path in [Some(beside), elsewhere].into_iter().flatten() {
        if path.is_file() {
            let bytes = std::fs::read(&path).with_context(|| format!("{}", path.display()))?;
            let found: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
            anyhow::ensure!(found == expected, "{}: sha256 is {found}, the case expects {expected}", path.display());
            return Ok(Some(path));
        }
    }
    Ok(None)
}

fn options(add_special: bool) -> EncodeOptions {
    EncodeOptions { add_special, parse_special: true }
}

fn check_string(tokenizer: &Tokenizer, case: &Value, comparison: &mut Comparison) -> Result<()> {
    let source = text(case, "text")?;
    let at = |field: &str| format!("{field} of {:?}", source.chars().take(40).collect::<String>());
    let full = tokenizer.encode(source, options(true))?;
    let plain = tokenizer.encode(source, options(false))?;
    let ids = ids(case, "ids")?;
    comparison.exact(&at("ids"), &full.ids, &ids);
    comparison.exact(&at("ids_plain"), &plain.ids, &self::ids(case, "ids_plain")?);
    if case.get("tokens_plain").is_some() {
        let expected: Vec<String> = list(case, "tokens_plain").filter_map(Value::as_str).map(str::to_owned).collect();
        comparison.exact(&at("tokens_plain"), &plain.pieces, &expected);
    }
    // Offsets and streams are left out of the cases with the longest strings.
    if case.get("offsets_plain").is_some() {
        let number = |value: &Value| value.as_u64().unwrap_or(u64::MAX) as usize;
        let offsets: Vec<_> = list(case, "offsets_plain").map(|pair| (number(&pair[0]), number(&pair[1]))).collect();
        comparison.exact(&at("offsets_plain"), &plain.offsets, &offsets);
    }
    let skipped = text(case, "decode_skip")?.to_owned();
    let kept = case.get("decode_keep").and_then(Value::as_str).unwrap_or(&skipped).to_owned();
    comparison.exact(&at("decode_skip"), &tokenizer.decode(&ids, true), &skipped);
    comparison.exact(&at("decode_keep"), &tokenizer.decode(&ids, false), &kept);
    if case.get("stream").is_some() {
        let mut stream = tokenizer.stream(false);
        let streamed: Vec<Option<String>> = plain.ids.iter().map(|id| stream.push(*id)).collect();
        let expected: Vec<Option<String>> = list(case, "stream").map(|part| part.as_str().map(str::to_owned)).collect();
        comparison.exact(&at("stream"), &streamed, &expected);
    }
    Ok(())
}

fn check_pair(tokenizer: &Tokenizer, case: &Value, comparison: &mut Comparison) -> Result<()> {
    let (a, b) = (text(case, "a")?, text(case, "b")?);
    let pair = tokenizer.encode_pair(a, b, options(true))?;
    let added = |origin: &Option<Origin>| u32::from(matches!(origin, Some(Origin::PostProcessor(_))));
    let mask: Vec<u32> = pair.special.iter().map(added).collect();
    for (field, found) in [("ids", &pair.ids), ("type_ids", &pair.type_ids), ("special_tokens_mask", &mask)] {
        comparison.exact(&format!("{field} of the pair {a:?}, {b:?}"), found, &ids(case, field)?);
    }
    Ok(())
}

fn check_truncation(tokenizer: &Tokenizer, golden: &Value, case: &Value, comparison: &mut Comparison) -> Result<()> {
    let number = |field: &str| case.get(field).and_then(Value::as_u64).map(|value| value as usize);
    let truncation = Truncation {
        max_length: number("max_length").unwrap_or(DEFAULT_LENGTH),
        stride: number("stride").unwrap_or(0),
        left: case.get("direction").and_then(Value::as_str) == Some("left"),
        strategy: match case.get("strategy").and_then(Value::as_str) {
            Some("only_first") => TruncationStrategy::OnlyFirst,
            Some("only_second") => TruncationStrategy::OnlySecond,
            _ => TruncationStrategy::LongestFirst,
        },
    };
    let (first, second) = match case.get("single").and_then(Value::as_str) {
        Some(single) => (single, None),
        None => {
            let pair = list(golden, "pairs").nth(number("pair").unwrap_or(DEFAULT_PAIR));
            let pair = pair.context("a truncation case names a pair that is not there")?;
            (text(pair, "a")?, Some(text(pair, "b")?))
        }
    };
    let place = format!("truncation of {:?} to {}", first.chars().take(20).collect::<String>(), truncation.max_length);
    match (tokenizer.encode_truncated(first, second, options(true), truncation), case.get("error").is_some()) {
        (Err(_), true) => comparison.exact(&place, &"refused", &"refused"),
        (Ok(_), true) => comparison.fail(&place, "encoded where the reference refuses"),
        (Err(error), false) => comparison.fail(&place, error.to_string()),
        (Ok(parts), false) => {
            let found: Vec<Vec<u32>> = parts.into_iter().map(|part| part.ids).collect();
            let overflowing = list(case, "overflowing").map(numbers);
            let expected: Vec<Vec<u32>> = std::iter::once(ids(case, "ids")?).chain(overflowing).collect();
            comparison.exact(&place, &found, &expected);
        }
    }
    Ok(())
}

fn list<'v>(value: &'v Value, field: &str) -> impl Iterator<Item = &'v Value> {
    value.get(field).and_then(Value::as_array).into_iter().flatten()
}

fn text<'v>(value: &'v Value, field: &str) -> Result<&'v str> {
    value.get(field).and_then(Value::as_str).with_context(|| format!("{field} is missing or not text"))
}

fn ids(value: &Value, field: &str) -> Result<Vec<u32>> {
    value.get(field).map(numbers).with_context(|| format!("{field} is missing"))
}

fn numbers(value: &Value) -> Vec<u32> {
    value.as_array().into_iter().flatten().map(|id| id.as_u64().map_or(u32::MAX, |id| id as u32)).collect()
}
