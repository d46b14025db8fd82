//! Filling a gap: a text before it, a text behind it, and what a model that has learned this writes between them.

use crate::encoding::EncodeOptions;
use crate::{Error, Tokenizer};

/// The tokens that stand before the text before a gap, before the text behind it, and where the answer begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Infill {
    prefix: u32,
    suffix: u32,
    middle: u32,
    ends: Vec<u32>,
}

/// How vocabularies spell the three.
const SPELLINGS: [[&str; 3]; 6] = [
    ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"],
    ["<fim_prefix>", "<fim_suffix>", "<fim_middle>"],
    ["<fim-prefix>", "<fim-suffix>", "<fim-middle>"],
    ["<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"],
    ["▁<PRE>", "▁<SUF>", "▁<MID>"],
    ["<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"],
];

/// Tokens at which what fills a gap is over, where a vocabulary has them: there the file or the lesson ended.
const ENDS: [&str; 11] = [
    "<|fim_pad|>",
    "<fim_pad>",
    "<fim-pad>",
    "<|endoftext|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<|file_separator|>",
    "<file_sep>",
    "<EOT>",
    "▁<EOT>",
    "<｜end▁of▁sentence｜>",
];

impl Infill {
    /// None: the vocabulary has no such tokens, and the model has never filled a gap.
    pub fn of(tokenizer: &Tokenizer) -> Option<Infill> {
        let spelled = |names: &[&str; 3]| {
            let [prefix, suffix, middle] = names.map(|name| tokenizer.id(name));
            Some([prefix?, suffix?, middle?])
        };
        let found = tokenizer.infill_ids().or_else(|| SPELLINGS.iter().find_map(spelled));
        let [prefix, suffix, middle] = found?;
        let mut ends: Vec<u32> = ENDS.iter().filter_map(|name| tokenizer.id(name)).collect();
        ends.extend([prefix, suffix, middle]);
        Some(Infill { prefix, suffix, middle, ends })
    }

    /// The tokens of a prompt. Special tokens that the two texts spell stay text.
    ///
    /// # Errors
    /// Texts that cannot be encoded.
    pub fn encode(&self, tokenizer: &Tokenizer, before: &str, behind: &str) -> Result<Vec<u32>, Error> {
        let options = EncodeOptions { add_special: false, parse_special: false };
        let mut ids: Vec<u32> = tokenizer.bos().filter(|_| tokenizer.adds_bos()).into_iter().collect();
        ids.push(self.prefix);
        ids.extend(tokenizer.encode(before, options)?.ids);
        ids.push(self.suffix);
        ids.extend(tokenizer.encode(behind, options)?.ids);
        ids.push(self.middle);
        Ok(ids)
    }

    /// Tokens that end an answer, beside those that end any.
    pub fn ends(&self) -> &[u32] {
        &self.ends
    }
}
