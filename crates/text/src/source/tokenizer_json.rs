//! `tokenizer.json`, the file of the `tokenizers` library.
//!
//! Truncation and padding that the file switches on are switched off: they belong to a batch, not to a text.

use super::config::SideFiles;
use crate::added::{AddedToken, AddedTokens};
use crate::decode::Decoder;
use crate::error::{Error, Fault};
use crate::model::{Bpe, BpeOptions, MAX_MERGES, Merges, Model, Unigram, WordLevel, WordPiece};
use crate::normalize::Normalizer;
use crate::post::Post;
use crate::pretokenize::PreTokenizer;
use crate::tokenizer::{Parts, Tokenizer};
use crate::vocabulary::{MAX_TOKENS, Vocabulary};
use attend_format::json::read_text;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use std::fmt;
use std::path::Path;

/// Largest file accepted, in bytes. The largest known ones have about 35 MB.
const MAX_BYTES: u64 = 256 << 20;

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    post_processor: Value,
    #[serde(default)]
    decoder: Value,
    model: ModelFile,
}

/// Every field that one of the models has.
#[derive(Deserialize)]
struct ModelFile {
    #[serde(rename = "type")]
    kind: Option<String>,
    vocab: Vocab,
    #[serde(default)]
    merges: Option<MergeList>,
    #[serde(default)]
    unk_token: Option<String>,
    #[serde(default)]
    unk_id: Option<usize>,
    #[serde(default)]
    continuing_subword_prefix: Option<String>,
    #[serde(default)]
    end_of_word_suffix: Option<String>,
    #[serde(default)]
    max_input_chars_per_word: Option<usize>,
    #[serde(default)]
    fuse_unk: Option<bool>,
    #[serde(default)]
    byte_fallback: Option<bool>,
    #[serde(default)]
    ignore_merges: Option<bool>,
}

/// Token -> id, or for unigram models a list of (piece, score).
enum Vocab {
    Ids(Vocabulary),
    Scores(Vec<(Box<str>, f64)>),
}

impl<'de> Deserialize<'de> for Vocab {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Vocab, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Vocab;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an object of ids or a list of pieces with scores")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vocab, A::Error> {
                let mut vocabulary = Vocabulary::default();
                while let Some((token, id)) = map.next_entry::<String, u64>()? {
                    vocabulary.insert(&token, id).map_err(|fault| A::Error::custom(fault.problem))?;
                }
                Ok(Vocab::Ids(vocabulary))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vocab, A::Error> {
                let mut pieces = Vec::new();
                while let Some(piece) = list.next_element::<(String, f64)>()? {
                    if pieces.len() == MAX_TOKENS {
                        return Err(A::Error::custom(format!("more than {MAX_TOKENS} pieces")));
                    }
                    pieces.push((piece.0.into_boxed_str(), piece.1));
                }
                Ok(Vocab::Scores(pieces))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

/// Merges as `"a b"` (old) or `["a", "b"]` (new).
struct MergeList(Merges);

impl<'de> Deserialize<'de> for MergeList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<MergeList, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = MergeList;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a list of merges")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<MergeList, A::Error> {
                let mut merges = Vec::new();
                while let Some(Merge(pair)) = list.next_element()? {
                    if merges.len() == MAX_MERGES {
                        return Err(A::Error::custom(format!("more than {MAX_MERGES} merges")));
                    }
                    merges.extend(pair);
                }
                Ok(MergeList(merges))
            }
        }
        deserializer.deserialize_seq(Reader)
    }
}

/// One merge, or `None` for the version line that old files begin with.
struct Merge(Option<(Box<str>, Box<str>)>);

