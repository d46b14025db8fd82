//! Vocabularies inside GGUF files: the keys `tokenizer.ggml.*`.

use super::config::{SideFiles, is_turn_end, without_separators};
use super::gguf_pre::Pre;
use crate::added::{AddedToken, AddedTokens};
use crate::charsmap::Charsmap;
use crate::decode::{BYTE_CHARS, Decoder, Step};
use crate::error::{Error, Fault};
use crate::model::{Bpe, BpeOptions, MAX_MERGES, Merges, Model, Scored, Unigram, WordPiece};
use crate::normalize::{Normalizer, SentencePiece};
use crate::pattern::Pattern;
use crate::post::Post;
use crate::pretokenize::PreTokenizer;
use crate::tokenizer::{Parts, Roles, Tokenizer};
use crate::vocabulary::Vocabulary;
use attend_format::gguf::{Metadata, Strings, TOKENIZER_JSON};
use serde_json::{Map, Value, json};

/// `tokenizer.ggml.token_type`.
pub(crate) mod kind {
    pub const NORMAL: i64 = 1;
    pub const UNKNOWN: i64 = 2;
    pub const CONTROL: i64 = 3;
    pub const USER_DEFINED: i64 = 4;
    pub const UNUSED: i64 = 5;
    pub const BYTE: i64 = 6;
}

/// The vocabulary of a file and what it says about it.
struct Reader<'m> {
    metadata: &'m Metadata,
    tokens: &'m Strings,
    types: Vec<i64>,
    roles: Roles,
}

/// Reads the tokenizer of an open file: a whole tokenizer.json where it keeps one, else its vocabulary.
pub(super) fn open(metadata: &Metadata) -> Result<Tokenizer, Error> {
    if let Some(text) = metadata.str(TOKENIZER_JSON)? {
        return super::tokenizer_json::from_text(metadata.file(), text, &side_files(metadata)?);
    }
    let Some(tokens) = metadata.strings("tokenizer.ggml.tokens")? else {
        return Err(Error::NoTokenizer { path: metadata.file().to_path_buf() });
    };
    let model = metadata.str("tokenizer.ggml.model")?;
    let model = model.ok_or_else(|| metadata.missing("tokenizer.ggml.model"))?;
    let types = metadata.integers("tokenizer.ggml.token_type")?.unwrap_or_else(|| vec![kind::NORMAL; tokens.len()]);
    if types.len() != tokens.len() {
        let problem = format!("has {} entries for {} tokens", types.len(), tokens.len());
        return Err(metadata.bad("tokenizer.ggml.token_type", problem).into());
    }
    let mut reader = Reader { metadata, tokens, types, roles: Roles::default() };
    reader.read_roles()?;
    let parts = match model {
        "gpt2" => reader.byte_level(metadata.str("tokenizer.ggml.pre")?.unwrap_or_default())?,
        "gemma4" => reader.byte_level("gemma4")?,
        "llama" => reader.sentencepiece()?,
        "t5" => reader.unigram()?,
        "bert" => reader.wordpiece()?,
        other => {
            let hint = "known: gpt2, llama, t5, bert, gemma4";
            let fault = Fault::unknown("tokenizer.ggml.model", "tokenizer", other, hint);
            return Err(fault.at(metadata.file()));
        }
    };
    Ok(Tokenizer::assemble(parts))
}

/// The roles that the file gives to ids, as the small files beside a tokenizer.json would say them.
fn side_files(metadata: &Metadata) -> Result<SideFiles, Error> {
    let tokens = metadata.strings("tokenizer.ggml.tokens")?;
    let id = |name: &str| metadata.token_id(&format!("tokenizer.ggml.{name}_token_id"));
    let mut config = Map::new();
    for (name, key) in [
        ("bos", "bos_token"),
        ("eos", "eos_token"),
        ("unknown", "unk_token"),
        ("padding", "pad_token"),
        ("seperator", "sep_token"),
        ("cls", "cls_token"),
        ("mask", "mask_token"),
    ] {
        if let Some(token) = id(name)?.and_then(|id| tokens?.get(id as usize)) {
            config.insert(key.into(), token.into());
        }
    }
    let mut generation = Map::new();
    generation.extend(id("bos")?.map(|id| ("bos_token_id".to_string(), json!(id))));
    generation.extend(id("padding")?.map(|id| ("pad_token_id".to_string(), json!(id))));
    let ends: Vec<u32> = [id("eos")?, id("eot")?, id("eom")?].into_iter().flatten().collect();
    if !ends.is_empty() {
        generation.insert("eos_token_id".into(), json!(ends));
    }
    Ok(SideFiles::of(Value::Object(config), Some(Value::Object(generation))))
}

