//! What the loops need of a tokenizer.

use crate::sampler::dry::Breakers;

/// Token ids to text.
pub trait Vocabulary {
    /// A decoder for one answer. Special tokens that are skipped leave no text, but for those that are `shown`.
    fn stream(&self, skip_special: bool, shown: &[u32]) -> Box<dyn TextStream + '_>;

    /// The text of one token alone, where it has any.
    fn text(&self, id: u32) -> Option<String>;

    /// The bytes that a token adds in the middle of a text, where it has any.
    fn bytes(&self, id: u32) -> Option<Vec<u8>>;

    /// A control token, which is no text.
    fn is_special(&self, _id: u32) -> bool {
        false
    }

    /// The tokens of a text, without special tokens around it.
    fn tokens(&self, text: &str) -> Vec<u32>;

    fn size(&self) -> usize;
}

/// Decodes an answer token by token.
pub trait TextStream {
    /// Takes a token; gives the text that is certain now.
    fn push(&mut self, id: u32) -> Option<String>;

    /// The end of the answer: what was held back.
    fn finish(&mut self) -> Option<String>;
}

/// The token sequences that spell `texts`: every token that contains one, and, where a text begins at the end of a token,
/// that token followed by the tokens of the rest.
pub fn breakers(vocabulary: &dyn Vocabulary, texts: &[String]) -> Breakers {
    let texts: Vec<&str> = texts.iter().map(String::as_str).filter(|text| !text.is_empty()).collect();
    let mut sequences = Vec::new();
    for id in 0..vocabulary.size() as u32 {
        let Some(token) = vocabulary.text(id) else { continue };
        for text in &texts {
            if token.contains(text) {
                sequences.push(vec![id]);
                continue;
            }
            let begun = text.char_indices().map(|(at, _)| at).skip(1).filter(|&at| token.ends_with(&text[..at]));
            for at in begun {
                let rest = vocabulary.tokens(&text[at..]);
                sequences.push([vec![id], rest].concat());
            }
        }
    }
    Breakers::new(sequences)
}
