//! What the loops need of a model: rows of logits for tokens that continue a sequence.

use crate::error::Error;
use crate::variant::Variant;
use attend_model::cost::Footprint;

/// Something that gives logits: a model with its cache, or a script in tests.
pub trait LogitsSource {
    /// One sequence's past: its cache, and the encoded source where there is one.
    type State;

    /// Tokens of the output vocabulary: the length of every row.
    fn vocab(&self) -> usize;

    /// Tokens of the input vocabulary of the decoder (or only) stack.
    fn input_vocab(&self) -> usize;

    /// Tokens that the encoder can read, where there is one.
    fn source_vocab(&self) -> usize {
        self.input_vocab()
    }

    /// A sequence without tokens. `prompt_len` is how many will be fed before the first is generated, which
    /// length-dependent positions need to know; `encoder_ids` is the source of an encoder-decoder.
    fn start(&self, prompt_len: usize, encoder_ids: Option<&[u32]>) -> Result<Self::State, Error>;

    /// Several sequences without tokens, whose sources may be encoded together.
    fn start_all(&self, starts: &[Start<'_>]) -> Result<Vec<Self::State>, Error> {
        let one = |start: &Start<'_>| match start.variant {
            None => self.start(start.prompt_len, start.encoder_ids),
            Some(_) => Err(Error::Unsupported("this source of logits has no variants".into())),
        };
        starts.iter().map(one).collect()
    }

    /// A second sequence with the same past. Neither notices what is fed to the other.
    fn fork(&self, state: &Self::State) -> Self::State;

    /// Forgets the tokens of a sequence from `len` on. What is fed afterwards gives the rows that it gives to a sequence that
    /// never held them.
    fn truncate(&self, state: &mut Self::State, len: usize);

    /// Gives back what no token from here on depends on: those that are held now will not be forgotten any more. Nothing else
    /// can be told from it.
    fn pass(&self, _state: &mut Self::State) {}

    /// What sequences of this source hold; unless it says otherwise a byte for each token.
    fn footprint(&self) -> Footprint {
        Footprint::default()
    }

    /// How many tokens may be fed that are perhaps forgotten again.
    fn reach(&self, _state: &Self::State) -> usize {
        usize::MAX
    }

    /// Feeds tokens to several sequences at once. For each token from [`Feed::rows_from`] on, `sink` gets the row of
    /// logits for the token that follows it, those of a feed in order.
    fn feed(&self, feeds: &mut [Feed<'_, Self::State>], sink: &mut RowSink<'_>) -> Result<(), Error>;
}

/// How a sequence begins; see [`LogitsSource::start`].
#[derive(Debug, Clone, Copy)]
pub struct Start<'a> {
    pub prompt_len: usize,
    pub encoder_ids: Option<&'a [u32]>,
    /// What it is computed with in place of the source's own model.
    pub variant: Option<&'a Variant>,
}

/// Takes the index of the feed, the index of the token in it, and the row `[V]`.
pub type RowSink<'a> = dyn FnMut(usize, usize, &[f32]) -> Result<(), Error> + 'a;

/// One sequence's part of a step.
#[derive(Debug)]
pub struct Feed<'a, S> {
    pub state: &'a mut S,
    /// The tokens that continue the sequence; at least one.
    pub tokens: &'a [u32],
    /// Index of the first token whose row is wanted; `tokens.len()` for none.
    pub rows_from: usize,
}
