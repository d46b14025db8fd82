//! A8: each key of a GGUF model deleted, and stored as each of the other types.

use super::{Cases, Wanted, refused};
use attend_testkit::files::gguf::{Gguf, senseless, string, value};
use attend_testkit::files::{Files, model};
use attend_testkit::memory::alone;

fn files(file: &Gguf) -> Files {
    vec![("m.gguf".into(), file.bytes())]
}

/// The tiny model with one value replaced by these bytes (type and payload).
pub fn with_key(key: &str, bytes: &[u8]) -> Files {
    let mut file = model::gguf(5);
    file.keys.iter_mut().filter(|(name, _)| name == key).for_each(|(_, old)| *old = bytes.to_vec());
    files(&file)
}

/// Keys without which a model of this kind has a documented meaning.
const OPTIONAL: [&str; 6] = [
    "llama.context_length",
    "llama.attention.head_count_kv",
    "llama.rope.freq_base",
    "tokenizer.ggml.token_type",
    "tokenizer.ggml.bos_token_id",
    "tokenizer.ggml.eos_token_id",
];

#[test]
fn each_key_deleted() {
    let _alone = alone();
    let mut cases = Cases::default();
    let whole = model::gguf(5);
    for (key, _) in &whole.keys {
        let mut file = whole.clone();
        file.keys.retain(|(name, _)| name != key);
        let short = key.rsplit('.').next().unwrap();
        let wanted = match &**key {
            // Without a vocabulary a model still computes.
            "tokenizer.ggml.tokens" => Wanted::Fine,
            // More key-value heads than there are rows: the tensors tell.
            "llama.attention.head_count_kv" => refused(&["attn_k", "head_count_kv"]),
            key if OPTIONAL.contains(&key) => Wanted::Fine,
            key => refused(&[key, short, hf_name(key)]),
        };
        cases.check(&format!("without {key}"), &files(&file), "m.gguf", &wanted);
    }
    cases.done(14);
}

/// The name under which the configuration knows a key.
fn hf_name(key: &str) -> &str {
    match key {
        "llama.embedding_length" => "hidden_size",
        "llama.block_count" => "num_hidden_layers",
        "llama.feed_forward_length" => "intermediate_size",
        "llama.attention.head_count" => "num_attention_heads",
        "llama.attention.head_count_kv" => "num_key_value_heads",
        "llama.context_length" => "max_position_embeddings",
        "llama.attention.layer_norm_rms_epsilon" => "rms_norm_eps",
        "llama.rope.freq_base" => "rope_theta",
        "tokenizer.ggml.tokens" => "vocab_size",
        _ => key,
    }
}

#[test]
fn each_key_as_each_type() {
    let _alone = alone();
    let mut cases = Cases::default();
    for (key, _) in &model::gguf(5).keys {
        for id in 0..=12u32 {
            let mut bytes = id.to_le_bytes().to_vec();
            bytes.extend(senseless(id));
            let wanted = match (&**key, id) {
                // Token 0, in any type of integer, is a token.
                ("tokenizer.ggml.bos_token_id" | "tokenizer.ggml.eos_token_id", id) if integer(id) => Wanted::Fine,
                ("llama.attention.layer_norm_rms_epsilon", id) if integer(id) => Wanted::Fine,
                ("llama.rope.freq_base", value::F32 | value::F64) => Wanted::Fine,
                (key, _) => refused(&[key, hf_name(key), "architecture"]),
            };
            cases.check(&format!("{key} as type {id}"), &with_key(key, &bytes), "m.gguf", &wanted);
        }
    }
    cases.done(180);
}

fn integer(id: u32) -> bool {
    ![value::F32, value::BOOL, value::STRING, value::ARRAY, value::F64].contains(&id)
}

#[test]
fn architectures_that_are_not_known() {
    let _alone = alone();
    let mut cases = Cases::default();
    for name in ["sorcery", "LLAMA", "llama ", "llama\0", "llama.attention", "\u{202e}amall", "💣", "null"] {
        let bytes = [&value::STRING.to_le_bytes()[..], &string(name.as_bytes())].concat();
        cases.check(name, &with_key("general.architecture", &bytes), "m.gguf", &refused(&["architecture"]));
    }
    cases.done(8);
}
