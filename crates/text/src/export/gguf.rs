//! A tokenizer as the keys `tokenizer.ggml.*`.

use super::probes;
use crate::encoding::EncodeOptions;
use crate::error::Error;
use crate::model::{Bpe, Model};
use crate::normalize::Normalizer;
use crate::pretokenize::PreTokenizer;
use crate::source::gguf_pre::{NAMES, Pre};
use crate::source::kind;
use crate::tokenizer::Tokenizer;
use attend_format::gguf::{Array, Strings, Value};
use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString};

type Keys = Vec<(String, Value)>;

/// What kind of vocabulary the format calls it.
enum Kind<'t> {
    /// `gpt2`: merges of byte characters.
    Bytes(&'t Bpe),
    /// `llama`: scores decide what is joined.
    Scores(Vec<f32>),
    /// `t5`: scores of a unigram model.
    Unigram(Vec<f32>),
    /// `bert`
    WordPiece,
}

/// The vocabulary, its kind and its flags.
pub(super) fn vocabulary(tokenizer: &Tokenizer, rows: usize) -> Result<Keys, Error> {
    let mut keys = Keys::new();
    let mut set = |key: &str, value: Value| keys.push((format!("tokenizer.ggml.{key}"), value));
    let Some(found) = kind_of(tokenizer) else {
        // Nothing of the format fits; readers that need no text can still compute.
        set("model", Value::String("no_vocab".into()));
        return Ok(keys);
    };
    let (name, pre) = match &found {
        Kind::Bytes(bpe) => ("gpt2", pre_name(tokenizer, bpe.options().ignore_merges)),
        Kind::Scores(_) => ("llama", Some("default")),
        Kind::Unigram(_) => ("t5", Some("default")),
        Kind::WordPiece => ("bert", Some("default")),
    };
    set("model", Value::String(name.into()));
    set("pre", Value::String(pre.unwrap_or("default").into()));
    let word_piece = matches!(found, Kind::WordPiece);
    let (tokens, types) = tokens(tokenizer, rows, &found);
    set("tokens", Value::Array(Array::String(tokens.iter().collect::<Strings>())));
    set("token_type", Value::Array(Array::I32(types)));
    match &found {
        Kind::Scores(scores) | Kind::Unigram(scores) => {
            let mut scores = scores.clone();
            scores.resize(tokens.len(), 0.0);
            set("scores", Value::Array(Array::F32(scores)));
        }
        Kind::Bytes(bpe) => {
            let merges = bpe.ranked().into_iter().map(|(left, right)| format!("{left} {right}"));
            set("merges", Value::Array(Array::String(merges.collect())));
        }
        Kind::WordPiece => set("token_type_count", Value::U32(2)),
    }
    if !word_piece {
        for (key, value) in surroundings(tokenizer) {
            set(key, Value::Bool(value));
        }
    }
    if let Kind::Scores(_) | Kind::Unigram(_) = found {
        let ids = |text: &str| encode(tokenizer, text, false);
        let starts = ids("xq").first().and_then(|id| tokenizer.token(*id)).is_some_and(|token| token.starts_with('▁'));
        set("add_space_prefix", Value::Bool(starts));
        // The flag stands for two things that a tokenizer.json may have apart: runs of spaces become one, and those around
        // the text go. The first is what texts have more of.
        set("remove_extra_whitespaces", Value::Bool(ids("a  b") == ids("a b")));
    }
    if let Kind::Unigram(_) = found {
        let map = charsmap(&tokenizer.parts().normalizer).unwrap_or_default();
        if !map.is_empty() {
            set("precompiled_charsmap", Value::Array(Array::U8(map)));
        }
    }
    let roles = [
        ("bos_token_id", tokenizer.bos()),
        ("eos_token_id", tokenizer.eos()),
        ("unknown_token_id", tokenizer.unk()),
        ("padding_token_id", tokenizer.pad()),
        // The key is misspelled in the format.
        ("seperator_token_id", tokenizer.sep()),
        ("cls_token_id", tokenizer.cls()),
        ("mask_token_id", tokenizer.mask()),
    ];
    for (key, id) in roles {
        if let Some(id) = id.filter(|id| (*id as usize) < tokens.len()) {
            set(key, Value::U32(id));
        }
    }
    Ok(keys)
}

fn encode(tokenizer: &Tokenizer, text: &str, add_special: bool) -> Vec<u32> {
    let options = EncodeOptions { add_special, parse_special: false };
    tokenizer.encode(text, options).map(|encoding| encoding.ids).unwrap_or_default()
}

fn kind_of(tokenizer: &Tokenizer) -> Option<Kind<'_>> {
    match &tokenizer.parts().model {
        Model::Bpe(bpe) => {
            let options = bpe.options();
            if options.continuing_subword_prefix.is_some() || options.end_of_word_suffix.is_some() {
                return None;
            }
            let bytes = has_byte_level(&tokenizer.parts().pre_tokenizer);
            Some(if bytes { Kind::Bytes(bpe) } else { Kind::Scores(rank_scores(bpe)) })
        }
        Model::Scored(model) => Some(Kind::Scores(model.scores())),
        Model::Unigram(model) => Some(Kind::Unigram(model.scores())),
        Model::WordPiece(model) => (model.continuing_subword_prefix == "##").then_some(Kind::WordPiece),
        Model::WordLevel(_) | Model::Mapped(_) => None,
    }
}

