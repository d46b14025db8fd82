//! The generation loop: read the prompt, then choose, feed, choose, for all choices of a request together.

use crate::error::Error;
use crate::logprobs::{Distribution, TokenLogprob};
use crate::options::GenerateOptions;
use crate::output::{Choice, Event, Finish, Output, Prompt, Timings, Usage};
use crate::request::{Ready, Surroundings};
use crate::rng::Draws;
use crate::sampler::History;
use crate::sampler::chain::Memory;
use crate::source::{Feed, LogitsSource};
use crate::stop::StopFilter;
use crate::vocabulary::{TextStream, Vocabulary};
use std::ops::ControlFlow;
use std::time::Instant;

/// Takes events; `Break` ends the work.
pub type Handler<'a> = dyn FnMut(Event<'_>) -> ControlFlow<()> + 'a;

/// Answers a prompt. With [`crate::Beam::num_beams`] above 1 by beam search ([`crate::search`]).
///
/// # Errors
/// Parameters and prompts that cannot be served (before any work), and non-finite logits.
pub fn generate<S: LogitsSource>(
    source: &S,
    vocabulary: Option<&dyn Vocabulary>,
    around: &Surroundings,
    (prompt, options): (&Prompt, &GenerateOptions),
    on: &mut Handler<'_>,
) -> Result<Output, Error> {
    let ready = Ready::new(source, vocabulary, around, prompt, options)?;
    if options.beam.num_beams > 1 && ready.max_tokens > 0 {
        return crate::search::search(source, vocabulary, ready, on);
    }
    let started = Instant::now();
    let read = read_prompt(source, &ready, on)?;
    let prompt_seconds = started.elapsed().as_secs_f64();
    let mut run = Run { source, ready: &ready, states: Vec::new(), answers: Vec::new(), cancelled: read.cancelled };
    let answering = Instant::now();
    if ready.max_tokens > 0 {
        run.open(read.state, vocabulary);
        run.all_choose(vec![read.last_row; run.answers.len()], on)?;
        run.run_out(on)?;
    }
    let choices: Vec<Choice> = run.answers.into_iter().map(|answer| answer.choice).collect();
    Ok(finish_output(&ready, choices, read.logprobs, (prompt_seconds, answering.elapsed().as_secs_f64())))
}

/// Puts the parts of an answer together.
pub(crate) fn finish_output(
    ready: &Ready<'_>,
    choices: Vec<Choice>,
    prompt_logprobs: Option<Vec<Option<TokenLogprob>>>,
    (prompt_seconds, seconds): (f64, f64),
) -> Output {
    let prompt_tokens = ready.prompt.token_ids.len() + ready.encoder_ids().len();
    let completion_tokens = choices.iter().map(|choice| choice.token_ids.len()).sum();
    Output {
        choices,
        prompt_token_ids: ready.prompt.token_ids.clone(),
        prompt_logprobs,
        usage: Usage { prompt_tokens, completion_tokens, total_tokens: prompt_tokens + completion_tokens },
        timings: Timings::new(prompt_tokens, prompt_seconds, completion_tokens, seconds),
        seed: ready.seed,
        notices: ready.notices.clone(),
    }
}

/// A prompt that has been read.
pub(crate) struct Read<State> {
    pub state: State,
    /// The logits for the first token of the answer.
    pub last_row: Vec<f32>,
    pub logprobs: Option<Vec<Option<TokenLogprob>>>,
    pub cancelled: bool,
}

/// Feeds the prompt in chunks.
pub(crate) fn read_prompt<S: LogitsSource>(
    source: &S,
    ready: &Ready<'_>,
    on: &mut Handler<'_>,
) -> Result<Read<S::State>, Error> {
    let tokens = &ready.prompt.token_ids;
    let wanted = ready.options.report.prompt_logprobs;
    let mut read = Read {
        state: source.start(tokens.len(), ready.prompt.encoder_ids.as_deref())?,
        last_row: Vec::new(),
        logprobs: wanted.map(|_| vec![None]),
        cancelled: false,
    };
    let mut done = 0;
    for chunk in tokens.chunks(ready.chunk) {
        let last = done + chunk.len() == tokens.len();
        let rows_from = match (wanted, last) {
            (Some(_), _) => 0,
            (None, true) => chunk.len() - 1,
            (None, false) => chunk.len(),
        };
        let (logprobs, last_row) = (&mut read.logprobs, &mut read.last_row);
        let mut take = |_: usize, index: usize, row: &[f32]| {
            let position = done + index + 1;
            match tokens.get(position) {
                None => *last_row = row.to_vec(),
                Some(&id) => {
                    if let Some(list) = logprobs {
                        list.push(Some(Distribution::new(row, position)?.of(id, wanted.unwrap_or(0))));
                    }
                }
            }
            Ok(())
        };
        source.feed(&mut [Feed { state: &mut read.state, tokens: chunk, rows_from }], &mut take)?;
        done += chunk.len();
        if on(Event::Prompt { done, total: tokens.len() }).is_break() {
            read.cancelled = true;
            break;
        }
    }
    Ok(read)
}

