//! A GGUF vocabulary as `tokenizer.json`, and the small file beside it.

use super::probes;
use crate::error::Error;
use crate::model::{Bpe, MAX_MERGES, Model, Scored, Unigram};
use crate::normalize::{Normalizer, SentencePiece};
use crate::source::gguf_pre::Pre;
use crate::tokenizer::Tokenizer;
use attend_format::gguf::Metadata;
use base64::Engine as _;
use serde_json::{Map, Value, json};

/// Largest tokenizer.json that is taken into a GGUF file.
pub(super) const MAX_BYTES: u64 = 256 << 20;

/// The text without white space outside of strings; the order of everything stays.
pub(super) fn compact(text: &str) -> String {
    let (mut out, mut quoted, mut escaped) = (String::with_capacity(text.len()), false, false);
    for c in text.chars() {
        if !quoted && c.is_ascii_whitespace() {
            continue;
        }
        quoted ^= c == '"' && !escaped;
        escaped = quoted && c == '\\' && !escaped;
        out.push(c);
    }
    out
}

/// `tokenizer.json` of a vocabulary that only GGUF's keys describe.
pub(super) fn from_gguf(metadata: &Metadata, tokenizer: &Tokenizer) -> Result<Value, Error> {
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false});
    let parts = tokenizer.parts();
    let spaces = match &parts.normalizer {
        Normalizer::SentencePiece(spec) => Some(spec),
        Normalizer::Sequence(_) | Normalizer::Replace { .. } | Normalizer::Precompiled(_) | Normalizer::Library(_) => {
            None
        }
    };
    let (model, normalizer, pre_tokenizer, decoder) = match &parts.model {
        Model::Bpe(bpe) => {
            let name = metadata.str("tokenizer.ggml.pre")?.unwrap_or_default();
            let pre = Pre::find(name).map_err(|fault| fault.at(metadata.file()))?;
            let mut steps: Vec<Value> = pre.patterns.iter().map(|pattern| isolate(pattern)).collect();
            if pre.byte_level {
                steps.push(byte_level.clone());
                (bpe_model(bpe), Value::Null, json!({"type": "Sequence", "pretokenizers": steps}), byte_level)
            } else {
                let escape = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
                (bpe_model(bpe), escape, json!({"type": "Sequence", "pretokenizers": steps}), spaced(false))
            }
        }
        Model::Scored(model) => {
            let prefix = spaces.is_some_and(|spec| spec.add_dummy_prefix);
            let normalizer = json!({"type": "Sequence", "normalizers": escape(prefix)});
            (scored_model(model, tokenizer), normalizer, Value::Null, spaced(prefix))
        }
        Model::Unigram(model) => {
            let prefix = spaces.is_some_and(|spec| spec.add_dummy_prefix);
            (unigram_model(model), tidy(spaces, prefix), Value::Null, spaced(prefix))
        }
        Model::WordPiece(model) => {
            let vocabulary = vocab(tokenizer, |id| model.vocabulary.token(id).map(str::to_string));
            let model = json!({
                "type": "WordPiece", "unk_token": model.unk_token, "continuing_subword_prefix": "##",
                "max_input_chars_per_word": model.max_input_chars_per_word, "vocab": vocabulary,
            });
            let lower = tokenizer.encode("A", Default::default()).ok().map(|found| found.ids)
                == tokenizer.encode("a", Default::default()).ok().map(|found| found.ids);
            let normalizer = json!({
                "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                "strip_accents": null, "lowercase": lower,
            });
            let decoder = json!({"type": "WordPiece", "prefix": "##", "cleanup": true});
            (model, normalizer, json!({"type": "BertPreTokenizer"}), decoder)
        }
        Model::WordLevel(_) | Model::Mapped(_) => return Err(Error::NoTokenizer { path: metadata.file().into() }),
    };
    Ok(json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": parts.added.list().map(|token| json!({
            "id": token.id, "content": token.content, "single_word": token.single_word, "lstrip": token.lstrip,
            "rstrip": token.rstrip, "normalized": token.normalized, "special": token.special,
        })).collect::<Vec<_>>(),
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": parts.post.0.as_ref().and_then(|post| serde_json::to_value(post).ok()),
        "decoder": decoder,
        "model": model,
    }))
}

fn isolate(pattern: &str) -> Value {
    json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false})
}

/// Spaces as `▁`, one more before each text, even before one that begins with a space.
fn escape(prefix: bool) -> Vec<Value> {
    let escape = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
    let prepend = json!({"type": "Prepend", "prepend": "▁"});
    if prefix { vec![prepend, escape] } else { vec![escape] }
}

