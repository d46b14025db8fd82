//! Reading prompts and writing tokens with a cache, as the engine's own loops do it.

use super::error::Error;
use super::prompts::Prompts;
use super::rows::Clock;
use attend_engine::logprobs::check_finite;
use attend_engine::model_source::{ModelSource, SequenceState};
use attend_engine::rng::Draws;
use attend_engine::sampler::History;
use attend_engine::sampler::chain::{Chain, Memory, Rules};
use attend_engine::source::{Feed, LogitsSource};
use attend_engine::{Error as EngineError, GenerateOptions};
use std::time::Instant;

/// A model that gives logits, and the steps in which it reads.
#[derive(Clone, Copy)]
pub(super) struct Decoder<'a> {
    pub source: &'a ModelSource<'a>,
    pub chunk: usize,
    pub prompts: Prompts,
}

/// One sequence on its way.
pub(super) struct Stream {
    state: SequenceState,
    tokens: Vec<u32>,
    index: u32,
}

impl Decoder<'_> {
    /// Seconds of reading `tokens` tokens behind `depth` others.
    pub fn prefill(&self, (tokens, depth): (usize, usize), clock: &Clock<'_>) -> Result<Vec<f64>, Error> {
        let all = self.prompts.tokens(0, depth + tokens);
        let (past, prompt) = all.split_at(depth);
        let mut base = self.source.start(all.len(), None)?;
        self.read(&mut base, past)?;
        self.read(&mut self.source.fork(&base), &prompt[..tokens.min(self.chunk)])?;
        clock.repeat(|| {
            let mut state = self.source.fork(&base);
            let started = Instant::now();
            self.read(&mut state, prompt)?;
            Ok(started.elapsed().as_secs_f64())
        })
    }

    /// Seconds of writing `tokens` tokens in each of `batch` sequences, behind `depth` others in each.
    pub fn decode(&self, (tokens, depth, batch): (usize, usize, usize), clock: &Clock<'_>) -> Result<Vec<f64>, Error> {
        let mut streams = Vec::with_capacity(batch);
        for index in 0..batch {
            let drawn = self.prompts.tokens(index, depth + 1);
            let mut state = self.source.start(drawn.len(), None)?;
            self.read(&mut state, drawn.get(..depth).unwrap_or_default())?;
            streams.push(Stream { state, tokens: drawn, index: index as u32 });
        }
        let fork = |stream: &Stream| Stream {
            state: self.source.fork(&stream.state),
            tokens: stream.tokens.clone(),
            index: stream.index,
        };
        let forks = || streams.iter().map(fork).collect::<Vec<_>>();
        self.write(&mut forks(), tokens.min(2))?;
        clock.repeat(|| {
            let mut streams = forks();
            let started = Instant::now();
            self.write(&mut streams, tokens)?;
            Ok(started.elapsed().as_secs_f64())
        })
    }

    /// Feeds a prompt step by step; logits are made for its last token.
    fn read(&self, state: &mut SequenceState, tokens: &[u32]) -> Result<(), Error> {
        let mut done = 0;
        for chunk in tokens.chunks(self.chunk.max(1)) {
            done += chunk.len();
            let rows_from = if done == tokens.len() { chunk.len() - 1 } else { chunk.len() };
            let mut last = Vec::new();
            self.source.feed(&mut [Feed { state: &mut *state, tokens: chunk, rows_from }], &mut |_, _, row| {
                last = row.to_vec();
                check_finite(&last, done)
            })?;
            self.source.pass(state);
        }
        Ok(())
    }

    /// Feeds each sequence's last token and lets it choose the next, `count` times.
    fn write(&self, streams: &mut [Stream], count: usize) -> Result<(), Error> {
        let chain = Chain::new(&GenerateOptions::default(), &Rules::default());
        for _ in 0..count {
            let mut rows = vec![Vec::new(); streams.len()];
            let mut feeds: Vec<Feed<'_, SequenceState>> = Vec::with_capacity(streams.len());
            for Stream { state, tokens, .. } in streams.iter_mut() {
                let last = tokens.len() - 1;
                feeds.push(Feed { state, tokens: &tokens[last..], rows_from: 0 });
            }
            self.source.feed(&mut feeds, &mut |feed, _, row| {
                rows[feed] = row.to_vec();
                Ok(())
            })?;
            for (stream, mut row) in streams.iter_mut().zip(rows) {
                self.source.pass(&mut stream.state);
                let id = self.choose(&chain, stream, &mut row)?;
                stream.tokens.push(id);
            }
        }
        Ok(())
    }

    /// The likeliest token, as a request without sampling chooses it.
    fn choose(&self, chain: &Chain, stream: &Stream, row: &mut [f32]) -> Result<u32, EngineError> {
        check_finite(row, stream.tokens.len())?;
        let draws = Draws { seed: self.prompts.seed, choice: stream.index };
        let history = History { tokens: &stream.tokens, prompt_len: 1, encoder: &[], draws };
        chain.choose(&mut Memory::default(), &history, row)
    }
}
