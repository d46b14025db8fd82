//! The small files beside a tokenizer: `tokenizer_config.json`, `special_tokens_map.json`, `added_tokens.json`, and
//! what `generation_config.json` and `config.json` say about token ids.

use crate::added::{AddedToken, AddedTokens};
use crate::error::{Error, Fault};
use crate::tokenizer::Roles;
use crate::vocabulary::Vocabulary;
use attend_format::json::{self, Limits};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::path::Path;

/// The files that exist, as JSON.
#[derive(Debug, Default)]
pub(crate) struct SideFiles {
    tokenizer: Option<Value>,
    special: Option<Value>,
    added: Option<Value>,
    generation: Option<Value>,
    model: Option<Value>,
}

/// Tokens that end the turn of a chat, by their usual spelling: where one of these is a special token, generation
/// ends with it even if the file names only the end of the whole sequence.
const TURN_ENDS: [&str; 18] = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|end|>",
    "<end_of_turn>",
    "<|eom_id|>",
    "<|end_of_turn|>",
    "<|return|>",
    "<|call|>",
    "<turn|>",
    "[|endofturn|]",
    "<|eot|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<｜end▁of▁sentence｜>",
];

impl SideFiles {
    pub fn open(folder: &Path) -> Result<SideFiles, Error> {
        let read = |name: &str| -> Result<Option<Value>, Error> {
            let file = folder.join(name);
            if file.is_file() { Ok(Some(json::read(&file, Limits::CONFIG)?)) } else { Ok(None) }
        };
        Ok(SideFiles {
            tokenizer: read("tokenizer_config.json")?,
            special: read("special_tokens_map.json")?,
            added: read("added_tokens.json")?,
            generation: read("generation_config.json")?,
            model: read("config.json")?,
        })
    }

    /// What a `tokenizer_config.json` and a `generation_config.json` would say.
    pub fn of(tokenizer: Value, generation: Option<Value>) -> SideFiles {
        SideFiles { tokenizer: Some(tokenizer), generation, ..SideFiles::default() }
    }

    /// A value of `tokenizer_config.json`.
    pub fn config(&self, key: &str) -> Option<&Value> {
        self.tokenizer.as_ref()?.get(key)
    }

    pub fn flag(&self, key: &str) -> Option<bool> {
        self.config(key)?.as_bool()
    }

    /// `tokenizer_class`, or the `model_type` of the model, for formats whose ids depend on the family.
    pub fn class(&self) -> String {
        let class = self.config("tokenizer_class").and_then(Value::as_str);
        let model = self.model.as_ref().and_then(|model| model.get("model_type")).and_then(Value::as_str);
        class.or(model).unwrap_or_default().to_lowercase()
    }

    /// The spelling of a special token such as `bos_token`.
    pub fn special_name(&self, key: &str) -> Option<String> {
        let content = |value: &Value| match value {
            Value::String(text) => Some(text.clone()),
            Value::Object(token) => token.get("content").and_then(Value::as_str).map(str::to_string),
            _ => None,
        };
        let mapped = self.special.as_ref().and_then(|map| map.get(key));
        self.config(key).and_then(content).or_else(|| mapped.and_then(content))
    }