impl<'de> Deserialize<'de> for Merge {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Merge, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Merge;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a merge: two tokens in a list, or with a space between")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Merge, E> {
                if text.starts_with("#version") {
                    return Ok(Merge(None));
                }
                match text.split_once(' ') {
                    Some((left, right)) if !right.contains(' ') => Ok(Merge(Some((left.into(), right.into())))),
                    _ => Err(E::custom("a merge must be two tokens with one space between")),
                }
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Merge, A::Error> {
                let left = list.next_element::<Box<str>>()?;
                let right = list.next_element::<Box<str>>()?;
                match (left, right, list.next_element::<IgnoredAny>()?) {
                    (Some(left), Some(right), None) => Ok(Merge(Some((left, right)))),
                    _ => Err(A::Error::custom("a merge must be two tokens")),
                }
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

/// Reads a tokenizer.json; `files` are those beside it.
pub(super) fn open(path: &Path, files: &SideFiles) -> Result<Tokenizer, Error> {
    let text = read_text(path, MAX_BYTES)?;
    let parts = parse(&text, files).map_err(|fault| fault.at(path))?;
    Ok(Tokenizer::assemble(parts))
}

/// Reads the text of a tokenizer.json that errors attribute to `file`.
pub(super) fn from_text(file: &Path, text: &str, files: &SideFiles) -> Result<Tokenizer, Error> {
    parse(text, files).map(Tokenizer::assemble).map_err(|fault| fault.at(file))
}

fn parse(text: &str, files: &SideFiles) -> Result<Parts, Fault> {
    let file: File = serde_json::from_str(text).map_err(|error| Fault::new("the JSON", error))?;
    let decoder = Decoder::parse(&file.decoder)?;
    let normalizer = Normalizer::parse(&file.normalizer)?;
    let pre_tokenizer = PreTokenizer::parse(&file.pre_tokenizer)?;
    let post = Post::parse(&file.post_processor)?;
    let model = model(file.model)?;
    let added = added(file.added_tokens, &model, &normalizer)?;
    let mut roles = files.roles(model.vocabulary(), &added);
    guess_roles(&mut roles, &added, &file.post_processor);
    let kind = format!("tokenizer.json ({})", model.name());
    Ok(Parts { model, added, normalizer, pre_tokenizer, post, decoder, roles, kind })
}

fn model(file: ModelFile) -> Result<Model, Fault> {
    let kind = match (&file.kind, &file.vocab) {
        (Some(kind), _) => kind.as_str(),
        (None, Vocab::Scores(_)) => "Unigram",
        (None, Vocab::Ids(_)) if file.merges.is_some() => "BPE",
        (None, Vocab::Ids(_)) if file.continuing_subword_prefix.is_some() => "WordPiece",
        (None, Vocab::Ids(_)) => "WordLevel",
    };
    let unk_token = file.unk_token.clone();
    match (kind, file.vocab) {
        ("BPE", Vocab::Ids(vocabulary)) => {
            let options = BpeOptions {
                unk_token,
                continuing_subword_prefix: file.continuing_subword_prefix.filter(|prefix| !prefix.is_empty()),
                end_of_word_suffix: file.end_of_word_suffix.filter(|suffix| !suffix.is_empty()),
                fuse_unk: file.fuse_unk.unwrap_or(false),
                byte_fallback: file.byte_fallback.unwrap_or(false),
                ignore_merges: file.ignore_merges.unwrap_or(false),
            };
            let merges = file.merges.map(|merges| merges.0).unwrap_or_default();
            Ok(Model::Bpe(Bpe::new(vocabulary, &merges, options, true)?))
        }
        ("WordPiece", Vocab::Ids(vocabulary)) => Ok(Model::WordPiece(WordPiece {
            vocabulary,
            unk_token: unk_token.unwrap_or_else(|| "[UNK]".into()),
            continuing_subword_prefix: file.continuing_subword_prefix.unwrap_or_else(|| "##".into()),
            max_input_chars_per_word: file.max_input_chars_per_word.unwrap_or(100),
        })),
        ("WordLevel", Vocab::Ids(vocabulary)) => {
            Ok(Model::WordLevel(WordLevel { vocabulary, unk_token: unk_token.unwrap_or_else(|| "<unk>".into()) }))
        }
        ("Unigram", Vocab::Scores(pieces)) => {
            Ok(Model::Unigram(Unigram::new(&pieces, file.unk_id, file.byte_fallback.unwrap_or(false), |_| true)?))
        }
        ("BPE" | "WordPiece" | "WordLevel" | "Unigram", _) => {
            Err(Fault::new("model.vocab", format!("has not the form that a {kind} model needs")))
        }
        (other, _) => Err(Fault::unknown("model.type", "model", other, "known: BPE, WordPiece, WordLevel, Unigram")),
    }
}

/// The added tokens. A token of the vocabulary keeps the vocabulary's id, whatever the list says, as in the library.
fn added(mut tokens: Vec<AddedToken>, model: &Model, normalizer: &Normalizer) -> Result<AddedTokens, Fault> {
    for token in &mut tokens {
        if let Some(id) = model.vocabulary().id(&token.content) {
            token.id = id;
        }
    }
    AddedTokens::new(tokens, normalizer)
}

/// Where no other file names the special tokens, the post-processor and the usual spellings do.
fn guess_roles(roles: &mut crate::tokenizer::Roles, added: &AddedTokens, post: &Value) {
    let special = |token: &str| added.id(token).filter(|id| added.is_special(*id));
    let any = |tokens: &[&str]| tokens.iter().find_map(|token| special(token));
    roles.cls = roles.cls.or_else(|| any(&["[CLS]"]));
    roles.sep = roles.sep.or_else(|| any(&["[SEP]"]));
    roles.mask = roles.mask.or_else(|| any(&["[MASK]", "<mask>"]));
    roles.pad = roles.pad.or_else(|| any(&["[PAD]", "<pad>"]));
    roles.unk = roles.unk.or_else(|| any(&["[UNK]", "<unk>"]));
    if roles.bos.is_none() && roles.cls.is_none() {
        // A template that begins with a special token names the BOS.
        let steps = post.get("processors").and_then(Value::as_array);
        let first = steps.into_iter().flatten().chain([post]).find_map(|step| step.get("single")?.get(0));
        let first = first.and_then(|piece| piece.get("SpecialToken")?.get("id")?.as_str());
        roles.bos = first.and_then(|token| added.id(token)).or_else(|| any(&["<s>", "<bos>"]));
    }
    if roles.eos.is_none() {
        roles.eos = any(&["</s>", "<eos>", "<|endoftext|>", "<|end_of_text|>"]);
        roles.ends.extend(roles.eos);
    }
}
