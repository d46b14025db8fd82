//! One row after another.

use super::cost::Costs;
use super::decoder::Decoder;
use super::error::Error;
use super::memory;
use super::prompts::Prompts;
use super::report::{Limits, Row};
use super::work::{Kind, Work};
use super::{encoder, writer};
use attend_engine::{Engine, EngineOptions, Prompt};
use attend_model::Loaded;
use attend_model::cost::WeightTypes;
use attend_nn::spec::Body;
use std::time::Instant;

/// What is measured and how.
pub struct Subject<'m> {
    pub loaded: &'m Loaded,
    pub types: &'m dyn WeightTypes,
    pub options: EngineOptions,
    pub seed: u64,
    pub repetitions: usize,
    pub limits: Option<Limits>,
    /// Asked between two samples whether to end.
    pub stop: &'m dyn Fn() -> bool,
}

/// Takes the samples of a row.
pub(super) struct Clock<'a> {
    repetitions: usize,
    stop: &'a dyn Fn() -> bool,
}

impl Clock<'_> {
    pub fn repeat(&self, mut once: impl FnMut() -> Result<f64, Error>) -> Result<Vec<f64>, Error> {
        let sample = |_| if (self.stop)() { Err(Error::Stopped) } else { once() };
        (0..self.repetitions.max(1)).map(sample).collect()
    }
}

/// The row of loading, and what `load` gives.
///
/// # Errors
/// Those of `load`.
pub fn loading<T, E>(load: impl FnOnce() -> Result<T, E>) -> Result<(T, Option<Row>), E> {
    memory::forget_peak();
    let started = Instant::now();
    let loaded = load()?;
    let seconds = started.elapsed().as_secs_f64();
    Ok((loaded, Row::new(Work::Load, vec![seconds], memory::peak())))
}

/// Measures each work and hands out its row. [`Work::Load`] is left out: it is done by who has the model.
///
/// # Errors
/// [`Error::Stopped`] where the subject's `stop` says so, and what the engine refuses.
pub fn measure(subject: &Subject<'_>, works: &[Work], take: &mut dyn FnMut(Row)) -> Result<(), Error> {
    let model = &subject.loaded.model;
    let costs = Costs::new(model.spec(), subject.types, subject.options.kv, subject.options.chunk);
    for work in works {
        if (subject.stop)() {
            return Err(Error::Stopped);
        }
        memory::forget_peak();
        let seconds = subject.seconds(work)?;
        let rate = |seconds: f64| work.counted().map_or(seconds, |tokens| tokens / seconds.max(1e-9));
        let Some(mut row) = Row::new(*work, seconds.into_iter().map(rate).collect(), memory::peak()) else { continue };
        if let Some((limits, cost)) = subject.limits.as_ref().zip(costs.of(work)) {
            row.hold_against(limits, cost);
        }
        take(row);
    }
    Ok(())
}

impl Subject<'_> {
    /// Seconds of each sample.
    fn seconds(&self, work: &Work) -> Result<Vec<f64>, Error> {
        let clock = Clock { repetitions: self.repetitions, stop: self.stop };
        let loaded = self.loaded;
        let prompts = Prompts { seed: self.seed, vocab: self.vocabulary() };
        let engine = || Engine::new(loaded, None, &self.options);
        match *work {
            Work::Load => Ok(Vec::new()),
            Work::FirstToken { tokens } => {
                let ids = prompts.tokens(0, tokens);
                let translates = Kind::of(loaded.model.spec()) == Kind::Translates;
                let prompt = if translates { Prompt::source(ids) } else { Prompt::tokens(ids) };
                writer::first_token(&engine()?, &prompt)
            }
            Work::Prefill { tokens, depth } => self.decoder(&engine()?, prompts).prefill((tokens, depth), &clock),
            Work::Decode { tokens, depth, batch } => {
                self.decoder(&engine()?, prompts).decode((tokens, depth, batch), &clock)
            }
            Work::Encode { tokens, batch } => {
                let stack = match Kind::of(loaded.model.spec()) {
                    Kind::Reads(stack) => stack,
                    Kind::Continues | Kind::Translates => {
                        return Err(Error::Choice(
                            "this model writes; its hidden states alone are not measured".into(),
                        ));
                    }
                };
                encoder::encode((&loaded.model, stack, &self.options.run), &prompts.batch(batch, tokens), &clock)
            }
            Work::Write { tokens, source, beams, batch } => {
                writer::write(&engine()?, prompts.batch(batch, source), (tokens, beams), &clock)
            }
        }
    }

    fn decoder<'e>(&self, engine: &'e Engine<'_>, prompts: Prompts) -> Decoder<'e> {
        Decoder { source: engine.source(), chunk: self.options.chunk, prompts }
    }

    /// Tokens that the stack which reads has a row for.
    fn vocabulary(&self) -> usize {
        match &self.loaded.model.spec().body {
            Body::Encoder(stack) | Body::Decoder(stack) | Body::EncoderDecoder { encoder: stack, .. } => {
                stack.embed.vocab
            }
        }
    }
}
