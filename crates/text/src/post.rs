//! The tokens that a model expects around a text: the `post_processor` of tokenizer.json.

use crate::error::Fault;
use crate::vocabulary::MAX_TOKENS;
use serde_json::{Value, json};
use tokenizers::processors::PostProcessorWrapper;

/// Most pieces of one template.
const MAX_PIECES: usize = 256;

/// A checked post-processor, or none.
#[derive(Debug, Default)]
pub(crate) struct Post(pub Option<PostProcessorWrapper>);

impl Post {
    /// The `post_processor` field of tokenizer.json.
    pub fn parse(value: &Value) -> Result<Post, Fault> {
        if value.is_null() {
            return Ok(Post(None));
        }
        check(value)?;
        match serde_json::from_value(value.clone()) {
            Ok(post) => Ok(Post(Some(post))),
            Err(error) => Err(Fault::new("post_processor", error)),
        }
    }

    /// Tokens before and behind a text. A pair is two such texts; the second one's type is 0.
    pub fn around(before: &[(&str, u32)], behind: &[(&str, u32)]) -> Result<Post, Fault> {
        if before.is_empty() && behind.is_empty() {
            return Ok(Post(None));
        }
        let special = |(token, _): &(&str, u32)| json!({"SpecialToken": {"id": token, "type_id": 0}});
        let one = |text: &str| -> Vec<Value> {
            let text = json!({"Sequence": {"id": text, "type_id": 0}});
            before.iter().map(special).chain([text]).chain(behind.iter().map(special)).collect()
        };
        let tokens = before.iter().chain(behind);
        let tokens: serde_json::Map<String, Value> = tokens
            .map(|(token, id)| (token.to_string(), json!({"id": token, "ids": [id], "tokens": [token]})))
            .collect();
        let pair = [one("A"), one("B")].concat();
        Post::parse(&json!({
            "type": "TemplateProcessing",
            "single": one("A"),
            "pair": pair,
            "special_tokens": tokens,
        }))
    }
}

/// What the library takes for granted: templates name only texts that there are and tokens that they define.
fn check(value: &Value) -> Result<(), Fault> {
    let fault = |problem: String| Fault::new("post_processor", problem);
    match value.get("type").and_then(Value::as_str) {
        Some("Sequence") => {
            let steps = value.get("processors").and_then(Value::as_array);
            steps.ok_or_else(|| fault("a Sequence needs a list `processors`".into()))?.iter().try_for_each(check)
        }
        Some("TemplateProcessing") => {
            let tokens = value.get("special_tokens").and_then(Value::as_object);
            let tokens = tokens.ok_or_else(|| fault("a template needs `special_tokens`".into()))?;
            for (name, token) in tokens {
                let list = |key: &str| token.get(key).and_then(Value::as_array).map_or(0, Vec::len);
                let ids = token.get("ids").and_then(Value::as_array).into_iter().flatten();
                let fits = ids.clone().all(|id| id.as_u64().is_some_and(|id| id < MAX_TOKENS as u64));
                if list("ids") != list("tokens") || list("ids") > MAX_PIECES || !fits {
                    return Err(fault(format!("the special token `{name}` has wrong ids or tokens")));
                }
            }
            for (key, texts) in [("single", &["A"][..]), ("pair", &["A", "B"])] {
                let pieces = value.get(key).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
                if pieces.len() > MAX_PIECES {
                    return Err(fault(format!("`{key}` has {} pieces, the limit is {MAX_PIECES}", pieces.len())));
                }
                let mut seen = Vec::new();
                for piece in pieces {
                    let name = |kind: &str| piece.get(kind).and_then(|piece| piece.get("id")).and_then(Value::as_str);
                    match (name("Sequence"), name("SpecialToken")) {
                        (Some(text), None) if texts.contains(&text) && !seen.contains(&text) => seen.push(text),
                        (None, Some(token)) if tokens.contains_key(token) => {}
                        _ => return Err(fault(format!("`{key}` names a text or token that there is not: {piece}"))),
                    }
                }
                if seen.len() != texts.len() {
                    return Err(fault(format!("`{key}` leaves a text out")));
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}
