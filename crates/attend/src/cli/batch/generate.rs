//! Prompts of many inputs in one batch: who has its answer makes room for the next.

use super::{Answer, BatchArgs, Flow, Record, Window, flow};
use crate::cli::error::Interrupted;
use crate::cli::{interrupt, screen};
use anyhow::{Result, anyhow};
use attend_engine::{Engine, GenerateOptions, Output, Prompt};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Inputs that are put in order together. Those of the next window join while the last of this one are still being answered.
const WINDOW: Window = Window { records: 128, bytes: 1 << 20 };
/// Answers that may wait for one to an earlier input before no more inputs are read.
const MOST_AHEAD: usize = 1 << 12;

/// Answers every input with text that is generated.
pub struct Generator<'e, 'm, P, A> {
    pub engine: &'e Engine<'m>,
    pub options: GenerateOptions,
    /// The prompt of an input.
    pub prompt: P,
    /// The answer to an input.
    pub answer: A,
}

/// Where the inputs of a batch stand.
struct Places<N> {
    /// Those that are not answered yet: where each comes from, and what its prompt was noted with.
    open: BTreeMap<usize, (String, N)>,
    /// Answers that wait for an earlier one.
    ahead: BTreeMap<usize, (Output, N)>,
    taken: usize,
    written: usize,
    /// Notices that have been given, without their numbers; the same one for many inputs is said once.
    said: BTreeSet<String>,
}

impl<N, T, P, A> Generator<'_, '_, P, A>
where
    T: Answer,
    P: Fn(&Record) -> Result<(Prompt, N)>,
    A: Fn(Output, N) -> T,
{
    pub fn run(self, args: &BatchArgs) -> Result<bool> {
        flow(args, |flow| self.all(flow))
    }

    fn all(self, flow: &mut Flow) -> Result<()> {
        let Generator { engine, options, prompt, answer } = self;
        let options = Arc::new(options);
        let mut schedule = engine.schedule(engine.limits());
        let mut places = Places::new();
        let mut more = true;
        while more || !schedule.is_idle() {
            if more && schedule.counts().1 == 0 && places.ahead.len() < MOST_AHEAD {
                let records = flow.take(WINDOW)?;
                more = !records.is_empty();
                for record in &records {
                    let (prompt, note) = prompt(record)?;
                    let at = |error: attend_engine::Error| anyhow!("{}: {error}", record.place);
                    let prompt = engine.complete(prompt).map_err(at)?;
                    schedule.add(places.take(record, note), prompt, options.clone()).map_err(at)?;
                }
                schedule.longest_first();
            }
            let mut tokens = 0;
            let ended = schedule.step(&mut |_, _| ControlFlow::Continue(()));
            let inputs = ended.len();
            for (index, output) in ended {
                tokens += places.end(index, output)?;
            }
            if inputs > 0 {
                flow.progress.add(inputs, tokens);
            }
            let next: Vec<T> = places.next().into_iter().map(|(output, note)| answer(output, note)).collect();
            if !next.is_empty() {
                flow.write(&next)?;
            }
            if interrupt::pressed() {
                return Err(Interrupted.into());
            }
        }
        Ok(())
    }
}

impl<N> Places<N> {
    fn new() -> Places<N> {
        let (open, ahead) = (BTreeMap::new(), BTreeMap::new());
        Places { open, ahead, taken: 0, written: 0, said: BTreeSet::new() }
    }

    /// The number of a new input.
    fn take(&mut self, record: &Record, note: N) -> usize {
        let index = self.taken;
        self.open.insert(index, (record.place.clone(), note));
        self.taken += 1;
        index
    }

    /// Takes an answer, says what is to be known of it, and returns the tokens that it cost.
    fn end(&mut self, index: usize, output: Result<Output, attend_engine::Error>) -> Result<usize> {
        let Some((place, note)) = self.open.remove(&index) else { return Ok(0) };
        let output = output.map_err(|error| anyhow!("{place}: {error}"))?;
        for notice in &output.notices {
            if self.said.insert(notice.replace(|c: char| c.is_ascii_digit(), "")) {
                screen::notice(&format!("note: {notice}"));
            }
        }
        let tokens = output.usage.total_tokens;
        self.ahead.insert(index, (output, note));
        Ok(tokens)
    }

    /// The answers whose turn it is.
    fn next(&mut self) -> Vec<(Output, N)> {
        let mut next = Vec::new();
        while let Some(answer) = self.ahead.remove(&self.written) {
            next.push(answer);
            self.written += 1;
        }
        next
    }
}
