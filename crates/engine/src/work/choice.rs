//! One choice on its way: drawn token by token.

use crate::error::Error;
use crate::generate::Handler;
use crate::logprobs::{Distribution, check_finite};
use crate::output::{Choice, Event, Finish};
use crate::request::Ready;
use crate::rng::Draws;
use crate::sampler::History;
use crate::sampler::chain::Memory;
use crate::stop::StopFilter;
use crate::vocabulary::{TextStream, Vocabulary};
use std::ops::ControlFlow;

pub(crate) struct Answer<'v> {
    pub choice: Choice,
    /// The decoder's tokens: the prompt, then the answer.
    tokens: Vec<u32>,
    memory: Memory,
    stream: Option<Box<dyn TextStream + 'v>>,
    filter: StopFilter,
    pub open: bool,
}

impl<'v> Answer<'v> {
    pub fn new(index: usize, ready: &Ready, vocabulary: Option<&'v dyn Vocabulary>) -> Answer<'v> {
        let choice = Choice {
            index,
            text: String::new(),
            token_ids: Vec::new(),
            logprobs: Vec::new(),
            finish: Finish::Cancelled,
            score: None,
        };
        Answer {
            choice,
            tokens: ready.prompt.token_ids.clone(),
            memory: ready.chain.memory(),
            stream: vocabulary.map(|vocabulary| vocabulary.stream(ready.options.report.skip_special)),
            filter: StopFilter::new(&ready.options.length.stop),
            open: true,
        }
    }

    /// Draws the next token from a row of logits. `Break`: the handler wants the request ended.
    pub fn advance(&mut self, ready: &Ready, row: &mut [f32], on: &mut Handler<'_>) -> Result<ControlFlow<()>, Error> {
        let id = self.choose(ready, row)?;
        Ok(self.take(id, ready, on))
    }

    fn choose(&mut self, ready: &Ready, row: &mut [f32]) -> Result<u32, Error> {
        let position = self.tokens.len();
        let raw = ready.options.report.logprobs.map(|_| row.to_vec());
        check_finite(row, position)?;
        let history = History {
            tokens: &self.tokens,
            prompt_len: ready.prompt.token_ids.len(),
            encoder: ready.encoder_ids(),
            draws: Draws { seed: ready.seed, choice: self.choice.index as u32 },
        };
        let id = ready.chain.choose(&mut self.memory, &history, row)?;
        if let (Some(raw), Some(count)) = (raw, ready.options.report.logprobs) {
            self.choice.logprobs.push(Distribution::new(&raw, position)?.of(id, count));
        }
        Ok(id)
    }

    /// Adds a chosen token to the answer, says so, and sees whether it ends the answer.
    fn take(&mut self, id: u32, ready: &Ready, on: &mut Handler<'_>) -> ControlFlow<()> {
        self.tokens.push(id);
        self.choice.token_ids.push(id);
        let generated = self.choice.token_ids.len();
        let mut finish = ready.ends(id);
        let mut text = String::new();
        if finish.is_none() {
            let piece = self.stream.as_mut().and_then(|stream| stream.push(id)).unwrap_or_default();
            (text, finish) = self.filter_text(&piece, generated < ready.options.length.min_tokens, ready);
            if finish.is_none() && generated >= ready.max_tokens {
                finish = Some(ready.at_max.clone());
            }
        }
        self.choice.text.push_str(&text);
        let event = Event::Token { choice: self.choice.index, id, text: &text, logprob: self.choice.logprobs.last() };
        let flow = on(event);
        let Some(finish) = finish else { return flow };
        let held = self.close(finish, ready);
        let finished = Event::Finished { choice: self.choice.index, text: &held, finish: &self.choice.finish };
        if on(finished).is_break() { ControlFlow::Break(()) } else { flow }
    }

    /// What of a piece of text may be shown, and the stop string it completes. With `unready` (before `min_tokens`)
    /// stop strings do not count.
    fn filter_text(&mut self, piece: &str, unready: bool, ready: &Ready) -> (String, Option<Finish>) {
        if unready {
            return (self.filter.pass(piece), None);
        }
        let released = self.filter.push(piece);
        let stop = released.stop.and_then(|stop| ready.options.length.stop.get(stop));
        (released.text, stop.map(|stop| Finish::StopText(stop.clone())))
    }

    /// Ends the choice. Adds to its text, and returns, what had been held back.
    pub fn close(&mut self, finish: Finish, ready: &Ready) -> String {
        self.open = false;
        self.choice.finish = finish;
        if let Finish::StopText(_) = self.choice.finish {
            return String::new();
        }
        let rest = self.stream.as_mut().and_then(|stream| stream.finish()).unwrap_or_default();
        let (mut held, stop) = self.filter_text(&rest, false, ready);
        match stop {
            // The decoder's last characters can complete a stop string; the answer had ended for another reason already,
            // but the text must not show it.
            Some(stop) => self.choice.finish = stop,
            None => held.push_str(&self.filter.finish()),
        }
        self.choice.text.push_str(&held);
        held
    }
}
