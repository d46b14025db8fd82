//! The tokenizer as the loops see it.

use crate::vocabulary::{TextStream, Vocabulary};
use attend_text::{DecodeStream, EncodeOptions, Tokenizer};

impl Vocabulary for Tokenizer {
    fn stream(&self, skip_special: bool, shown: &[u32]) -> Box<dyn TextStream + '_> {
        Box::new(Tokenizer::stream(self, skip_special).showing(shown))
    }

    fn text(&self, id: u32) -> Option<String> {
        self.token_bytes(id).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    fn bytes(&self, id: u32) -> Option<Vec<u8>> {
        self.token_bytes(id)
    }

    fn is_special(&self, id: u32) -> bool {
        Tokenizer::is_special(self, id)
    }

    fn tokens(&self, text: &str) -> Vec<u32> {
        // A text that cannot be encoded is no sequence of tokens.
        self.encode(text, EncodeOptions::default()).map(|encoding| encoding.ids).unwrap_or_default()
    }

    fn size(&self) -> usize {
        self.vocab_size()
    }
}

impl TextStream for DecodeStream<'_> {
    fn push(&mut self, id: u32) -> Option<String> {
        DecodeStream::push(self, id)
    }

    fn finish(&mut self) -> Option<String> {
        DecodeStream::finish(self)
    }
}
