//! The older files of Hugging Face tokenizers: `vocab.txt` (WordPiece), and `vocab.json` with `merges.txt` (byte-level
//! BPE). What they leave open is in `tokenizer_config.json` and `special_tokens_map.json`.

use super::config::SideFiles;
use super::sentencepiece::{bert, roberta};
use crate::added::AddedTokens;
use crate::decode::{Decoder, Step};
use crate::error::{Error, Fault};
use crate::model::{Bpe, BpeOptions, MAX_MERGES, Merges, Model, WordPiece};
use crate::normalize::Normalizer;
use crate::post::Post;
use crate::pretokenize::PreTokenizer;
use crate::tokenizer::{Parts, Roles, Tokenizer};
use crate::vocabulary::Vocabulary;
use attend_format::json::{self, Limits, read_text};
use serde_json::{Value, json};
use std::path::Path;

const MAX_BYTES: u64 = 128 << 20;

/// `vocab.txt`.
pub(super) fn word_piece(path: &Path, files: &SideFiles) -> Result<Tokenizer, Error> {
    let text = read_text(path, MAX_BYTES)?;
    let parts = word_piece_parts(&text, files).map_err(|fault| fault.at(path))?;
    Ok(Tokenizer::assemble(parts))
}

fn word_piece_parts(text: &str, files: &SideFiles) -> Result<Parts, Fault> {
    // One token a line; the last line may lack its end.
    let vocabulary = Vocabulary::from_list(text.lines().map(|line| line.trim_end_matches('\r')))?;
    let normalizer = Normalizer::parse(&json!({
        "type": "BertNormalizer",
        "clean_text": true,
        "handle_chinese_chars": files.flag("tokenize_chinese_chars").unwrap_or(true),
        "strip_accents": files.flag("strip_accents"),
        "lowercase": files.flag("do_lower_case").unwrap_or(true),
    }))?;
    let mut tokens = files.added_tokens(&vocabulary)?;
    for name in ["[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"] {
        if let Some(id) = vocabulary.id(name)
            && !tokens.iter().any(|token| token.content == name)
        {
            tokens.push(crate::added::AddedToken::special(name, id));
        }
    }
    // Words that are never cut.
    for word in files.config("never_split").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
        if let Some(id) = vocabulary.id(word)
            && !tokens.iter().any(|token| token.content == word)
        {
            tokens.push(crate::added::AddedToken { single_word: true, ..crate::added::AddedToken::plain(word, id) });
        }
    }
    let added = AddedTokens::new(tokens, &normalizer)?;
    let mut roles = files.roles(&vocabulary, &added);
    let find = |token: &str| added.id(token).or_else(|| vocabulary.id(token));
    roles.cls = roles.cls.or_else(|| find("[CLS]").or_else(|| find("<s>")));
    roles.sep = roles.sep.or_else(|| find("[SEP]").or_else(|| find("</s>")));
    roles.unk = roles.unk.or_else(|| find("[UNK]"));
    roles.pad = roles.pad.or_else(|| find("[PAD]"));
    roles.mask = roles.mask.or_else(|| find("[MASK]"));
    let token = |id: Option<u32>| Some((added.content(id?).or_else(|| vocabulary.token(id?))?, id?));
    // The family that took its special tokens from another one separates pairs like that one.
    let doubled = token(roles.sep).is_some_and(|(sep, _)| sep == "</s>");
    let (cls, sep) = (token(roles.cls), token(roles.sep));
    let post = if doubled { roberta(cls, sep, false)? } else { bert(cls, sep)? };
    let unk_token = token(roles.unk).map_or("[UNK]", |(unk, _)| unk).to_string();
    Ok(Parts {
        added,
        normalizer,
        pre_tokenizer: PreTokenizer::parse(&json!({"type": "BertPreTokenizer"}))?,
        post,
        decoder: Decoder { steps: vec![Step::WordPiece { prefix: "##".into(), cleanup: true }] },
        roles,
        kind: "vocab.txt (WordPiece)".into(),
        model: Model::WordPiece(WordPiece {
            vocabulary,
            unk_token,
            continuing_subword_prefix: "##".into(),
            max_input_chars_per_word: 100,
        }),
    })
}

/// `vocab.json` as a vocabulary.
pub(super) fn read_vocabulary(path: &Path) -> Result<Vocabulary, Error> {
    let value = json::read(path, Limits::TOKENIZER)?;
    let mut vocabulary = Vocabulary::default();
    let object = value.as_object().ok_or_else(|| Fault::new("the vocabulary", "must be an object of ids").at(path))?;
    for (token, id) in object {
        let id = id.as_u64().ok_or_else(|| Fault::new(crate::error::shorten(token), "is no token id").at(path))?;
        vocabulary.insert(token, id).map_err(|fault| fault.at(path))?;
    }
    Ok(vocabulary)
}

/// `vocab.json` and `merges.txt`.
pub(super) fn byte_level(folder: &Path, files: &SideFiles) -> Result<Tokenizer, Error> {
    let vocabulary = read_vocabulary(&folder.join("vocab.json"))?;
    let path = folder.join("merges.txt");
    let text = read_text(&path, MAX_BYTES)?;
    let parts = read_merges(&text).and_then(|merges| byte_level_parts(vocabulary, &merges, files));
    Ok(Tokenizer::assemble(parts.map_err(|fault| fault.at(&path))?))
}

