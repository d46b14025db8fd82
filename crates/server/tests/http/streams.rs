//! Rows STR of the bug log, over the wire: a scripted model says exactly what each needs.

use crate::openai::{streamed, whole, with};
use crate::support::{Serving, Setup, loader, told};
use serde_json::{Value, json};

/// A server whose model says the tokens from the second on one after the other, then its end.
fn saying(tokens: &[&str]) -> Serving {
    let mut words = vec!["?", "$"];
    words.extend(tokens);
    words.push("END");
    let last = words.len() as u32 - 1;
    let follows: Vec<u32> = (0..=last).map(|id| if id == 1 { 2 } else { (id + 1).min(last) }).collect();
    let folder = told(&words, &follows, &[last]);
    let loader = loader(folder.path(), None);
    Setup { folder: Some(folder), ..Setup::new(vec![("told", loader)]) }.ready()
}

/// The text and reason of the answer after `$`, which is the same streamed and not, and the pieces of the stream.
fn said(serving: &Serving, changes: Value) -> (String, String, Vec<String>) {
    let body = with(&json!({"prompt": [1], "max_tokens": 50}), changes);
    let answer = whole(&serving.post("/v1/completions", &body).good(), false);
    let stream = serving.post("/v1/completions", &with(&body, json!({"stream": true})));
    assert_eq!(streamed(&stream, false), answer, "{body}");
    let pieces =
        stream.events().into_iter().filter_map(|event| event["choices"][0]["text"].as_str().map(str::to_owned));
    let pieces = pieces.filter(|piece| !piece.is_empty()).collect();
    let (text, reason) = answer[&0].clone();
    (text, reason.expect("a reason"), pieces)
}

#[test]
fn characters_in_pieces_come_out_whole() {
    // An emoji of four bytes, a Chinese character of three, a letter with a combining accent.
    let bytes = ["<0xF0>", "<0x9F>", "<0x98>", "<0x80>", "a", "<0xE4>", "<0xB8>", "<0xAD>", "e", "<0xCC>", "<0x81>"];
    let serving = saying(&bytes);
    let (text, reason, _) = said(&serving, json!({}));
    assert_eq!((text.as_str(), reason.as_str()), ("\u{1F600}a\u{4E2D}e\u{301}", "stop"));
}

#[test]
fn an_answer_cut_inside_a_character_is_still_text() {
    let serving = saying(&["x", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>"]);
    for most in 2..5 {
        let (text, reason, _) = said(&serving, json!({"max_tokens": most}));
        assert!(text == "x" || text == "x\u{FFFD}", "{text:?}");
        assert_eq!(reason, "length");
    }
    assert_eq!(said(&serving, json!({})).0, "x\u{1F600}");
}

#[test]
fn a_stop_text_over_many_tokens_leaks_nothing() {
    let serving = saying(&["A", "B", "C", "D", "E", "F", "G", "H", "I", "J", "K"]);
    let (text, reason, pieces) = said(&serving, json!({"stop": ["DEFGHIJ"]}));
    assert_eq!((text.as_str(), reason.as_str()), ("ABC", "stop"));
    assert_eq!(pieces, ["A", "B", "C"], "nothing before the stop's beginning is delayed");
    let answer = serving.post("/v1/completions", &json!({"prompt": [1], "max_tokens": 50, "stop": "DEFGHIJ"})).good();
    assert_eq!(answer["usage"]["completion_tokens"], 10, "it ends at once");
}

#[test]
fn held_back_text_is_finally_delivered() {
    let (text, reason, _) = said(&saying(&["x", "xD", "E", "F", "q"]), json!({"stop": ["DEFGHIJ"]}));
    assert_eq!((text.as_str(), reason.as_str()), ("xxDEFq", "stop"));
    assert_eq!(said(&saying(&["a", "D", "E", "F"]), json!({"stop": ["DEFGHIJ"]})).0, "aDEF");
}

#[test]
fn a_stop_text_inside_a_token_cuts_it() {
    let (text, reason, _) = said(&saying(&["a", "...", "b"]), json!({"stop": [".."]}));
    assert_eq!((text.as_str(), reason.as_str()), ("a", "stop"));
    assert_eq!(said(&saying(&["x", "aab", "b"]), json!({"stop": ["aab", "ab"]})).0, "x");
}
