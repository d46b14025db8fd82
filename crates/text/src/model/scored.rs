//! SentencePiece's BPE: of all neighbours whose joined text is a piece, the pair with the highest score is joined
//! first, the leftmost of equals first. The scores take the place of a list of merges.

use super::{Chain, NONE, pieces_end_with_words, words};
use crate::error::Fault;
use crate::vocabulary::Vocabulary;
use aho_corasick::{AhoCorasick, MatchKind};
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use tokenizers::Token;

/// The model.
#[derive(Debug)]
pub(crate) struct Scored {
    vocabulary: Vocabulary,
    /// Score of each id; `None` for pieces that text is never joined into (control, unknown, unused, byte).
    scores: Vec<Option<f32>>,
    bytes: [Option<u32>; 256],
    unk: Option<u32>,
    longest: usize,
    /// Neighbouring unknown characters become one unknown token, as SentencePiece itself does.
    fuse_unk: bool,
    /// Words that are taken whole and never joined with others, with their ids.
    whole: Option<(AhoCorasick, Vec<u32>)>,
    /// The text may be cut at `▁`.
    by_words: bool,
}

/// A pair waiting to be joined.
struct Candidate {
    score: f32,
    left: Reverse<usize>,
    len: usize,
    id: u32,
}

impl Ord for Candidate {
    fn cmp(&self, other: &Candidate) -> Ordering {
        self.score.total_cmp(&other.score).then(self.left.cmp(&other.left))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Candidate) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Candidate) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Candidate {}

impl Scored {
    /// `scores` has one entry for each id; `bytes` are the ids of the byte pieces.
    pub fn new(
        vocabulary: Vocabulary,
        scores: Vec<Option<f32>>,
        bytes: [Option<u32>; 256],
        unk: Option<u32>,
        fuse_unk: bool,
    ) -> Scored {
        let joinable = scores.iter().enumerate().filter(|(_, score)| score.is_some());
        let pieces = || joinable.clone().filter_map(|(id, _)| vocabulary.token(id as u32));
        let longest = pieces().map(str::len).max().unwrap_or(0);
        let by_words = pieces().any(|piece| piece == "▁") && pieces_end_with_words(pieces());
        Scored { vocabulary, scores, bytes, unk, longest, fuse_unk, whole: None, by_words }
    }

    /// The score of an id; `None` for pieces that text is never joined into.
    pub fn score(&self, id: u32) -> Option<f32> {
        self.scores.get(id as usize).copied().flatten()
    }

    /// All scores, 0 where there is none.
    pub fn scores(&self) -> Vec<f32> {
        self.scores.iter().map(|score| score.unwrap_or(0.0)).collect()
    }

    /// Adds words that are taken whole wherever they occur, the longest first.
    pub fn with_whole_words(mut self, words: &[(&str, u32)]) -> Result<Scored, Fault> {
        if !words.is_empty() {
            let finder = AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostLongest)
                .build(words.iter().map(|(word, _)| word))
                .map_err(|error| Fault::new("pieces", error))?;
            self.whole = Some((finder, words.iter().map(|(_, id)| *id).collect()));
        }
        Ok(self)
    }

    pub fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    pub fn unk(&self) -> Option<u32> {
        self.unk
    }

    fn piece(&self, text: &str) -> Option<(u32, f32)> {
        if text.len() > self.longest {
            return None;
        }
        let id = self.vocabulary.id(text)?;
        Some((id, (*self.scores.get(id as usize)?)?))
    }

    pub fn tokenize(&self, text: &str) -> Vec<Token> {
        let Some((finder, ids)) = &self.whole else { return self.cut(text) };
        let mut tokens = Vec::new();
        let mut from = 0;
        let shifted = |tokens: &mut Vec<Token>, start: usize, end: usize| {
            tokens.extend(self.cut(&text[start..end]).into_iter().map(|mut token| {
                token.offsets = (token.offsets.0 + start, token.offsets.1 + start);
                token
            }));
        };
        for found in finder.find_iter(text) {
            shifted(&mut tokens, from, found.start());
            let (range, id) = ((found.start(), found.end()), ids[found.pattern().as_usize()]);
            tokens.push(Token::new(id, text[found.start()..found.end()].to_string(), range));
            from = found.end();
        }
        shifted(&mut tokens, from, text.len());
        tokens
    }

    /// Cuts a text without whole words.
    fn cut(&self, text: &str) -> Vec<Token> {
        let mut tokens: Vec<Token> = Vec::with_capacity(text.len() / 3);
        if self.by_words {
            let mut start = 0;
            for word in words(text) {
                self.word(word, start, &mut tokens);
                start += word.len();
            }
        } else {
            self.word(text, 0, &mut tokens);
        }
        tokens
    }

    /// Appends the tokens of a word that begins at `start`.
    fn word(&self, text: &str, start: usize, tokens: &mut Vec<Token>) {
        let mut chain = Chain::default();
        for (at, c) in text.char_indices() {
            chain.push(0, at, c.len_utf8());
        }
        self.join(&mut chain, text);
        for symbol in chain.walk() {
            let piece = &text[symbol.start..symbol.start + symbol.len];
            let range = (start + symbol.start, start + symbol.start + symbol.len);
            if let Some((id, _)) = self.piece(piece) {
                tokens.push(Token::new(id, piece.to_string(), range));
            } else if piece.bytes().all(|byte| self.bytes[byte as usize].is_some()) {
                let ids = piece.bytes().filter_map(|byte| self.bytes[byte as usize]);
                tokens.extend(
                    ids.map(|id| Token::new(id, self.vocabulary.token(id).unwrap_or_default().to_string(), range)),
                );
            } else if let Some(unk) = self.unk {
                match tokens.last_mut() {
                    Some(last) if self.fuse_unk && last.id == unk && last.offsets.1 == range.0 => {
                        last.offsets.1 = range.1;
                        last.value.push_str(piece);
                    }
                    _ => tokens.push(Token::new(unk, piece.to_string(), range)),
                }
            }
        }
    }

    fn join(&self, chain: &mut Chain, text: &str) {
        let mut heap = BinaryHeap::new();
        let offer = |heap: &mut BinaryHeap<Candidate>, chain: &Chain, left: usize| {
            let Some(symbol) = chain.0.get(left) else { return };
            let Some(right) = chain.0.get(symbol.next) else { return };
            let len = symbol.len + right.len;
            if let Some((id, score)) = self.piece(&text[symbol.start..symbol.start + len]) {
                heap.push(Candidate { score, left: Reverse(left), len, id });
            }
        };
        for left in 0..chain.0.len() {
            offer(&mut heap, chain, left);
        }
        while let Some(Candidate { left: Reverse(left), len, id, .. }) = heap.pop() {
            let symbol = chain.0[left];
            // A pair that has changed since it was offered has another length.
            if symbol.len == 0 || symbol.next == NONE || symbol.len + chain.0[symbol.next].len != len {
                continue;
            }
            chain.join(left, id);
            offer(&mut heap, chain, chain.0[left].previous);
            offer(&mut heap, chain, left);
        }
    }
}
