//! Words of many lengths, rows that hardly care, and requests that want something of them.

use crate::common::{Script, Words};
use attend_engine::{Constraint, Finish, GenerateOptions, Output, Surroundings};
use serde_json::{Value, json};

/// Token 0 ends an answer; then every byte; then words that cross the borders of what grammars are made of.
pub fn words() -> Words {
    let mut words = vec![b"</s>".to_vec()];
    words.extend((0..=255).map(|byte| vec![byte]));
    let longer = [
        "{\"",
        "\":",
        "\": ",
        "\", \"",
        "\"}",
        "}}",
        "]}",
        "[[",
        "]]",
        "true",
        "fal",
        "se",
        "null",
        "12",
        "0.",
        "-1",
        "  ",
        "\n",
        "\n  ",
        "ab",
        "abc",
        "é",
        "日本",
        "日",
        "\u{1F600}",
        "yes",
        "no",
        "ye",
        "s\n",
        "name",
        "age",
        "\"name\"",
    ];
    words.extend(longer.iter().map(|word| word.as_bytes().to_vec()));
    // Half a character and the beginning of another.
    words.push(vec![0xA9, 0xE6]);
    Words(words)
}

pub fn around() -> Surroundings {
    Surroundings { context: Some(700), chunk: 16, end_ids: vec![0], ..Surroundings::default() }
}

/// A row that depends on all tokens before it, and likes what closes.
pub fn rows(salt: u64) -> Script {
    let words = words();
    let closes = move |id: usize| words.0[id].iter().any(|byte| b"\"}]0".contains(byte)) || id == 0;
    let vocab = self::words().0.len();
    let likes: Vec<f32> = (0..vocab).map(|id| if closes(id) { 2.0 } else { 0.0 }).collect();
    Script::new(vocab, move |tokens| {
        let mix = tokens.iter().fold(salt, |mix, &id| (mix ^ u64::from(id)).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let noise = |id: u64| (mix ^ id.wrapping_mul(0xD6E8_FEB8_6659_FD93)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        likes.iter().enumerate().map(|(id, like)| noise(id as u64) as f32 / (1u64 << 22) as f32 + like).collect()
    })
}

pub fn options(constraint: Constraint) -> GenerateOptions {
    let mut options = GenerateOptions::default();
    options.constraints.constraint = Some(constraint);
    (options.length.max_tokens, options.sampling.seed, options.sampling.temperature) = (Some(300), Some(7), 1.0);
    options
}

/// Whether a text is what a constraint wants.
pub type Wanted = Box<dyn Fn(&str) -> bool>;

fn json_that(holds: impl Fn(&Value) -> bool + 'static) -> Wanted {
    Box::new(move |text| serde_json::from_str(text).is_ok_and(|value| holds(&value)))
}

fn matching(pattern: &str) -> Wanted {
    let pattern = regex::Regex::new(&format!("^(?s:{pattern})$")).expect("a pattern");
    Box::new(move |text| pattern.is_match(text))
}

fn person() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": { "type": "string", "maxLength": 6 },
            "age": { "type": "integer", "minimum": 0, "maximum": 120 },
            "kind": { "enum": ["é", "日本", 3, null] },
            "tags": { "type": "array", "items": { "type": "boolean" }, "minItems": 1, "maxItems": 3 },
        },
        "required": ["name", "age", "kind"],
        "additionalProperties": false,
    })
}

fn is_person(value: &Value) -> bool {
    let Some(object) = value.as_object() else { return false };
    let known = object.keys().all(|key| ["name", "age", "kind", "tags"].contains(&key.as_str()));
    let name = object.get("name").and_then(Value::as_str).is_some_and(|name| name.chars().count() <= 6);
    let age = object.get("age").and_then(Value::as_u64).is_some_and(|age| age <= 120);
    let kind = object.get("kind").is_some_and(|kind| [json!("é"), json!("日本"), json!(3), json!(null)].contains(kind));
    let tags = object.get("tags").is_none_or(|tags| {
        tags.as_array().is_some_and(|tags| (1..=3).contains(&tags.len()) && tags.iter().all(Value::is_boolean))
    });
    known && name && age && kind && tags
}

/// Numbers in lists in lists.
fn tree(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.len() <= 2 && items.iter().all(tree),
        other => other.as_u64().is_some_and(|number| number < 10),
    }
}

/// Sums with brackets.
fn is_sum(text: &str) -> bool {
    fn term(rest: &str) -> Option<&str> {
        match rest.strip_prefix('(') {
            Some(inner) => sum(inner)?.strip_prefix(')'),
            None => rest
                .strip_prefix(|c: char| c.is_ascii_digit())
                .map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit())),
        }
    }
    fn sum(rest: &str) -> Option<&str> {
        let mut rest = term(rest)?;
        while let Some(next) = rest.strip_prefix('+') {
            rest = term(next)?;
        }
        Some(rest)
    }
    sum(text) == Some("")
}

/// Constraints of every kind, and what their answers must be.
pub fn kinds() -> Vec<(&'static str, Constraint, Wanted)> {
    let tree_schema = json!({ "$defs": { "t": { "anyOf": [
        { "type": "integer", "minimum": 0, "maximum": 9 },
        { "type": "array", "items": { "$ref": "#/$defs/t" }, "maxItems": 2 },
    ] } }, "$ref": "#/$defs/t" });
    vec![
        ("a schema", Constraint::schema(person()), json_that(is_person)),
        ("a schema that refers to itself", Constraint::schema(tree_schema), json_that(tree)),
        ("any object", Constraint::JsonObject, json_that(Value::is_object)),
        (
            "a date",
            Constraint::Regex(r"^[0-9]{4}-(0[1-9]|1[0-2])-\d\d$".into()),
            matching(r"\d{4}-(0[1-9]|1[0-2])-\d\d"),
        ),
        ("letters of two alphabets", Constraint::Regex("(é|[日本a-c])+/?".into()), matching("(é|[日本a-c])+/?")),
        (
            "choices that begin alike",
            Constraint::Choice(["yes", "no", "yes\nno", "日\"本", "ye"].map(String::from).into()),
            Box::new(|text| ["yes", "no", "yes\nno", "日\"本", "ye"].contains(&text)),
        ),
        (
            "Lark",
            Constraint::Lark("start: term (\"+\" term)*\nterm: /[0-9]+/ | \"(\" start \")\"".into()),
            Box::new(is_sum),
        ),
        (
            "GBNF",
            Constraint::Gbnf("root ::= term (\"+\" term)* # sums\nterm ::= [0-9]+ |\n  \"(\" root \")\"\n".into()),
            Box::new(is_sum),
        ),
        (
            "GBNF whose words and letters are alike",
            Constraint::Gbnf("root ::= ([a-z]+ | \"abc\") \"ab\" [^\\u0000-~]?".into()),
            matching("[a-z]+ab[^\0-~]?"),
        ),
    ]
}

/// Whether an answer ended because it was what it had to be.
pub fn is_whole(output: &Output) -> bool {
    output.choices.iter().all(|choice| matches!(choice.finish, Finish::Complete | Finish::EndToken(_)))
}