/// Scores that make the joining by scores do what the joining by ranks does: the earlier a token is made, the higher
/// its score.
fn rank_scores(bpe: &Bpe) -> Vec<f32> {
    let mut scores = vec![0.0f32; bpe.vocabulary().len()];
    for (rank, (left, right)) in bpe.ranked().into_iter().enumerate() {
        let id = bpe.vocabulary().id(&format!("{left}{right}"));
        if let Some(score) = id.and_then(|id| scores.get_mut(id as usize)).filter(|score| **score == 0.0) {
            *score = -(rank as f32 + 1.0);
        }
    }
    scores
}

fn has_byte_level(step: &PreTokenizer) -> bool {
    match step {
        PreTokenizer::Sequence(steps) => steps.iter().any(has_byte_level),
        PreTokenizer::ByteLevel { .. } => true,
        PreTokenizer::Split { .. } | PreTokenizer::Library(_) => false,
    }
}

fn charsmap(normalizer: &Normalizer) -> Option<Vec<u8>> {
    match normalizer {
        Normalizer::Sequence(steps) => steps.iter().find_map(charsmap),
        Normalizer::Precompiled(map) => Some(map.to_bytes()),
        Normalizer::SentencePiece(spec) => Some(spec.charsmap.to_bytes()),
        Normalizer::Replace { .. } | Normalizer::Library(_) => None,
    }
}

/// Spellings and types of all ids, filled up to the rows of the table.
fn tokens(tokenizer: &Tokenizer, rows: usize, found: &Kind) -> (Vec<String>, Vec<i32>) {
    let added = &tokenizer.parts().added;
    let scored = matches!(found, Kind::Scores(_) | Kind::Unigram(_));
    let one = |id: u32| -> (String, i64) {
        let Some(token) = tokenizer.token(id) else { return (format!("[PAD{id}]"), kind::UNUSED) };
        if added.content(id).is_some() {
            let unknown = scored && tokenizer.unk() == Some(id);
            let special = if unknown { kind::UNKNOWN } else { kind::CONTROL };
            return (token, if added.is_special(id) { special } else { kind::USER_DEFINED });
        }
        match found {
            Kind::Scores(_) | Kind::Unigram(_) if is_byte(&token) => (token, kind::BYTE),
            Kind::Scores(_) | Kind::Unigram(_) if tokenizer.unk() == Some(id) => (token, kind::UNKNOWN),
            Kind::WordPiece => {
                let bare = token.starts_with('[') && token.ends_with(']') && token.len() > 2;
                let piece = match token.strip_prefix("##") {
                    Some(inside) if !inside.is_empty() => inside.to_string(),
                    _ if bare => token,
                    _ => format!("▁{token}"),
                };
                (piece, kind::NORMAL)
            }
            Kind::Bytes(_) | Kind::Scores(_) | Kind::Unigram(_) => (token, kind::NORMAL),
        }
    };
    (0..rows as u32).map(|id| (id, one(id))).map(|(_, (token, kind))| (token, kind as i32)).unzip()
}

fn is_byte(token: &str) -> bool {
    token.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>')).is_some_and(|hex| {
        hex.len() == 2 && hex.bytes().all(|byte| byte.is_ascii_hexdigit() && !byte.is_ascii_lowercase())
    })
}

/// Whether every text gets a BOS before it and an EOS behind it.
fn surroundings(tokenizer: &Tokenizer) -> [(&'static str, bool); 2] {
    let (plain, whole) = (encode(tokenizer, "a", false), encode(tokenizer, "a", true));
    let starts = tokenizer.adds_bos() || (whole.len() > plain.len() && whole.first() == tokenizer.bos().as_ref());
    let ends = whole.len() > plain.len() && tokenizer.eos().is_some() && whole.last() == tokenizer.eos().as_ref();
    [("add_bos_token", starts), ("add_eos_token", ends)]
}

/// The name of the pre-tokenizer that cuts all probes as this tokenizer does.
fn pre_name(tokenizer: &Tokenizer, ignore_merges: bool) -> Option<&'static str> {
    let parts = tokenizer.parts();
    let cuts = |pre: &PreTokenizer| -> Option<Vec<Vec<String>>> {
        let cut = |text: &&str| {
            let mut text = PreTokenizedString::from(*text);
            pre.pre_tokenize(&mut text).ok()?;
            let splits = text.get_splits(OffsetReferential::Original, OffsetType::Byte);
            Some(splits.into_iter().map(|(piece, ..)| piece.to_string()).filter(|piece| !piece.is_empty()).collect())
        };
        probes::TEXTS.iter().map(cut).collect()
    };
    let ours = cuts(&parts.pre_tokenizer)?;
    let fits = |name: &str, flag: bool| {
        let Ok(pre) = Pre::find(name) else { return false };
        pre.byte_level
            && (!flag || pre.ignore_merges == ignore_merges)
            && pre.pre_tokenizer().ok().and_then(|pre| cuts(&pre)).is_some_and(|theirs| theirs == ours)
    };
    let found = |flag: bool| NAMES.iter().copied().find(|name| fits(name, flag));
    found(true).or_else(|| found(false))
}