    /// All of them, for templates.
    pub fn special_names(&self) -> Map<String, Value> {
        const KEYS: [&str; 7] =
            ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];
        KEYS.into_iter().filter_map(|key| Some((key.to_string(), Value::String(self.special_name(key)?)))).collect()
    }

    /// Every token that the small files add to the vocabulary or declare special, for sources that have no such list
    /// of their own. `id` finds the tokens that are in the vocabulary; tokens of unknown id get new ones.
    pub fn added_tokens(&self, vocabulary: &Vocabulary) -> Result<Vec<AddedToken>, Fault> {
        let mut tokens: Vec<AddedToken> = Vec::new();
        let decoder = self.config("added_tokens_decoder").and_then(Value::as_object);
        for (id, token) in decoder.into_iter().flatten() {
            let field = format!("added_tokens_decoder.{id}");
            let mut token: AddedToken =
                serde_json::from_value(token.clone()).map_err(|error| Fault::new(&field, error))?;
            token.id = id.parse().map_err(|_| Fault::new(&field, "is no token id"))?;
            tokens.push(token);
        }
        let listed = self.added.as_ref().and_then(Value::as_object);
        for (content, id) in listed.into_iter().flatten() {
            let id = id.as_u64().and_then(|id| u32::try_from(id).ok());
            let id = id.ok_or_else(|| Fault::new(format!("added_tokens.json: {content}"), "is no token id"))?;
            if !tokens.iter().any(|token| token.content == *content) {
                tokens.push(AddedToken { normalized: true, ..AddedToken::plain(content, id) });
            }
        }
        let mut next = tokens.iter().map(|token| token.id as usize + 1).max().unwrap_or(0).max(vocabulary.len()) as u32;
        for mut token in self.special_tokens() {
            if let Some(known) = tokens.iter_mut().find(|known| known.content == token.content) {
                known.special = true;
                known.normalized &= decoder.is_some();
                continue;
            }
            token.id = match vocabulary.id(&token.content) {
                Some(id) => id,
                None => {
                    next += 1;
                    next - 1
                }
            };
            tokens.push(token);
        }
        Ok(tokens)
    }

    /// The tokens of languages that the files list, in their order.
    pub fn languages(&self) -> Vec<String> {
        let tokens = self.special_tokens().into_iter().map(|token| token.content);
        tokens.filter(|token| crate::language::names_a_language(token)).collect()
    }

    /// The tokens with a role and the additional ones, without ids.
    fn special_tokens(&self) -> Vec<AddedToken> {
        const KEYS: [&str; 7] =
            ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];
        let token = |value: &Value| match value {
            Value::String(text) => Some(AddedToken::special(text, 0)),
            Value::Object(_) => serde_json::from_value::<AddedToken>(value.clone())
                .ok()
                .map(|token| AddedToken { special: true, ..token }),
            _ => None,
        };
        let mut tokens = Vec::new();
        for key in KEYS {
            let mapped = self.special.as_ref().and_then(|map| map.get(key));
            tokens.extend(mapped.or_else(|| self.config(key)).and_then(token));
        }
        let lists = [self.special.as_ref().and_then(|map| map.get("additional_special_tokens"))];
        let lists = lists.into_iter().chain([self.config("additional_special_tokens")]);
        for list in lists.flatten().filter_map(Value::as_array) {
            tokens.extend(list.iter().filter_map(token));
        }
        tokens.retain(|token| !token.content.is_empty());
        tokens
    }

    /// Ids with a meaning, found by their spelling and by the ids of the model's files.
    pub fn roles(&self, vocabulary: &Vocabulary, added: &AddedTokens) -> Roles {
        let find = |token: &str| added.id(token).or_else(|| vocabulary.id(token));
        let named = |key: &str| self.special_name(key).and_then(|token| find(&token));
        let size = vocabulary.len().max(added.end()) as u64;
        let configured = |key: &str| -> Vec<u32> {
            let value = [&self.generation, &self.model].into_iter().flatten().find_map(|file| file.get(key));
            let ids = match value {
                Some(Value::Array(ids)) => ids.iter().filter_map(Value::as_u64).collect(),
                Some(value) => value.as_u64().into_iter().collect::<Vec<_>>(),
                None => Vec::new(),
            };
            ids.into_iter().filter(|id| *id < size).map(|id| id as u32).collect()
        };
        let first = |key: &str| configured(key).first().copied();
        let mut roles = Roles {
            bos: named("bos_token").or_else(|| first("bos_token_id")),
            eos: named("eos_token").or_else(|| first("eos_token_id")),
            pad: named("pad_token").or_else(|| first("pad_token_id")),
            unk: named("unk_token"),
            sep: named("sep_token"),
            cls: named("cls_token"),
            mask: named("mask_token"),
            ..Roles::default()
        };
        roles.ends.extend(roles.eos);
        roles.ends.extend(configured("eos_token_id"));
        roles.ends.extend(TURN_ENDS.iter().filter_map(|token| added.id(token)).filter(|id| added.is_special(*id)));
        without_separators(&mut roles.ends, |token| added.id(token));
        roles
    }
}

/// Whether a token's spelling says that it ends a turn.
pub(crate) fn is_turn_end(token: &str) -> bool {
    TURN_ENDS.contains(&token)
}

/// In the format with `<|return|>` and `<|call|>`, `<|end|>` only separates messages of one answer.
pub(crate) fn without_separators(ends: &mut BTreeSet<u32>, find: impl Fn(&str) -> Option<u32>) {
    if let (Some(_), Some(_), Some(end)) = (find("<|return|>"), find("<|call|>"), find("<|end|>")) {
        ends.remove(&end);
    }
}
