//! One choice on its way: drawn token by token.

use super::guess::{Guess, Price, look_up};
use super::strand::Wanted;
use crate::constrain::{Beside, Held, Matcher};
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
    /// The decoder's tokens: the prompt, then the answer, then guesses.
    pub tokens: Vec<u32>,
    pub guess: Guess,
    memory: Memory,
    stream: Option<Box<dyn TextStream + 'v>>,
    filter: StopFilter,
    /// Where the choice stands in what the request wants it to be.
    matcher: Option<Held>,
    /// The same behind the guesses of a draft model.
    ahead: Option<Matcher>,
    pub open: bool,
}

impl<'v> Answer<'v> {
    pub fn new(
        index: usize,
        ready: &Ready,
        vocabulary: Option<&'v dyn Vocabulary>,
        matcher: Option<Matcher>,
    ) -> Answer<'v> {
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
            guess: Guess::new(),
            memory: ready.chain.memory(),
            stream: vocabulary.map(|vocabulary| ready.options.report.stream(vocabulary)),
            filter: StopFilter::new(&ready.options.length.stop),
            matcher: matcher.map(Held::new),
            ahead: None,
            open: true,
        }
    }

    /// What is fed of it: everything, guesses included.
    pub fn wanted(&self) -> Wanted<'_> {
        let list = &self.tokens;
        Wanted { list, offset: 0, until: list.len(), guesses: self.guess.count, top: None }
    }

    /// Takes back what was guessed and not compared.
    pub fn forget_guesses(&mut self) {
        self.tokens.truncate(self.tokens.len() - std::mem::take(&mut self.guess.count));
        self.ahead = None;
    }

    /// Whether it is known which tokens may come next, or can be known in a moment.
    pub fn is_ready(&mut self) -> bool {
        self.matcher.as_mut().is_none_or(Held::is_here)
    }

    /// Waits until it is.
    pub fn wait(&mut self) {
        if let Some(matcher) = &mut self.matcher {
            matcher.here();
        }
    }

    /// A matcher that takes long: its choice guesses nothing, as every guess would need a mask of its own.
    fn is_slow(&self) -> bool {
        self.matcher.as_ref().is_some_and(|held| held.get().is_none_or(Matcher::is_slow))
    }

    /// Draws the next token from the first row of logits, and as long as it is the one that was guessed one more from the
    /// next row. `Break`: the handler wants the request ended.
    pub fn advance(
        &mut self,
        ready: &Ready,
        (rows, beside): (Vec<Vec<f32>>, &Beside),
        on: &mut Handler<'_>,
    ) -> Result<ControlFlow<()>, Error> {
        let guesses = self.tokens.split_off(self.tokens.len() - std::mem::take(&mut self.guess.count));
        self.ahead = None;
        let (mut compared, mut right) = (0, 0);
        let mut flow = ControlFlow::Continue(());
        for mut row in rows {
            let id = self.choose(ready, &mut row)?;
            let complete = self.follow(id, ready)?;
            flow = self.take(id, complete, ready, on);
            let guessed = guesses.get(right) == Some(&id);
            compared = guesses.len();
            right += usize::from(guessed);
            if flow.is_break() || !self.open || !guessed {
                break;
            }
            if self.is_slow() {
                // The others need not wait for what is left; it is fed again.
                compared = right;
                break;
            }
        }
        self.guess.learn(compared, right);
        if let Some(matcher) = self.matcher.as_mut().filter(|_| self.open) {
            matcher.send(beside);
        }
        Ok(flow)
    }

    fn choose(&mut self, ready: &Ready, row: &mut [f32]) -> Result<u32, Error> {
        let position = self.tokens.len();
        let raw = ready.options.report.logprobs.map(|_| row.to_vec());
        check_finite(row, position)?;
        if !is_outside(&self.tokens, ready)
            && let Some(matcher) = &mut self.matcher
        {
            matcher.here().mask(position, &ends(ready), row)?;
        }
        let id = ready.chain.choose(&mut self.memory, &history(&self.tokens, ready, self.choice.index), row)?;
        if let (Some(raw), Some(count)) = (raw, ready.options.report.logprobs) {
            self.choice.logprobs.push(Distribution::new(&raw, position)?.of(id, count));
        }
        Ok(id)
    }

    /// Goes on to a chosen token in what the answer must be. `true`: nothing may follow it.
    fn follow(&mut self, id: u32, ready: &Ready) -> Result<bool, Error> {
        let Some(matcher) = &mut self.matcher else { return Ok(false) };
        if ready.ends(id).is_some() || is_outside(&self.tokens, ready) {
            return Ok(false);
        }
        let matcher = matcher.here();
        matcher.follow(self.tokens.len(), id)?;
        Ok(matcher.is_complete())
    }

    /// How many more tokens may be guessed of at most `most`: none behind the last one that can be chosen.
    fn room(&self, ready: &Ready, most: usize) -> usize {
        if self.is_slow() {
            return 0;
        }
        let possible = (ready.max_tokens - self.choice.token_ids.len()).saturating_sub(1);
        most.min(self.guess.trust).min(possible).saturating_sub(self.guess.count)
    }

    /// Decides whether guesses pay, where that is not decided by hand.
    pub fn consider(&mut self, ready: &Ready, price: Option<Price>) {
        if ready.options.speculation.guess_when_it_pays {
            self.guess.consider(price);
        }
    }

    /// Guesses from the text so far.
    pub fn look_up(&mut self, ready: &Ready, most: usize) {
        let wanted = &ready.options.speculation;
        let most = self.room(ready, most.min(wanted.looked_up()).min(self.guess.lookup.allowed));
        let guesses = look_up(&self.tokens, wanted.max_matching_ngram_size, most);
        self.guess.count = guesses.len();
        self.guess.closed = !guesses.is_empty();
        self.guess.drafted = false;
        self.tokens.extend(guesses);
    }

    /// Whether a draft model is to guess one more token.
    pub fn wants_draft(&self, ready: &Ready, most: usize) -> bool {
        let most = most.min(ready.options.speculation.num_assistant_tokens).min(self.guess.draft.allowed);
        !self.guess.closed && self.room(ready, most) > 0
    }

    /// Guesses what a draft model's row says here: the same rules and the same random number choose from it as from the row
    /// that it stands for.
    pub fn guess_from(&mut self, ready: &Ready, mut row: Vec<f32>, vocab: usize) {
        row.resize(vocab, f32::NEG_INFINITY);
        match self.guess_one(ready, &mut row) {
            Ok((id, complete)) => {
                self.tokens.push(id);
                self.guess.count += 1;
                self.guess.drafted = true;
                self.guess.closed = complete || ready.ends(id).is_some();
            }
            // A row that leaves no token is no guess.
            Err(_) => self.guess.closed = true,
        }
    }

    /// A guess, and whether nothing may follow it.
    fn guess_one(&mut self, ready: &Ready, row: &mut [f32]) -> Result<(u32, bool), Error> {
        let position = self.tokens.len();
        let outside = is_outside(&self.tokens, ready);
        if self.ahead.is_none() {
            self.ahead = self.matcher.as_ref().and_then(Held::get).map(Matcher::fork);
        }
        let mut matcher = self.ahead.as_mut().filter(|_| !outside);
        if let Some(matcher) = &mut matcher {
            matcher.mask(position, &ends(ready), row)?;
        }
        let mut memory = self.memory.clone();
        let id = ready.chain.choose(&mut memory, &history(&self.tokens, ready, self.choice.index), row)?;
        let Some(matcher) = matcher.filter(|_| ready.ends(id).is_none()) else { return Ok((id, false)) };
        matcher.follow(position, id)?;
        Ok((id, matcher.is_complete()))
    }

    /// Adds a chosen token to the answer, says so, and sees whether it ends the answer.
    /// With `complete` nothing may follow.
    fn take(&mut self, id: u32, complete: bool, ready: &Ready, on: &mut Handler<'_>) -> ControlFlow<()> {
        self.tokens.push(id);
        self.choice.token_ids.push(id);
        let generated = self.choice.token_ids.len();
        let mut finish = ready.ends(id);
        let mut text = String::new();
        if finish.is_none() {
            let piece = self.stream.as_mut().and_then(|stream| stream.push(id)).unwrap_or_default();
            (text, finish) = self.filter_text(&piece, generated < ready.options.length.min_tokens, ready);
            if finish.is_none() && complete {
                finish = Some(Finish::Complete);
            }
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

/// The tokens that end an answer.
fn ends(ready: &Ready) -> Vec<u32> {
    [ready.end_ids.as_slice(), &ready.options.length.stop_ids].concat()
}

/// A first token that is forced is no part of what the answer must be.
fn is_outside(tokens: &[u32], ready: &Ready) -> bool {
    tokens.len() == 1 && ready.options.constraints.forced_bos_token_id.is_some()
}

/// What a row is chosen from beside itself: the sequence, and the random number of its next place.
fn history<'h>(tokens: &'h [u32], ready: &'h Ready, choice: usize) -> History<'h> {
    History {
        tokens,
        prompt_len: ready.prompt.token_ids.len(),
        encoder: ready.encoder_ids(),
        draws: Draws { seed: ready.seed, choice: choice as u32 },
    }
}