fn read_merges(text: &str) -> Result<Merges, Fault> {
    let mut merges = Merges::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim_end_matches('\r');
        if line.is_empty() || line.starts_with("#version") {
            continue;
        }
        let pair = line.split_once(' ').filter(|(_, right)| !right.contains(' '));
        let (left, right) = pair.ok_or_else(|| Fault::new(format!("line {}", number + 1), "is not two tokens"))?;
        if merges.len() == MAX_MERGES {
            return Err(Fault::new("merges", format!("more than {MAX_MERGES}")));
        }
        merges.push((left.into(), right.into()));
    }
    Ok(merges)
}

/// How a family cuts words and what it puts around a text.
enum Family {
    /// Nothing, or a BOS if asked for.
    Open,
    /// `<s>` text `</s>`, the separator doubled between pairs.
    Closed,
    /// Other patterns, and composed characters.
    Composed(&'static str),
}

impl Family {
    fn of(files: &SideFiles) -> Result<Family, Fault> {
        let class = files.class();
        let short = class.strip_suffix("fast").unwrap_or(&class);
        let short = short.strip_suffix("tokenizer").unwrap_or(short).replace(['-', '_'], "");
        Ok(match short.as_str() {
            "roberta" | "bart" | "longformer" | "led" | "mvp" | "blenderbot" => Family::Closed,
            "qwen2" => Family::Composed(super::gguf_pre::QWEN2),
            "gpt2" | "gptneo" | "gptj" | "gptneox" | "codegen" | "opt" | "phi" | "starcoder2" | "gptbigcode" => {
                Family::Open
            }
            // Without any hint, the roles decide: a tokenizer with CLS and SEP is of the closed kind.
            "" if files.special_name("cls_token").is_some() => Family::Closed,
            "" => Family::Open,
            other => {
                let hint = "how it cuts text is not known; a tokenizer.json would say";
                return Err(Fault::unknown("tokenizer_class of the folder", "class", other, hint));
            }
        })
    }
}

fn byte_level_parts(vocabulary: Vocabulary, merges: &Merges, files: &SideFiles) -> Result<Parts, Fault> {
    let family = Family::of(files)?;
    let normalizer = match family {
        Family::Composed(_) => Normalizer::parse(&json!({"type": "NFC"}))?,
        Family::Open | Family::Closed => Normalizer::none(),
    };
    let add_prefix_space = files.flag("add_prefix_space").unwrap_or(false);
    let pre_tokenizer = match family {
        Family::Composed(pattern) => PreTokenizer::Sequence(vec![
            PreTokenizer::isolate(pattern)?,
            PreTokenizer::ByteLevel { add_prefix_space, use_regex: false },
        ]),
        Family::Open | Family::Closed => PreTokenizer::ByteLevel { add_prefix_space, use_regex: true },
    };
    let mut tokens = files.added_tokens(&vocabulary)?;
    for token in &mut tokens {
        // The mask takes the space before it, as in the vocabulary's own training.
        token.lstrip |= token.content == "<mask>" && matches!(family, Family::Closed);
    }
    if matches!(family, Family::Open) && tokens.is_empty() {
        let end = vocabulary.id("<|endoftext|>").map(|id| crate::added::AddedToken::special("<|endoftext|>", id));
        tokens.extend(end);
    }
    if matches!(family, Family::Closed) {
        for name in ["<s>", "<pad>", "</s>", "<unk>", "<mask>"] {
            if let Some(id) = vocabulary.id(name)
                && !tokens.iter().any(|token| token.content == name)
            {
                let token = crate::added::AddedToken::special(name, id);
                tokens.push(crate::added::AddedToken { lstrip: name == "<mask>", ..token });
            }
        }
    }
    let added = AddedTokens::new(tokens, &normalizer)?;
    let mut roles = files.roles(&vocabulary, &added);
    fill(&mut roles, &family, &added);
    let token = |id: Option<u32>| Some((added.content(id?).or_else(|| vocabulary.token(id?))?, id?));
    let post = match family {
        Family::Closed => {
            let (cls, sep) = (token(roles.cls.or(roles.bos)), token(roles.sep.or(roles.eos)));
            roberta(cls, sep, add_prefix_space)?
        }
        Family::Open | Family::Composed(_) => {
            let before = token(roles.bos.filter(|_| files.flag("add_bos_token") == Some(true)));
            let behind = token(roles.eos.filter(|_| files.flag("add_eos_token") == Some(true)));
            Post::around(before.as_slice(), behind.as_slice())?
        }
    };
    let model = Bpe::new(vocabulary, merges, BpeOptions::default(), true)?;
    Ok(Parts {
        model: Model::Bpe(model),
        added,
        normalizer,
        pre_tokenizer,
        post,
        decoder: Decoder { steps: vec![Step::ByteLevel] },
        roles,
        kind: "vocab.json and merges.txt (byte-level BPE)".into(),
    })
}

fn fill(roles: &mut Roles, family: &Family, added: &AddedTokens) {
    let id = |token: &str| added.id(token);
    match family {
        Family::Closed => {
            roles.cls = roles.cls.or_else(|| id("<s>"));
            roles.sep = roles.sep.or_else(|| id("</s>"));
            roles.bos = roles.bos.or(roles.cls);
            roles.eos = roles.eos.or(roles.sep);
            roles.pad = roles.pad.or_else(|| id("<pad>"));
            roles.mask = roles.mask.or_else(|| id("<mask>"));
        }
        Family::Open | Family::Composed(_) => {
            roles.eos = roles.eos.or_else(|| id("<|endoftext|>"));
            roles.bos = roles.bos.or_else(|| id("<|endoftext|>").filter(|_| matches!(family, Family::Open)));
        }
    }
    roles.ends.extend(roles.eos);
}
