//! Text that is only data never becomes a control token.
//!
//! Special tokens are found before the model sees a text, so leaving that out is most of the work. But a model's own
//! vocabulary may hold the special tokens too: a unigram model would find `</s>` in the text by itself. Such a token
//! is cut in two, and the halves are encoded apart.

use crate::added::AddedTokens;
use crate::error::Error;
use crate::model::Model;
use tokenizers::Token;

/// Marks special tokens spelled in a message while the chat is rendered: it stands behind their first character, so
/// that they are not found. A code point that Unicode sets aside for use inside programs, and that is taken out of
/// messages beforehand.
pub(crate) const MARK: char = '\u{FDD0}';

/// A model whose tokens are checked.
pub(crate) struct Guard<'t> {
    pub model: &'t Model,
    pub added: &'t AddedTokens,
}

impl Guard<'_> {
    pub fn tokenize(&self, text: &str) -> Result<Vec<Token>, Error> {
        let tokens = self.model.tokenize(text)?;
        if !tokens.iter().any(|token| self.is_control(token, text)) {
            return Ok(tokens);
        }
        let mut checked = Vec::with_capacity(tokens.len() + 4);
        for token in tokens {
            let (start, end) = token.offsets;
            let spelled = text.get(start..end).filter(|_| self.is_control(&token, text));
            let first = spelled.and_then(|spelled| spelled.chars().next()).map_or(0, char::len_utf8);
            match spelled {
                // The halves are shorter, so this ends; special tokens that overlap are rare, so it ends soon.
                Some(spelled) if first < spelled.len() => {
                    for (at, half) in [(start, &spelled[..first]), (start + first, &spelled[first..])] {
                        checked.extend(self.tokenize(half)?.into_iter().map(|mut token| {
                            token.offsets = (token.offsets.0 + at, token.offsets.1 + at);
                            token
                        }));
                    }
                }
                // A special token of a single character: there is nothing to cut.
                Some(_) => checked.extend(self.model.unk().map(|unk| Token { id: unk, ..token })),
                None => checked.push(token),
            }
        }
        Ok(checked)
    }

    fn is_control(&self, token: &Token, text: &str) -> bool {
        if !self.added.is_special(token.id) {
            return false;
        }
        // The unknown token is a control token too, but standing for unknown text is its work.
        Some(token.id) != self.model.unk() || text.get(token.offsets.0..token.offsets.1) == self.added.content(token.id)
    }
}
