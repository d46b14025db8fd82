//! WordPiece (longest match first inside a word) and the plain word table.

use crate::error::{Error, shorten};
use crate::vocabulary::Vocabulary;
use tokenizers::Token;

/// WordPiece as BERT uses it: a word that cannot be covered by pieces is unknown as a whole.
#[derive(Debug)]
pub(crate) struct WordPiece {
    pub vocabulary: Vocabulary,
    pub unk_token: String,
    /// What the pieces inside a word start with, `##` as a rule.
    pub continuing_subword_prefix: String,
    /// A longer word is unknown.
    pub max_input_chars_per_word: usize,
}

impl WordPiece {
    pub fn tokenize(&self, text: &str) -> Result<Vec<Token>, Error> {
        let too_long = text.chars().nth(self.max_input_chars_per_word).is_some();
        match if too_long { None } else { self.pieces(text) } {
            Some(tokens) => Ok(tokens),
            None => Ok(vec![unknown(&self.vocabulary, &self.unk_token, text)?]),
        }
    }

    fn pieces(&self, text: &str) -> Option<Vec<Token>> {
        let mut tokens = Vec::new();
        let mut start = 0;
        let mut candidate = String::new();
        while start < text.len() {
            let prefix = if start > 0 { self.continuing_subword_prefix.as_str() } else { "" };
            // No piece is longer than the longest token, so the search from the right starts there: linear in the word.
            let mut end = text.len().min(start + self.vocabulary.longest());
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            candidate.clear();
            candidate.push_str(prefix);
            candidate.push_str(&text[start..end]);
            let id = loop {
                if end <= start {
                    return None;
                }
                if let Some(id) = self.vocabulary.id(&candidate) {
                    break id;
                }
                end -= candidate.pop()?.len_utf8();
            };
            tokens.push(Token::new(id, candidate.clone(), (start, end)));
            start = end;
        }
        Some(tokens)
    }
}

/// Whole words only.
#[derive(Debug)]
pub(crate) struct WordLevel {
    pub vocabulary: Vocabulary,
    pub unk_token: String,
}

impl WordLevel {
    pub fn tokenize(&self, text: &str) -> Result<Vec<Token>, Error> {
        Ok(vec![match self.vocabulary.id(text) {
            Some(id) => Token::new(id, text.to_string(), (0, text.len())),
            None => unknown(&self.vocabulary, &self.unk_token, text)?,
        }])
    }
}

fn unknown(vocabulary: &Vocabulary, unk_token: &str, text: &str) -> Result<Token, Error> {
    match vocabulary.id(unk_token) {
        Some(id) => Ok(Token::new(id, unk_token.to_string(), (0, text.len()))),
        None => Err(Error::Encode {
            problem: format!(
                "`{}` is not covered by the vocabulary, and the unknown token `{}` is not in it",
                shorten(text),
                shorten(unk_token)
            ),
        }),
    }
}