/// One choice on its way.
struct Answer<'v> {
    choice: Choice,
    /// The decoder's tokens: the prompt, then the answer.
    tokens: Vec<u32>,
    memory: Memory,
    stream: Option<Box<dyn TextStream + 'v>>,
    filter: StopFilter,
    open: bool,
}

struct Run<'a, 'v, S: LogitsSource> {
    source: &'a S,
    ready: &'a Ready<'a>,
    /// One a choice, in the same order.
    states: Vec<S::State>,
    answers: Vec<Answer<'v>>,
    cancelled: bool,
}

impl<'v, S: LogitsSource> Run<'_, 'v, S> {
    /// Begins `n` choices, each with a fork of the prompt's state.
    fn open(&mut self, state: S::State, vocabulary: Option<&'v dyn Vocabulary>) {
        let options = self.ready.options;
        for index in 0..options.length.n {
            self.answers.push(Answer {
                choice: Choice {
                    index,
                    text: String::new(),
                    token_ids: Vec::new(),
                    logprobs: Vec::new(),
                    finish: Finish::Cancelled,
                    score: None,
                },
                tokens: self.ready.prompt.token_ids.clone(),
                memory: self.ready.chain.memory(),
                stream: vocabulary.map(|vocabulary| vocabulary.stream(options.report.skip_special)),
                filter: StopFilter::new(&options.length.stop),
                open: true,
            });
        }
        self.states = (1..options.length.n).map(|_| self.source.fork(&state)).collect();
        self.states.push(state);
    }

    /// Feeds each open choice's last token and lets it choose the next, until none is open.
    fn run_out(&mut self, on: &mut Handler<'_>) -> Result<(), Error> {
        while !self.cancelled && self.answers.iter().any(|answer| answer.open) {
            let mut feeds: Vec<Feed<'_, S::State>> = Vec::new();
            for (answer, state) in self.answers.iter().zip(&mut self.states).filter(|(answer, _)| answer.open) {
                let last = answer.tokens.len() - 1;
                feeds.push(Feed { state, tokens: &answer.tokens[last..], rows_from: 0 });
            }
            let mut rows = vec![Vec::new(); feeds.len()];
            self.source.feed(&mut feeds, &mut |feed, _, row| {
                rows[feed] = row.to_vec();
                Ok(())
            })?;
            self.all_choose(rows, on)?;
        }
        // Where the handler ended the work, what had been held back is still part of what was produced.
        for answer in self.answers.iter_mut().filter(|answer| answer.open) {
            let held = answer.close(Finish::Cancelled, self.ready);
            answer.choice.text.push_str(&held);
        }
        Ok(())
    }

    /// One row for each open choice, in their order.
    fn all_choose(&mut self, rows: Vec<Vec<f32>>, on: &mut Handler<'_>) -> Result<(), Error> {
        if self.cancelled {
            return Ok(());
        }
        for (answer, mut row) in self.answers.iter_mut().filter(|answer| answer.open).zip(rows) {
            let id = answer.choose(self.ready, &mut row)?;
            if answer.take(id, self.ready, on).is_break() {
                self.cancelled = true;
                break;
            }
        }
        Ok(())
    }
}

impl Answer<'_> {
    fn choose(&mut self, ready: &Ready<'_>, row: &mut [f32]) -> Result<u32, Error> {
        let position = self.tokens.len();
        let raw = ready.options.report.logprobs.map(|_| row.to_vec());
        crate::logprobs::check_finite(row, position)?;
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
    fn take(&mut self, id: u32, ready: &Ready<'_>, on: &mut Handler<'_>) -> ControlFlow<()> {
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
        self.choice.text.push_str(&held);
        let finished = Event::Finished { choice: self.choice.index, text: &held, finish: &self.choice.finish };
        if on(finished).is_break() { ControlFlow::Break(()) } else { flow }
    }

    /// What of a piece of text may be shown, and the stop string it completes. With `unready` (before `min_tokens`)
    /// stop strings do not count.
    fn filter_text(&mut self, piece: &str, unready: bool, ready: &Ready<'_>) -> (String, Option<Finish>) {
        if unready {
            return (self.filter.pass(piece), None);
        }
        let released = self.filter.push(piece);
        let stop = released.stop.and_then(|stop| ready.options.length.stop.get(stop));
        (released.text, stop.map(|stop| Finish::StopText(stop.clone())))
    }

    /// Ends the choice; returns the text that was held back.
    fn close(&mut self, finish: Finish, ready: &Ready<'_>) -> String {
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
        held
    }
}
