//! Byte-pair encoding by merge ranks (Sennrich et al. 2016): the pair of lowest rank is merged first, the leftmost of
//! equals first. A heap of candidate pairs makes it O(n log n) in the length of the word.

use super::{Chain, NONE, pieces_end_with_words, words};
use crate::error::{Error, Fault, shorten};
use crate::vocabulary::Vocabulary;
use ahash::AHashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use tokenizers::Token;

/// Merges in order of rank.
pub(crate) type Merges = Vec<(Box<str>, Box<str>)>;
/// Most merges accepted. The largest known files have about half a million.
pub(crate) const MAX_MERGES: usize = 1 << 22;

/// What a tokenizer file may say about its BPE besides the tables.
#[derive(Debug, Default, Clone)]
pub(crate) struct BpeOptions {
    pub unk_token: Option<String>,
    pub continuing_subword_prefix: Option<String>,
    pub end_of_word_suffix: Option<String>,
    /// Neighbouring unknown characters become one unknown token.
    pub fuse_unk: bool,
    /// Unknown characters become one `<0xNN>` token a byte, where the vocabulary has them.
    pub byte_fallback: bool,
    /// A word that is in the vocabulary is taken whole.
    pub ignore_merges: bool,
}

/// The model.
#[derive(Debug)]
pub(crate) struct Bpe {
    vocabulary: Vocabulary,
    /// (left id, right id) -> (rank, id of the joined token).
    merges: AHashMap<(u32, u32), (u32, u32)>,
    options: BpeOptions,
    bytes: [Option<u32>; 256],
    /// The text may be cut at `▁`.
    by_words: bool,
}

impl Bpe {
    pub fn marks_continuations(&self) -> bool {
        self.options.continuing_subword_prefix.as_ref().is_some_and(|prefix| !prefix.is_empty())
    }

    /// `strict`: a merge of unknown tokens is an error; otherwise it is left out (GGUF vocabularies carry a few).
    pub fn new(vocabulary: Vocabulary, merges: &Merges, options: BpeOptions, strict: bool) -> Result<Bpe, Fault> {
        let mut table = AHashMap::with_capacity(merges.len());
        let prefix = options.continuing_subword_prefix.as_deref().unwrap_or("");
        let mut joined = String::new();
        for (rank, (left, right)) in merges.iter().enumerate() {
            joined.clear();
            joined.push_str(left);
            joined.push_str(right.strip_prefix(prefix).unwrap_or(right));
            let ids = (vocabulary.id(left), vocabulary.id(right), vocabulary.id(&joined));
            if let (Some(left), Some(right), Some(id)) = ids {
                // Of two equal pairs the later one counts, as a map built in order would have it.
                table.insert((left, right), (rank as u32, id));
            } else if strict {
                let problem = format!("merge {rank} of `{}` needs a token outside the vocabulary", shorten(&joined));
                return Err(Fault::new("model.merges", problem));
            }
        }
        if let Some(unk) = &options.unk_token
            && vocabulary.id(unk).is_none()
            && strict
            && vocabulary.distinct() > 0
        {
            return Err(Fault::new("model.unk_token", format!("`{}` is not in the vocabulary", shorten(unk))));
        }
        let bytes = if options.byte_fallback { vocabulary.byte_ids() } else { [None; 256] };
        let plain = options.continuing_subword_prefix.is_none() && options.end_of_word_suffix.is_none();
        let joined = table.values().filter_map(|(_, id)| vocabulary.token(*id));
        let by_words = plain && vocabulary.id("▁").is_some() && pieces_end_with_words(joined);
        Ok(Bpe { vocabulary, merges: table, options, bytes, by_words })
    }

    pub fn options(&self) -> &BpeOptions {
        &self.options
    }

    /// The merges that can happen, in order of rank.
    pub fn ranked(&self) -> Vec<(&str, &str)> {
        let mut merges: Vec<(u32, u32, u32)> =
            self.merges.iter().map(|(&(left, right), &(rank, _))| (rank, left, right)).collect();
        merges.sort_unstable();
        let token = |id| self.vocabulary.token(id).unwrap_or_default();
        merges.into_iter().map(|(_, left, right)| (token(left), token(right))).collect()
    }

    pub fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    pub fn unk(&self) -> Option<u32> {
        self.vocabulary.id(self.options.unk_token.as_deref()?)
    }

