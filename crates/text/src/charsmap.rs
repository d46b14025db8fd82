//! SentencePiece's precompiled table of character replacements: a double-array trie over bytes (Yata et al.) whose
//! values point into a list of texts that end with a zero byte.
//!
//! Layout: `u32` size of the trie in bytes, the trie as `u32` units, the texts. In a unit, bit 8 says that a leaf
//! follows, the low byte is the label, and bits 10.. are the offset of the children (times 256 when bit 9 is set).

use crate::error::Fault;
use unicode_segmentation::UnicodeSegmentation;

/// The table. An empty one replaces nothing.
#[derive(Debug, Clone, Default)]
pub(crate) struct Charsmap {
    units: Vec<u32>,
    texts: String,
}

impl Charsmap {
    pub fn parse(bytes: &[u8]) -> Result<Charsmap, Fault> {
        let fault = |problem: &str| Fault::new("precompiled_charsmap", problem);
        if bytes.is_empty() {
            return Ok(Charsmap::default());
        }
        let (size, rest) = bytes.split_first_chunk::<4>().ok_or_else(|| fault("shorter than its header"))?;
        let size = u32::from_le_bytes(*size) as usize;
        if size > rest.len() || !size.is_multiple_of(4) {
            return Err(fault("the size of the trie does not fit the table"));
        }
        let (trie, texts) = rest.split_at(size);
        let units = trie.chunks_exact(4).map(|unit| u32::from_le_bytes([unit[0], unit[1], unit[2], unit[3]])).collect();
        let texts = std::str::from_utf8(texts).map_err(|_| fault("the replacement texts are not UTF-8"))?;
        Ok(Charsmap { units, texts: texts.to_string() })
    }

    /// The table as [`Charsmap::parse`] reads it.
    pub fn to_bytes(&self) -> Vec<u8> {
        if self.units.is_empty() && self.texts.is_empty() {
            return Vec::new();
        }
        let size = (self.units.len() * 4) as u32;
        let units = self.units.iter().flat_map(|unit| unit.to_le_bytes());
        size.to_le_bytes().into_iter().chain(units).chain(self.texts.bytes()).collect()
    }

    /// Calls `found(length, value)` for every key that is a prefix of `text`, shortest first, until it returns `true`.
    fn prefixes(&self, text: &[u8], mut found: impl FnMut(usize, u32) -> bool) {
        let offset = |unit: u32| ((unit >> 10) << ((unit & (1 << 9)) >> 6)) as usize;
        let Some(&root) = self.units.first() else { return };
        let mut at = offset(root);
        for (index, &byte) in text.iter().enumerate() {
            if byte == 0 {
                return;
            }
            at ^= byte as usize;
            let Some(&unit) = self.units.get(at) else { return };
            if unit & ((1 << 31) | 0xFF) != u32::from(byte) {
                return;
            }
            at ^= offset(unit);
            if (unit >> 8) & 1 == 1 {
                let Some(&leaf) = self.units.get(at) else { return };
                if found(index + 1, leaf & ((1 << 31) - 1)) {
                    return;
                }
            }
        }
    }

    fn text(&self, value: u32) -> Option<&str> {
        self.texts.get(value as usize..)?.split('\0').next()
    }

    /// The replacement of the shortest key that `chunk` starts with: what the `tokenizers` library applies to a whole
    /// grapheme or character.
    fn shortest(&self, chunk: &str) -> Option<&str> {
        let mut value = None;
        self.prefixes(chunk.as_bytes(), |_, found| {
            value = Some(found);
            true
        });
        self.text(value?)
    }

    /// Bytes and replacement of the longest key that `text` starts with: SentencePiece's own rule.
    fn longest(&self, text: &str) -> Option<(usize, &str)> {
        let mut best = None;
        self.prefixes(text.as_bytes(), |len, value| {
            best = Some((len, value));
            false
        });
        let (len, value) = best.filter(|(len, _)| text.is_char_boundary(*len))?;
        Some((len, self.text(value)?))
    }

    /// Walks `text` by SentencePiece's rule and hands out (source characters, replacement).
    pub fn by_longest<'t>(&'t self, text: &'t str, mut part: impl FnMut(usize, &'t str)) {
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let (len, replacement) = match self.longest(rest) {
                Some((len, replacement)) => (len, replacement),
                None => (c.len_utf8(), &rest[..c.len_utf8()]),
            };
            part(rest[..len].chars().count(), replacement);
            rest = &rest[len..];
        }
    }

    /// Walks `text` by the rule of the `tokenizers` library, which differs from SentencePiece's: a grapheme of fewer
    /// than six bytes is looked up whole, otherwise each of its characters.
    pub fn by_grapheme<'t>(&'t self, text: &'t str, mut part: impl FnMut(usize, &'t str)) {
        for grapheme in text.graphemes(true) {
            if grapheme.len() < 6
                && let Some(replacement) = self.shortest(grapheme)
            {
                part(grapheme.chars().count(), replacement);
                continue;
            }
            for (at, c) in grapheme.char_indices() {
                let single = &grapheme[at..at + c.len_utf8()];
                part(1, self.shortest(single).unwrap_or(single));
            }
        }
    }
}
