//! A model whose pieces have their ids in another table.

use super::Model;
use crate::error::Error;
use crate::vocabulary::Vocabulary;
use tokenizers::Token;

/// The inner model cuts the text; the vocabulary numbers the pieces.
#[derive(Debug)]
pub(crate) struct Mapped {
    pub inner: Model,
    pub vocabulary: Vocabulary,
    pub unk: u32,
}

impl Mapped {
    pub fn tokenize(&self, text: &str) -> Result<Vec<Token>, Error> {
        let mut tokens = self.inner.tokenize(text)?;
        for token in &mut tokens {
            token.id = self.vocabulary.id(&token.value).unwrap_or(self.unk);
        }
        Ok(tokens)
    }
}