/// SentencePiece's normaliser in steps: characters, spaces around the text and in runs, the space before it. Only spaces
/// go from its ends: what other white space is to become is the map's business.
fn tidy(spec: Option<&SentencePiece>, prefix: bool) -> Value {
    let mut steps = Vec::new();
    let map = spec.map(|spec| spec.charsmap.to_bytes()).unwrap_or_default();
    if !map.is_empty() {
        let text = base64::engine::general_purpose::STANDARD.encode(map);
        steps.push(json!({"type": "Precompiled", "precompiled_charsmap": text}));
    }
    if spec.is_some_and(|spec| spec.remove_extra_whitespaces) {
        steps.push(json!({"type": "Replace", "pattern": {"Regex": r"\A +| +\z"}, "content": ""}));
        steps.push(json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}));
    }
    steps.extend(escape(prefix));
    json!({"type": "Sequence", "normalizers": steps})
}

/// The decoder of pieces with `▁` and bytes.
fn spaced(prefix: bool) -> Value {
    let mut steps = vec![
        json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if prefix {
        steps.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    json!({"type": "Sequence", "decoders": steps})
}

fn vocab(tokenizer: &Tokenizer, token: impl Fn(u32) -> Option<String>) -> Map<String, Value> {
    (0..tokenizer.vocab_size() as u32).filter_map(|id| Some((token(id)?, json!(id)))).collect()
}

fn bpe_model(bpe: &Bpe) -> Value {
    let options = bpe.options();
    let vocabulary = bpe.vocabulary();
    let ids: Map<String, Value> =
        (0..vocabulary.len() as u32).filter_map(|id| Some((vocabulary.token(id)?.to_string(), json!(id)))).collect();
    json!({
        "type": "BPE", "dropout": null, "unk_token": options.unk_token, "continuing_subword_prefix": null,
        "end_of_word_suffix": null, "fuse_unk": options.fuse_unk, "byte_fallback": options.byte_fallback,
        "ignore_merges": options.ignore_merges, "vocab": ids, "merges": bpe.ranked(),
    })
}

/// Joining by scores as joining by ranks: every pair of pieces that makes a piece, the pieces by falling score.
fn scored_model(model: &Scored, tokenizer: &Tokenizer) -> Value {
    let vocabulary = model.vocabulary();
    let mut merges: Vec<(f32, u32, &str, &str)> = Vec::new();
    'all: for id in 0..vocabulary.len() as u32 {
        let (Some(token), Some(score)) = (vocabulary.token(id), model.score(id)) else { continue };
        for (at, _) in token.char_indices().skip(1) {
            let (left, right) = token.split_at(at);
            let usable = |piece: &str| vocabulary.id(piece).is_some_and(|id| model.score(id).is_some());
            if usable(left) && usable(right) {
                merges.push((score, id, left, right));
            }
            if merges.len() >= MAX_MERGES {
                break 'all;
            }
        }
    }
    let id = |piece: &str| vocabulary.id(piece).unwrap_or(u32::MAX);
    merges.sort_by(|a, b| {
        b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)).then_with(|| (id(a.2), id(a.3)).cmp(&(id(b.2), id(b.3))))
    });
    let merges: Vec<(&str, &str)> = merges.into_iter().map(|(_, _, left, right)| (left, right)).collect();
    let unk = tokenizer.unk().and_then(|id| tokenizer.token(id));
    json!({
        "type": "BPE", "dropout": null, "unk_token": unk, "continuing_subword_prefix": null,
        "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
        "vocab": vocab(tokenizer, |id| vocabulary.token(id).map(str::to_string)), "merges": merges,
    })
}

fn unigram_model(model: &Unigram) -> Value {
    let vocabulary = model.vocabulary();
    let pieces: Vec<(&str, f32)> = model
        .scores()
        .into_iter()
        .enumerate()
        .map(|(id, score)| (vocabulary.token(id as u32).unwrap_or_default(), score))
        .collect();
    json!({"type": "Unigram", "unk_id": model.unk(), "byte_fallback": model.has_bytes(), "vocab": pieces})
}

/// `tokenizer_config.json`.
pub(super) fn config(tokenizer: &Tokenizer, context: Option<usize>) -> Map<String, Value> {
    let mut fields = Map::new();
    let roles = [
        ("bos_token", tokenizer.bos()),
        ("eos_token", tokenizer.eos()),
        ("unk_token", tokenizer.unk()),
        ("sep_token", tokenizer.sep()),
        ("pad_token", tokenizer.pad()),
        ("cls_token", tokenizer.cls()),
        ("mask_token", tokenizer.mask()),
    ];
    for (name, id) in roles {
        if let Some(token) = id.and_then(|id| tokenizer.token(id)) {
            fields.insert(name.into(), token.into());
        }
    }
    fields.insert("tokenizer_class".into(), "PreTrainedTokenizerFast".into());
    fields.insert("clean_up_tokenization_spaces".into(), false.into());
    if let Some(context) = context {
        fields.insert("model_max_length".into(), context.into());
    }
    fields
}

/// Where the written file reads other ids than the tokenizer it was made from.
pub(super) fn difference(
    metadata: &Metadata,
    tokenizer: &Tokenizer,
    text: &str,
    config: &Map<String, Value>,
) -> Option<String> {
    match Tokenizer::from_json(metadata.file(), text, Value::Object(config.clone())) {
        Ok(again) => probes::difference(tokenizer, &again),
        Err(error) => Some(error.to_string()),
    }
}