/// The three tokens around a gap, where the file has them all.
fn infill([prefix, suffix, middle]: [Result<Option<u32>, Error>; 3]) -> Result<Option<[u32; 3]>, Error> {
    let (prefix, suffix, middle) = (prefix?, suffix?, middle?);
    Ok(prefix.zip(suffix).zip(middle).map(|((prefix, suffix), middle)| [prefix, suffix, middle]))
}

impl Reader<'_> {
    fn fault(&self, fault: Fault) -> Error {
        fault.at(self.metadata.file())
    }

    fn flag(&self, key: &str) -> Result<Option<bool>, Error> {
        Ok(self.metadata.bool(&format!("tokenizer.ggml.{key}"))?)
    }

    /// Ids with a role, checked against the number of tokens.
    fn read_roles(&mut self) -> Result<(), Error> {
        let read = |name: &str| -> Result<Option<u32>, Error> {
            let key = format!("tokenizer.ggml.{name}_token_id");
            match self.metadata.token_id(&key)? {
                Some(id) if id as usize >= self.tokens.len() => {
                    let problem = format!("is {id}, and the vocabulary has {} tokens", self.tokens.len());
                    Err(self.metadata.bad(&key, problem).into())
                }
                id => Ok(id),
            }
        };
        let sep = read("separator")?;
        let mut roles = Roles {
            bos: read("bos")?,
            eos: read("eos")?,
            pad: read("padding")?,
            unk: read("unknown")?,
            // The key is misspelled in most files.
            sep: read("seperator")?.or(sep),
            cls: read("cls")?,
            mask: read("mask")?,
            infill: infill(["fim_pre", "fim_suf", "fim_mid"].map(&read))?
                .or(infill(["prefix", "suffix", "middle"].map(&read))?),
            ..Roles::default()
        };
        roles.ends.extend([roles.eos, read("eot")?, read("eom")?].into_iter().flatten());
        for (id, token) in self.tokens.iter().enumerate() {
            if is_turn_end(token) && matches!(self.types.get(id), Some(&(kind::CONTROL | kind::USER_DEFINED))) {
                roles.ends.insert(id as u32);
            }
        }
        let find = |token: &str| roles.ends.iter().copied().find(|id| self.tokens.get(*id as usize) == Some(token));
        let mut ends = roles.ends.clone();
        without_separators(&mut ends, find);
        roles.ends = ends;
        self.roles = roles;
        Ok(())
    }

    fn token(&self, id: Option<u32>) -> Option<(&str, u32)> {
        Some((self.tokens.get(id? as usize)?, id?))
    }

    /// Control, unknown and user-defined tokens. `spell` gives what the decoder is to see for one.
    fn added(&self, normalizer: &Normalizer) -> Result<AddedTokens, Error> {
        let tokens = self.tokens.iter().zip(&self.types).enumerate().filter_map(|(id, (token, kind))| {
            let special = match *kind {
                kind::CONTROL | kind::UNKNOWN => true,
                // A token that ends generation is a control token, whatever the file says.
                kind::USER_DEFINED => self.roles.ends.contains(&(id as u32)),
                _ => return None,
            };
            Some(AddedToken { special, ..AddedToken::plain(token, id as u32) })
        });
        AddedTokens::new(tokens.collect(), normalizer).map_err(|fault| self.fault(fault))
    }

    /// BOS before and EOS behind every text, as the file says or else as its kind does.
    fn post(&mut self, add_bos: bool, add_eos: bool) -> Result<Post, Error> {
        let add_bos = self.flag("add_bos_token")?.unwrap_or(add_bos);
        let add_eos = self.flag("add_eos_token")?.unwrap_or(add_eos);
        let before = self.token(self.roles.bos.filter(|_| add_bos));
        let behind = self.token(self.roles.eos.filter(|_| add_eos));
        let post = Post::around(before.as_slice(), behind.as_slice()).map_err(|fault| self.fault(fault))?;
        self.roles.add_bos = Some(add_bos && self.roles.bos.is_some());
        Ok(post)
    }

    fn vocabulary(&self) -> Result<Vocabulary, Error> {
        Vocabulary::from_list(self.tokens.iter()).map_err(|fault| self.fault(fault))
    }

    fn scores(&self) -> Result<Vec<f32>, Error> {
        let key = "tokenizer.ggml.scores";
        let scores = self.metadata.floats(key)?.ok_or_else(|| self.metadata.missing(key))?;
        if scores.len() != self.tokens.len() {
            let problem = format!("has {} entries for {} tokens", scores.len(), self.tokens.len());
            return Err(self.metadata.bad(key, problem).into());
        }
        if let Some(id) = scores.iter().position(|score| score.is_nan()) {
            return Err(self.metadata.bad(key, format!("the score of id {id} is not a number")).into());
        }
        Ok(scores)
    }

    fn merges(&self) -> Result<Merges, Error> {
        let key = "tokenizer.ggml.merges";
        let list = self.metadata.strings(key)?.ok_or_else(|| self.metadata.missing(key))?;
        if list.len() > MAX_MERGES {
            return Err(self.metadata.bad(key, format!("{} merges, the limit is {MAX_MERGES}", list.len())).into());
        }
        let mut merges = Merges::with_capacity(list.len());
        for (rank, merge) in list.iter().enumerate() {
            // The first token may itself begin with a space.
            let first = merge.chars().next().map_or(0, char::len_utf8);
            let at = merge.get(first..).and_then(|rest| rest.find(' ')).map(|at| at + first);
            let Some((left, right)) = at.and_then(|at| Some((merge.get(..at)?, merge.get(at + 1..)?))) else {
                return Err(self.metadata.bad(key, format!("merge {rank} is not two tokens")).into());
            };
            merges.push((left.into(), right.into()));
        }
        Ok(merges)
    }

    /// `gpt2`: byte-pair encoding with merges.
    fn byte_level(mut self, name: &str) -> Result<Parts, Error> {
        let pre = Pre::find(name).map_err(|fault| self.fault(fault))?;
        let options = BpeOptions {
            ignore_merges: pre.ignore_merges,
            byte_fallback: !pre.byte_level,
            unk_token: self.token(self.roles.unk).filter(|_| !pre.byte_level).map(|(token, _)| token.to_string()),
            ..BpeOptions::default()
        };
        let vocabulary = self.vocabulary()?;
        let merges = self.merges()?;
        let model = Bpe::new(vocabulary, &merges, options, false).map_err(|fault| self.fault(fault))?;
        let normalizer = match pre.byte_level || name == "whitespace" {
            true => Normalizer::none(),
            false => Normalizer::Replace { pattern: Pattern::literal(" "), content: "▁".into() },
        };
        let mut added = self.added(&normalizer)?;
        let decoder = match pre.byte_level {
            true => {
                // The decoder reads byte characters; added tokens are plain text.
                added.spell(|content| content.bytes().map(|byte| BYTE_CHARS[byte as usize]).collect());
                Decoder { steps: vec![Step::ByteLevel] }
            }
            false => Decoder::sentencepiece(0),
        };
        let post = self.post(pre.add_bos || pre.add_sep, pre.add_sep)?;
        let kind = format!("GGUF (byte-level BPE, {})", if name.is_empty() { "default" } else { name });
        Ok(Parts {
            model: Model::Bpe(model),
            added,
            normalizer,
            pre_tokenizer: pre.pre_tokenizer().map_err(|fault| self.fault(fault))?,
            post,
            decoder,
            roles: self.roles,
            kind,
        })
    }

    fn byte_ids(&self, vocabulary: &Vocabulary) -> [Option<u32>; 256] {
        let is_byte = |id: &u32| self.types.get(*id as usize) == Some(&kind::BYTE);
        vocabulary.byte_ids().map(|id| id.filter(is_byte))
    }

    /// `llama`: SentencePiece's BPE by scores.
    fn sentencepiece(mut self) -> Result<Parts, Error> {
        let prefix = self.flag("add_space_prefix")?.unwrap_or(true);
        let scores = self.scores()?;
        let usable = |(score, kind): (&f32, &i64)| matches!(*kind, kind::NORMAL | kind::USER_DEFINED).then_some(*score);
        let scores = scores.iter().zip(&self.types).map(usable).collect();
        let vocabulary = self.vocabulary()?;
        let bytes = self.byte_ids(&vocabulary);
        let model = Model::Scored(Scored::new(vocabulary, scores, bytes, self.roles.unk, true));
        let normalizer = Normalizer::SentencePiece(SentencePiece {
            charsmap: Charsmap::default(),
            add_dummy_prefix: prefix,
            remove_extra_whitespaces: false,
            escape_whitespaces: true,
            suffix: false,
            first_only: false,
        });
        let added = self.added(&normalizer)?;
        let post = self.post(true, false)?;
        Ok(Parts {
            model,
            added,
            normalizer,
            pre_tokenizer: PreTokenizer::none(),
            post,
            decoder: Decoder::sentencepiece(usize::from(prefix)),
            roles: self.roles,
            kind: "GGUF (SentencePiece BPE)".into(),
        })
    }

    /// `t5`: SentencePiece's unigram model.
    fn unigram(mut self) -> Result<Parts, Error> {
        let prefix = self.flag("add_space_prefix")?.unwrap_or(true);
        let scores = self.scores()?;
        let pieces: Vec<(Box<str>, f64)> =
            self.tokens.iter().zip(&scores).map(|(token, score)| (token.into(), f64::from(*score))).collect();
        let key = "tokenizer.ggml.precompiled_charsmap";
        let map = self.metadata.integers(key)?.unwrap_or_default();
        let map: Vec<u8> = map.into_iter().map(|byte| byte as u8).collect();
        let normalizer = Normalizer::SentencePiece(SentencePiece {
            charsmap: Charsmap::parse(&map).map_err(|fault| self.metadata.bad(key, fault.problem))?,
            add_dummy_prefix: prefix,
            remove_extra_whitespaces: self.flag("remove_extra_whitespaces")?.unwrap_or(true),
            escape_whitespaces: true,
            suffix: false,
            first_only: false,
        });
        let types = &self.types;
        let usable = |id: usize| matches!(types[id], kind::NORMAL | kind::USER_DEFINED | kind::UNUSED);
        let byte_fallback = types.contains(&kind::BYTE);
        let unk = self.roles.unk.map(|unk| unk as usize);
        let model = Unigram::new(&pieces, unk, byte_fallback, usable).map_err(|fault| self.fault(fault))?;
        let added = self.added(&normalizer)?;
        let post = self.post(false, true)?;
        Ok(Parts {
            model: Model::Unigram(model),
            added,
            normalizer,
            pre_tokenizer: PreTokenizer::none(),
            post,
            decoder: Decoder::sentencepiece(usize::from(prefix)),
            roles: self.roles,
            kind: "GGUF (SentencePiece unigram)".into(),
        })
    }

    /// `bert`: WordPiece. The file marks the pieces that begin a word with `▁` instead of those that do not with `##`.
    fn wordpiece(mut self) -> Result<Parts, Error> {
        let mut cased = false;
        let mut vocabulary = Vocabulary::with_capacity(self.tokens.len());
        for (id, token) in self.tokens.iter().enumerate() {
            let bare = token.starts_with('[') && token.ends_with(']') && token.len() > 2;
            let piece = match token.strip_prefix('▁') {
                Some(start) => start.to_string(),
                None if bare || self.types[id] != kind::NORMAL => token.to_string(),
                None => format!("##{token}"),
            };
            cased |= !bare && self.types[id] == kind::NORMAL && piece.bytes().any(|byte| byte.is_ascii_uppercase());
            vocabulary.insert(&piece, id as u64).map_err(|fault| self.fault(fault))?;
        }
        // The keys of older files are those of this family's first model.
        let (cls, sep) = (self.roles.cls.or(self.roles.bos), self.roles.sep.or(self.roles.eos));
        let find = |id: Option<u32>, token: &str| id.or_else(|| vocabulary.id(token));
        let (cls, sep) = (find(cls, "[CLS]"), find(sep, "[SEP]"));
        let unk = find(self.roles.unk, "[UNK]");
        self.roles = Roles { cls, sep, unk, ..self.roles };
        let normalizer = json!({
            "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
            "strip_accents": null, "lowercase": !cased,
        });
        let normalizer = Normalizer::parse(&normalizer).map_err(|fault| self.fault(fault))?;
        let added = self.added(&normalizer)?;
        let post = match (self.token(cls), self.token(sep)) {
            (Some(cls), Some(sep)) => Post::parse(&json!({
                "type": "BertProcessing", "cls": [cls.0, cls.1], "sep": [sep.0, sep.1],
            })),
            _ => Ok(Post::default()),
        };
        let post = post.map_err(|fault| self.fault(fault))?;
        let unk_token = self.token(unk).map_or_else(|| "[UNK]".to_string(), |(token, _)| token.to_string());
        Ok(Parts {
            model: Model::WordPiece(WordPiece {
                vocabulary,
                unk_token,
                continuing_subword_prefix: "##".into(),
                max_input_chars_per_word: 100,
            }),
            added,
            normalizer,
            pre_tokenizer: PreTokenizer::parse(&json!({"type": "BertPreTokenizer"}))
                .map_err(|fault| self.fault(fault))?,
            post,
            decoder: Decoder { steps: vec![Step::WordPiece { prefix: "##".into(), cleanup: true }] },
            roles: self.roles,
            kind: "GGUF (WordPiece)".into(),
        })
    }
}
