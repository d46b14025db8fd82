//! The algorithms that cut a pre-token into tokens of the vocabulary.

mod bpe;
mod mapped;
mod scored;
mod unigram;
mod wordpiece;

pub(crate) use bpe::{Bpe, BpeOptions, MAX_MERGES, Merges};
pub(crate) use mapped::Mapped;
pub(crate) use scored::Scored;
pub(crate) use unigram::Unigram;
pub(crate) use wordpiece::{WordLevel, WordPiece};

use crate::error::Error;
use crate::vocabulary::Vocabulary;
use tokenizers::Token;

/// One of the known algorithms with its vocabulary.
#[derive(Debug)]
pub(crate) enum Model {
    Bpe(Bpe),
    Scored(Scored),
    Unigram(Unigram),
    WordPiece(WordPiece),
    WordLevel(WordLevel),
    Mapped(Box<Mapped>),
}

impl Model {
    pub fn tokenize(&self, text: &str) -> Result<Vec<Token>, Error> {
        match self {
            Model::Bpe(model) => model.tokenize(text),
            Model::Scored(model) => Ok(model.tokenize(text)),
            Model::Unigram(model) => model.tokenize(text),
            Model::WordPiece(model) => model.tokenize(text),
            Model::WordLevel(model) => model.tokenize(text),
            Model::Mapped(model) => model.tokenize(text),
        }
    }

    pub fn vocabulary(&self) -> &Vocabulary {
        match self {
            Model::Bpe(model) => model.vocabulary(),
            Model::Scored(model) => model.vocabulary(),
            Model::Unigram(model) => model.vocabulary(),
            Model::WordPiece(model) => &model.vocabulary,
            Model::WordLevel(model) => &model.vocabulary,
            Model::Mapped(model) => &model.vocabulary,
        }
    }

    pub fn unk(&self) -> Option<u32> {
        match self {
            Model::Bpe(model) => model.unk(),
            Model::Scored(model) => model.unk(),
            Model::Unigram(model) => model.unk(),
            Model::WordPiece(model) => model.vocabulary.id(&model.unk_token),
            Model::WordLevel(model) => model.vocabulary.id(&model.unk_token),
            Model::Mapped(model) => Some(model.unk),
        }
    }

    /// Whether pieces that continue a word are marked by a prefix (`##`).
    pub fn marks_continuations(&self) -> bool {
        match self {
            Model::WordPiece(model) => !model.continuing_subword_prefix.is_empty(),
            Model::Bpe(model) => model.marks_continuations(),
            Model::Mapped(model) => model.inner.marks_continuations(),
            Model::Scored(_) | Model::Unigram(_) | Model::WordLevel(_) => false,
        }
    }

    /// The algorithm's name, for people.
    pub fn name(&self) -> &'static str {
        match self {
            Model::Bpe(_) => "BPE",
            Model::Scored(_) => "SentencePiece BPE",
            Model::Unigram(_) => "Unigram",
            Model::WordPiece(_) => "WordPiece",
            Model::WordLevel(_) => "WordLevel",
            Model::Mapped(model) => model.inner.name(),
        }
    }
}

/// Symbols of a word as a doubly linked list over one array, shared by the two kinds of BPE.
#[derive(Debug, Clone, Copy)]
struct Symbol {
    id: u32,
    start: usize,
    len: usize,
    previous: usize,
    next: usize,
}

/// End of the list.
const NONE: usize = usize::MAX;

/// The list of symbols of one word.
#[derive(Debug, Default)]
struct Chain(Vec<Symbol>);

impl Chain {
    fn push(&mut self, id: u32, start: usize, len: usize) {
        let index = self.0.len();
        let previous = if index == 0 { NONE } else { index - 1 };
        if let Some(last) = self.0.last_mut() {
            last.next = index;
        }
        self.0.push(Symbol { id, start, len, previous, next: NONE });
    }

    /// Makes `left` one symbol with its neighbour on the right.
    fn join(&mut self, left: usize, id: u32) {
        let right = self.0[left].next;
        let Symbol { len, next, .. } = self.0[right];
        self.0[right].len = 0;
        self.0[right].next = NONE;
        self.0[left].id = id;
        self.0[left].len += len;
        self.0[left].next = next;
        if next != NONE {
            self.0[next].previous = left;
        }
    }

    /// The living symbols in order.
    fn walk(&self) -> impl Iterator<Item = &Symbol> {
        let mut at = if self.0.is_empty() { NONE } else { 0 };
        std::iter::from_fn(move || {
            let symbol = self.0.get(at)?;
            at = symbol.next;
            Some(symbol)
        })
    }
}

/// Whether no piece reaches from one word into the next: none has `▁` behind another character. Then a text can be cut
/// in front of every such `▁` without changing what is joined, which keeps words short and the work in the cache.
fn pieces_end_with_words<'t>(mut pieces: impl Iterator<Item = &'t str>) -> bool {
    pieces.all(|piece| !piece.trim_start_matches('▁').contains('▁'))
}

/// The words of a text, each with the spaces before it.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let start = rest.len() - rest.trim_start_matches('▁').len();
        let end = rest.get(start..)?.find('▁').map_or(rest.len(), |at| start + at);
        let (word, behind) = rest.split_at_checked(end)?;
        rest = behind;
        (!word.is_empty()).then_some(word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_the_text() {
        for (text, expected) in [
            ("", vec![]),
            ("▁a▁▁b", vec!["▁a", "▁▁b"]),
            ("a▁", vec!["a", "▁"]),
            ("▁▁▁", vec!["▁▁▁"]),
            ("é▁ü▁x", vec!["é", "▁ü", "▁x"]),
        ] {
            assert_eq!(words(text).collect::<Vec<_>>(), expected);
        }
        assert!(pieces_end_with_words(["▁", "▁▁", "▁the", "x"].into_iter()));
        assert!(!pieces_end_with_words(["▁of▁the"].into_iter()));
    }
}
