//! Log-probabilities as the two kinds of completion show them.

use attend_engine::TokenLogprob;
use attend_text::Tokenizer;
use serde_json::{Map, Value, json};

/// A token's text. Bytes that are no character by themselves are spelled.
fn text(tokenizer: &Tokenizer, id: u32) -> (String, Vec<u8>) {
    let bytes = tokenizer.token_bytes(id).unwrap_or_default();
    let text = match std::str::from_utf8(&bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => format!("bytes:{}", bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect::<String>()),
    };
    (text, bytes)
}

/// An entry of a chat's `logprobs.content`.
pub fn of_chat(tokenizer: &Tokenizer, token: &TokenLogprob) -> Value {
    let entry = |id: u32, logprob: f32| {
        let (token, bytes) = text(tokenizer, id);
        json!({"token": token, "logprob": finite(logprob), "bytes": bytes})
    };
    let mut object = entry(token.id, token.logprob);
    object["top_logprobs"] = token.top.iter().map(|&(id, logprob)| entry(id, logprob)).collect();
    object
}

/// The shortest decimal that reads back the same. JSON has no infinity; the least is what OpenAI writes for it.
fn finite(logprob: f32) -> Value {
    logprob.max(-9999.0).to_string().parse::<f64>().map_or(Value::Null, Value::from)
}

/// The `logprobs` of a completion, as they grow.
#[derive(Debug, Default)]
pub struct Lists {
    tokens: Vec<Value>,
    logprobs: Vec<Value>,
    top: Vec<Value>,
    offsets: Vec<usize>,
    /// Characters of the tokens so far.
    offset: usize,
}

impl Lists {
    /// Goes on behind so many characters.
    pub fn at(offset: usize) -> Lists {
        Lists { offset, ..Lists::default() }
    }

    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Adds a token; the first of a text has nothing before it, and no log-probability.
    pub fn push(&mut self, tokenizer: &Tokenizer, id: u32, token: Option<&TokenLogprob>) {
        let (spelled, _) = text(tokenizer, id);
        self.offsets.push(self.offset);
        if !tokenizer.is_special(id) {
            self.offset += spelled.chars().count();
        }
        self.logprobs.push(token.map_or(Value::Null, |token| finite(token.logprob)));
        self.top.push(token.map_or(Value::Null, |token| {
            // The chosen one is always listed.
            let own = std::iter::once((token.id, token.logprob)).filter(|_| !token.top.is_empty());
            let mut map = Map::new();
            for (id, logprob) in token.top.iter().copied().chain(own) {
                map.entry(text(tokenizer, id).0).or_insert_with(|| finite(logprob));
            }
            Value::Object(map)
        }));
        self.tokens.push(json!(spelled));
    }

    pub fn json(self) -> Value {
        json!({
            "tokens": self.tokens,
            "token_logprobs": self.logprobs,
            "top_logprobs": self.top,
            "text_offset": self.offsets,
        })
    }
}
