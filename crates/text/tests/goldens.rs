//! The reference's ids, offsets, texts and streams for every golden tokenizer.

mod common;

use attend_text::{EncodeOptions, Encoding, Tokenizer, Truncation, TruncationStrategy};
use common::{all_specials, golden_tokenizers, ids, list, text};
use serde_json::Value;

fn options(add_special: bool) -> EncodeOptions {
    EncodeOptions { add_special, parse_special: true }
}

fn check_string(tokenizer: &Tokenizer, case: &Value, wrong: &mut Vec<String>) {
    let source = text(&case["text"]);
    let mut check = |field: &str, ours: String, theirs: String| {
        if ours != theirs {
            wrong.push(format!("{field} of {source:?}:\n  ours   {ours}\n  theirs {theirs}"));
        }
    };
    let full = tokenizer.encode(&source, options(true)).unwrap();
    let plain = tokenizer.encode(&source, options(false)).unwrap();
    check("ids", format!("{:?}", full.ids), format!("{:?}", ids(&case["ids"])));
    check("ids_plain", format!("{:?}", plain.ids), format!("{:?}", ids(&case["ids_plain"])));
    if let Some(tokens) = case.get("tokens_plain") {
        let theirs: Vec<String> = list(tokens).iter().map(text).collect();
        check("tokens_plain", format!("{:?}", plain.pieces), format!("{theirs:?}"));
    }
    // Left out for the longest strings.
    if let Some(offsets) = case.get("offsets_plain") {
        let pair = |pair: &Value| (pair[0].as_u64().unwrap() as usize, pair[1].as_u64().unwrap() as usize);
        let offsets: Vec<(usize, usize)> = list(offsets).iter().map(pair).collect();
        check("offsets_plain", format!("{:?}", plain.offsets), format!("{offsets:?}"));
    }
    let full_ids = ids(&case["ids"]);
    check(
        "decode_skip",
        format!("{:?}", tokenizer.decode(&full_ids, true)),
        format!("{:?}", text(&case["decode_skip"])),
    );
    let keep = case.get("decode_keep").unwrap_or(&case["decode_skip"]);
    check("decode_keep", format!("{:?}", tokenizer.decode(&full_ids, false)), format!("{:?}", text(keep)));
    if let Some(theirs) = case.get("stream") {
        let mut stream = tokenizer.stream(false);
        let ours: Vec<Option<String>> = ids(&case["ids_plain"]).iter().map(|id| stream.push(*id)).collect();
        let theirs: Vec<Option<String>> = list(theirs).iter().map(|part| part.as_str().map(str::to_string)).collect();
        check("stream", format!("{ours:?}"), format!("{theirs:?}"));
    }
}

fn check_pair(tokenizer: &Tokenizer, case: &Value, wrong: &mut Vec<String>) {
    let (a, b) = (text(&case["a"]), text(&case["b"]));
    let pair = tokenizer.encode_pair(&a, &b, options(true)).unwrap();
    let mask: Vec<u32> = pair.special.iter().map(|origin| u32::from(common::added_by_tokenizer(origin))).collect();
    for (field, ours) in [("ids", &pair.ids), ("type_ids", &pair.type_ids), ("special_tokens_mask", &mask)] {
        if *ours != ids(&case[field]) {
            wrong.push(format!("pair {field} of {a:?}, {b:?}: ours {ours:?} theirs {:?}", ids(&case[field])));
        }
    }
}

fn check_truncation(tokenizer: &Tokenizer, golden: &Value, case: &Value, wrong: &mut Vec<String>) {
    let number = |key: &str| case[key].as_u64().unwrap_or(0) as usize;
    let truncation = Truncation {
        // The cases that fail do not repeat it.
        max_length: case["max_length"].as_u64().unwrap_or(12) as usize,
        stride: number("stride"),
        left: case["direction"] == "left",
        strategy: match case["strategy"].as_str() {
            Some("only_first") => TruncationStrategy::OnlyFirst,
            Some("only_second") => TruncationStrategy::OnlySecond,
            _ => TruncationStrategy::LongestFirst,
        },
    };
    let (first, second) = match case.get("single") {
        Some(single) => (text(single), None),
        None => {
            let pair = &golden["pairs"][case["pair"].as_u64().unwrap_or(3) as usize];
            (text(&pair["a"]), Some(text(&pair["b"])))
        }
    };
    let parts = tokenizer.encode_truncated(&first, second.as_deref(), options(true), truncation);
    if case.get("error").is_some() {
        assert!(parts.is_err(), "truncation {case}: no error");
        return;
    }
    let parts = parts.unwrap_or_else(|error| panic!("truncation {case}: {error}"));
    let theirs: Vec<Vec<u32>> =
        std::iter::once(ids(&case["ids"])).chain(list(&case["overflowing"]).iter().map(ids)).collect();
    let ours: Vec<Vec<u32>> = parts.into_iter().map(|part: Encoding| part.ids).collect();
    if ours != theirs {
        wrong.push(format!("truncation {case}: ours {ours:?}"));
    }
}

#[test]
fn ids_offsets_texts_and_streams_are_the_references() {
    let mut wrong = Vec::new();
    let (mut done, mut strings) = (0, 0);
    for (name, golden, tokenizer) in golden_tokenizers() {
        let before = wrong.len();
        for case in list(&golden["strings"]) {
            check_string(&tokenizer, case, &mut wrong);
            strings += 1;
        }
        for case in list(&golden["pairs"]) {
            check_pair(&tokenizer, case, &mut wrong);
        }
        for case in list(&golden["truncation"]) {
            check_truncation(&tokenizer, &golden, case, &mut wrong);
        }
        for line in &mut wrong[before..] {
            *line = format!("{name}: {line}");
        }
        assert!(!all_specials(&tokenizer).is_empty() || name == "wordlevel", "{name} has no special tokens");
        done += 1;
    }
    assert!(done >= 8, "the small tokenizers are part of the source tree");
    assert!(
        wrong.is_empty(),
        "{} of {strings} strings differ; the first:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(12)].join("\n")
    );
}
