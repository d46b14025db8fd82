//! What encoding a text gives.

/// Who put a special token into an encoding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The chat template printed it.
    Template,
    /// The tokenizer adds it to every text; its role (`bos`, `eos`, `cls`, `sep`) or, failing that, its spelling.
    PostProcessor(String),
    /// It was spelled in the text, and special tokens in the text were asked for.
    Text,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Origin::Template => f.write_str("template"),
            Origin::PostProcessor(role) => write!(f, "tokenizer ({role})"),
            Origin::Text => f.write_str("text"),
        }
    }
}

/// How to treat special tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Add the tokens that the model expects around every text (BOS, CLS, SEP, …).
    pub add_special: bool,
    /// Take special tokens that are spelled in the text as control tokens. Off, `</s>` is four plain characters.
    /// Added tokens that are not special are words of the vocabulary and always found.
    pub parse_special: bool,
}

/// Token ids with what is known about each; all lists have the same length.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Encoding {
    pub ids: Vec<u32>,
    /// The tokens as the vocabulary spells them (`Ġthe`, `▁the`, `##ing`).
    pub pieces: Vec<String>,
    /// Where each token comes from, in characters (code points) of the text: start and end. (0, 0) where none.
    pub offsets: Vec<(usize, usize)>,
    /// Segment of each token: 0, or 1 for the second text of a pair where the model tells them apart.
    pub type_ids: Vec<u32>,
    /// Who put it there, for special tokens.
    pub special: Vec<Option<Origin>>,
    /// The word of its text that each token is a part of, as the pre-tokenizer counts them; none for tokens that were
    /// added around the text.
    pub words: Vec<Option<u32>>,
    /// Which text of a pair each token comes from, 0 or 1; none for tokens that were added around them.
    pub texts: Vec<Option<usize>>,
}

impl Encoding {
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Puts a special token in front.
    pub(crate) fn prepend(&mut self, id: u32, piece: String, origin: Origin) {
        self.ids.insert(0, id);
        self.pieces.insert(0, piece);
        self.offsets.insert(0, (0, 0));
        self.type_ids.insert(0, 0);
        self.special.insert(0, Some(origin));
        self.words.insert(0, None);
        self.texts.insert(0, None);
    }

    /// Removes the first token.
    pub(crate) fn remove_first(&mut self) {
        if !self.is_empty() {
            self.ids.remove(0);
            self.pieces.remove(0);
            self.offsets.remove(0);
            self.type_ids.remove(0);
            self.special.remove(0);
            self.words.remove(0);
            self.texts.remove(0);
        }
    }
}

/// How to shorten an encoding that is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truncation {
    /// Most tokens, those added by the tokenizer included.
    pub max_length: usize,
    /// Tokens that neighbouring parts share.
    pub stride: usize,
    pub strategy: TruncationStrategy,
    /// Drop from the start instead of the end.
    pub left: bool,
}

/// Which text of a pair is shortened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TruncationStrategy {
    LongestFirst,
    OnlyFirst,
    OnlySecond,
}
