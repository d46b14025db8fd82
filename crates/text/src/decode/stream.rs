//! Decoding token by token.

use super::Step;
use super::bytes::Assembler;
use super::steps::State;
use crate::Tokenizer;

/// Most bytes held back: many times what one token holds, so that a stream of broken characters still flows.
const MAX_HELD: usize = 256;

/// An incremental decoder: the texts it hands out, put together, are what [`Tokenizer::decode`] gives for the same ids.
///
/// It never splits a character: while the newest token ends inside one, or in U+FFFD, which may be the same, it is held
/// back, up to [`MAX_HELD`] bytes. Where the tokenizer's own rules look ahead (a suffix that the last token loses), the
/// token that they look at is held back too.
#[derive(Debug, Clone)]
pub struct DecodeStream<'t> {
    tokenizer: &'t Tokenizer,
    skip_special: bool,
    /// Special tokens that are not skipped.
    shown: Vec<u32>,
    states: Vec<State>,
    assembler: Assembler,
    /// Complete characters that wait for the end of the token's last one.
    held: String,
    /// Whether a token has come, for tokenizers without a decoder, which join tokens with spaces.
    started: bool,
}

impl<'t> DecodeStream<'t> {
    pub(crate) fn new(tokenizer: &'t Tokenizer, skip_special: bool) -> DecodeStream<'t> {
        let states = vec![State::default(); tokenizer.decoder().steps.len()];
        DecodeStream {
            tokenizer,
            skip_special,
            shown: Vec::new(),
            states,
            assembler: Assembler::default(),
            held: String::new(),
            started: false,
        }
    }

    /// The same, in which these special tokens leave their text though others are skipped.
    pub fn showing(self, ids: &[u32]) -> DecodeStream<'t> {
        DecodeStream { shown: ids.to_vec(), ..self }
    }

    /// Takes one id; gives the text that it completes, if any. Ids outside the vocabulary give nothing.
    pub fn push(&mut self, id: u32) -> Option<String> {
        let mut text = std::mem::take(&mut self.held);
        self.feed(id, &mut text);
        let open = self.assembler.is_open() || text.ends_with('\u{FFFD}');
        if open && text.len() <= MAX_HELD {
            self.held = text;
            return None;
        }
        (!text.is_empty()).then_some(text)
    }

    /// The end: what was held back. An unfinished character becomes one U+FFFD.
    pub fn finish(&mut self) -> Option<String> {
        let mut text = std::mem::take(&mut self.held);
        self.flush(&mut text);
        (!text.is_empty()).then_some(text)
    }

    pub(crate) fn feed(&mut self, id: u32, text: &mut String) {
        if self.skip_special && self.tokenizer.is_special(id) && !self.shown.contains(&id) {
            return;
        }
        if let Some(token) = self.tokenizer.spelling(id) {
            self.feed_piece(token, text);
        }
    }

    pub(crate) fn feed_piece(&mut self, token: &str, text: &mut String) {
        let steps = &self.tokenizer.decoder().steps;
        if steps.is_empty() && self.started {
            text.push(' ');
        }
        self.started = true;
        let assembler = &mut self.assembler;
        run(steps, &mut self.states, token.as_bytes().to_vec(), false, &mut |bytes| assembler.push(&bytes, text));
    }

    pub(crate) fn flush(&mut self, text: &mut String) {
        let steps = &self.tokenizer.decoder().steps;
        let mut joined = false;
        for index in 0..steps.len() {
            let (head, tail) = self.states.split_at_mut(index + 1);
            let mut outputs = Vec::new();
            steps[index].finish(&mut head[index], joined, &mut |token| outputs.push(token));
            joined |= steps[index].joins();
            let assembler = &mut self.assembler;
            for token in outputs {
                run(&steps[index + 1..], tail, token, joined, &mut |bytes| assembler.push(&bytes, text));
            }
        }
        self.assembler.finish(text);
    }
}

/// Sends a token through the steps. `joined`: it is a fragment.
fn run(steps: &[Step], states: &mut [State], token: Vec<u8>, joined: bool, out: &mut dyn FnMut(Vec<u8>)) {
    let (Some((step, steps)), Some((state, states))) = (steps.split_first(), states.split_first_mut()) else {
        return out(token);
    };
    let next = joined || step.joins();
    step.push(state, token, joined, &mut |token| run(steps, states, token, next, out));
}