    pub fn tokenize(&self, text: &str) -> Result<Vec<Token>, Error> {
        if self.options.ignore_merges
            && let Some(id) = self.vocabulary.id(text)
        {
            return Ok(vec![Token::new(id, text.to_string(), (0, text.len()))]);
        }
        let mut tokens = Vec::new();
        if self.by_words {
            words(text).for_each(|word| self.word(word, &mut tokens));
        } else {
            self.word(text, &mut tokens);
        }
        Ok(tokens)
    }

    /// Appends the tokens of a word.
    fn word(&self, text: &str, tokens: &mut Vec<Token>) {
        let before = tokens.last().map_or(0, |token| token.offsets.1);
        let mut chain = self.characters(text);
        self.merge(&mut chain);
        tokens.extend(chain.walk().map(|symbol| {
            let token = self.vocabulary.token(symbol.id).unwrap_or_default().to_string();
            let start = before + symbol.start;
            Token::new(symbol.id, token, (start, start + symbol.len))
        }));
    }

    /// One symbol a character; characters outside the vocabulary become byte tokens, an unknown token, or nothing.
    fn characters(&self, text: &str) -> Chain {
        let mut chain = Chain::default();
        let (prefix, suffix) = (&self.options.continuing_subword_prefix, &self.options.end_of_word_suffix);
        let mut unknown: Option<(u32, usize)> = None;
        // Offsets count only what is kept, as in the reference: a dropped character shifts those behind it.
        let mut at = 0;
        let mut scratch = String::new();
        let mut chars = text.char_indices().peekable();
        while let Some((start, c)) = chars.next() {
            let end = start + c.len_utf8();
            let mut symbol = &text[start..end];
            if (start > 0 && prefix.is_some()) || (chars.peek().is_none() && suffix.is_some()) {
                scratch.clear();
                if start > 0 {
                    scratch.push_str(prefix.as_deref().unwrap_or_default());
                }
                scratch.push(c);
                if chars.peek().is_none() {
                    scratch.push_str(suffix.as_deref().unwrap_or_default());
                }
                symbol = &scratch;
            }
            if let Some(id) = self.vocabulary.id(symbol) {
                if let Some((unk, len)) = unknown.take() {
                    chain.push(unk, at, len);
                    at += len;
                }
                chain.push(id, at, c.len_utf8());
                at += c.len_utf8();
                continue;
            }
            if self.options.byte_fallback && symbol.bytes().all(|byte| self.bytes[byte as usize].is_some()) {
                for byte in symbol.bytes() {
                    if let Some(id) = self.bytes[byte as usize] {
                        chain.push(id, at, 1);
                        at += 1;
                    }
                }
                continue;
            }
            let Some(unk) = self.unk() else { continue };
            unknown = match unknown {
                Some((id, len)) if self.options.fuse_unk => Some((id, len + c.len_utf8())),
                Some((id, len)) => {
                    chain.push(id, at, len);
                    at += len;
                    Some((unk, c.len_utf8()))
                }
                None => Some((unk, c.len_utf8())),
            };
        }
        if let Some((unk, len)) = unknown {
            chain.push(unk, at, len);
        }
        chain
    }

    fn merge(&self, chain: &mut Chain) {
        let mut heap = BinaryHeap::new();
        let offer = |heap: &mut BinaryHeap<_>, chain: &Chain, left: usize| {
            let Some(symbol) = chain.0.get(left) else { return };
            let Some(right) = chain.0.get(symbol.next) else { return };
            if let Some(&(rank, id)) = self.merges.get(&(symbol.id, right.id)) {
                heap.push(Reverse((rank, left, id)));
            }
        };
        for left in 0..chain.0.len() {
            offer(&mut heap, chain, left);
        }
        while let Some(Reverse((_, left, id))) = heap.pop() {
            let symbol = chain.0[left];
            if symbol.len == 0 || symbol.next == NONE {
                continue;
            }
            // The pair may have changed since it was offered.
            let pair = (symbol.id, chain.0[symbol.next].id);
            if self.merges.get(&pair).is_none_or(|(_, new)| *new != id) {
                continue;
            }
            chain.join(left, id);
            offer(&mut heap, chain, chain.0[left].previous);
            offer(&mut heap, chain, left);
        }
    }
}
