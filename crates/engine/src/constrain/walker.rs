//! What a matcher asks of the library: a trait, so that tests can put a slow one, or one that panics, in its place.

use llguidance::TokenParser;
use llguidance::api::StopReason;
use llguidance::toktrie::SimpleVob;

/// A place in a grammar. After an error it is of no more use.
pub(crate) trait Walker: Send {
    /// The tokens that may come next; the end alone where nothing else may.
    ///
    /// # Errors
    /// The library's words about a grammar that is too costly here.
    fn look(&mut self) -> Result<SimpleVob, String>;

    /// Goes on by a token.
    ///
    /// # Errors
    /// As [`Walker::look`].
    fn follow(&mut self, id: u32) -> Result<(), String>;

    /// Nothing more may follow.
    fn is_complete(&self) -> bool;

    /// Another one at the same place, with a lexer of its own: states that one's text has made must not count for another's
    /// limits.
    fn fork(&self) -> Box<dyn Walker>;

    /// Bytes of its own, about: those of the lexer's tables, which grow on the way.
    fn bytes(&self) -> u64;
}

/// The library's parser.
pub(super) struct Grammar(TokenParser);

impl Grammar {
    pub fn new(mut parser: TokenParser) -> Grammar {
        if parser.is_fresh() {
            parser.start_without_prompt();
        }
        Grammar(parser)
    }
}

impl Walker for Grammar {
    fn look(&mut self) -> Result<SimpleVob, String> {
        if self.0.stop_reason() != StopReason::NotStopped {
            return Ok(self.0.token_env.tok_trie().eos_token_set());
        }
        self.0.compute_mask().map_err(|error| self.0.augment_err(error))
    }

    fn follow(&mut self, id: u32) -> Result<(), String> {
        let followed = self.0.consume_token(id).map(|_| ());
        let checked = followed.and_then(|()| self.0.check_stop().map(|_| ()));
        checked.map_err(|error| self.0.augment_err(error))
    }

    fn is_complete(&self) -> bool {
        matches!(self.0.stop_reason(), StopReason::NoExtension | StopReason::EndOfSentence)
    }

    fn fork(&self) -> Box<dyn Walker> {
        Box::new(Grammar(self.0.deep_clone()))
    }

    fn bytes(&self) -> u64 {
        self.0.parser.lexer_stats().num_bytes as u64
    }
}
