//! The one thread that computes a model: it takes requests that were made ready, steps its schedule, and computes tasks in
//! between, so that a long task and a stream share the model step by step.

use super::ask::{Compute, Enough, Gone, Listener, Piece, Prepared, Said, Ticket, Vectors};
use super::health::Health;
use super::queue::Place;
use super::tools::Tools;
use crate::failure::Failure;
use crate::figures::ModelFigures;
use attend_engine::source::LogitsSource;
use attend_engine::tasks::embed::Item;
use attend_engine::{Engine, Event, Output, Schedule, Variant, prefix};
use axum::http::StatusCode;
use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvError, TryRecvError};
use std::time::Instant;
use tokio::sync::oneshot;

/// Requests for vectors that are computed together at most.
const TOGETHER: usize = 64;

/// What the thread keeps.
pub struct Turns<'a, S: LogitsSource> {
    /// None: the model writes no text.
    pub schedule: Option<Schedule<'a, S>>,
    /// None: nothing but text is asked for.
    pub tools: Option<&'a Tools<'a>>,
    pub inbox: Receiver<Prepared<'a>>,
    pub figures: ModelFigures,
    pub health: Arc<Health>,
    state: State<'a>,
}

/// What goes on at present.
#[derive(Default)]
struct State<'a> {
    /// Prompts of requests, by the schedule's key.
    open: BTreeMap<usize, Open>,
    next: usize,
    vectors: VecDeque<(Vec<Item>, oneshot::Sender<Vectors>, Ticket)>,
    tasks: VecDeque<(Compute<'a>, Gone, Ticket)>,
    preempted: u64,
    prefixes: prefix::Figures,
}

/// A prompt whose answers are not complete.
struct Open {
    prompt: usize,
    stream: bool,
    enough: Option<Enough>,
    to: Listener,
    came: Instant,
    /// Until it begins.
    place: Option<Arc<Place>>,
    /// When its last token came.
    last: Option<Instant>,
}

impl<'a, S: LogitsSource> Turns<'a, S> {
    pub fn new(
        schedule: Option<Schedule<'a, S>>,
        tools: Option<&'a Tools<'a>>,
        inbox: Receiver<Prepared<'a>>,
        (figures, health): (ModelFigures, Arc<Health>),
    ) -> Turns<'a, S> {
        Turns { schedule, tools, inbox, figures, health, state: State::default() }
    }

    /// Works until no request can come any more.
    pub fn run(mut self) {
        while self.receive() {
            self.drop_gone();
            self.compute_vectors();
            if let Some((compute, gone, ticket)) = self.state.tasks.pop_front() {
                self.compute(compute, &gone, ticket);
            }
            self.step();
        }
    }

    fn is_idle(&self) -> bool {
        let texts = self.schedule.as_ref().is_none_or(Schedule::is_idle);
        texts && self.state.tasks.is_empty() && self.state.vectors.is_empty()
    }

    /// Takes what has come, and waits for something where there is nothing to do. False: all is done, and nobody is left
    /// who could ask for more.
    fn receive(&mut self) -> bool {
        if self.is_idle() {
            match self.inbox.recv() {
                Ok(request) => self.take(request),
                Err(RecvError) => return false,
            }
        }
        self.receive_more();
        true
    }

    fn receive_more(&mut self) {
        loop {
            match self.inbox.try_recv() {
                Ok(request) => self.take(request),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return,
            }
        }
    }

    fn take(&mut self, request: Prepared<'a>) {
        match request {
            Prepared::Answers { ready, stream, enough, to, ticket } => {
                let Some(schedule) = &mut self.schedule else { return };
                for (prompt, ready) in ready.into_iter().enumerate() {
                    let key = self.state.next;
                    self.state.next += 1;
                    self.figures.prompt_tokens.inc_by(ready.prompt().token_ids.len() as u64);
                    schedule.add_ready(key, ready);
                    let Ticket { came, place, .. } = ticket.clone();
                    self.state.open.insert(
                        key,
                        Open { prompt, stream, enough: enough.clone(), to: to.clone(), came, place, last: None },
                    );
                }
            }
            Prepared::Embed { items, to, ticket } => self.state.vectors.push_back((items, to, ticket)),
            Prepared::Task { compute, gone, ticket } => self.state.tasks.push_back((compute, gone, ticket)),
        }
    }

    /// Forgets requests that nobody waits for any more, and when the server stops those that have not begun.
    fn drop_gone(&mut self) {
        let State { open, tasks, vectors, .. } = &mut self.state;
        let halted = self.health.is_halted();
        if let Some(schedule) = &mut self.schedule {
            open.retain(|&key, entry| {
                let refused = halted && entry.place.is_some();
                if refused {
                    let _ = entry.to.send(Said::Failed(Failure::stopping()));
                }
                let gone = refused || entry.to.is_closed();
                if gone {
                    schedule.cancel(key);
                }
                !gone
            });
        }
        if halted {
            // The senders that are dropped say that there is no answer.
            tasks.clear();
            vectors.clear();
        }
        tasks.retain(|(_, gone, _)| !gone());
        vectors.retain(|(_, to, _)| !to.is_closed());
    }

    /// One step of all answers.
    fn step(&mut self) {
        let Some(schedule) = &mut self.schedule else { return };
        if !schedule.is_idle() {
            let State { open, .. } = &mut self.state;
            let (figures, health) = (&self.figures, &self.health);
            let ended = schedule.step(&mut |key, event| tell(open.get_mut(&key), figures, health.is_halted(), event));
            ended.into_iter().for_each(|(key, outcome)| self.end(key, outcome));
        }
        self.count();
    }

    fn end(&mut self, key: usize, outcome: Result<Output, attend_engine::Error>) {
        let Some(entry) = self.state.open.remove(&key) else { return };
        match outcome {
            Ok(output) => {
                self.note(None);
                self.figures.generated_tokens.inc_by(output.usage.completion_tokens as u64);
                self.figures.guesses_offered.inc_by(output.guesses.offered as u64);
                self.figures.guesses_right.inc_by(output.guesses.right as u64);
                // A receiver that is gone wants nothing.
                let _ = entry.to.send(Said::Done { prompt: entry.prompt, output: Box::new(output) });
            }
            Err(error) => self.fail(&entry.to, error.into()),
        }
    }

    fn fail(&self, to: &Listener, failure: Failure) {
        self.note(Some(&failure));
        let _ = to.send(Said::Failed(failure));
    }

    fn count(&mut self) {
        let Some(schedule) = &self.schedule else { return };
        let load = schedule.load();
        let begun = self.state.open.values().filter(|entry| entry.place.is_none()).count();
        self.figures.running.set(begun as i64);
        self.figures.kv_tokens.set(load.tokens as i64);
        self.figures.kv_bytes.set(i64::try_from(load.bytes).unwrap_or(i64::MAX));
        self.figures.preemptions.inc_by(load.preempted - self.state.preempted);
        self.state.preempted = load.preempted;
        let engine = self.tools.and_then(|tools| tools.engine.as_ref());
        if let Some(prefixes) = engine.and_then(Engine::prefix_cache) {
            let (now, before) = (prefixes.figures(), self.state.prefixes);
            self.figures.prefix_bytes.set(now.bytes as i64);
            self.figures.prefix_lookups.inc_by(now.lookups - before.lookups);
            self.figures.prefix_hits.inc_by(now.hits - before.hits);
            self.figures.prefix_tokens.inc_by(now.reused - before.reused);
            self.state.prefixes = now;
        }
    }

    /// What is done between two steps of a task: everything but other tasks.
    fn between(&mut self) {
        self.receive_more();
        self.drop_gone();
        self.step();
    }

    /// Computes the vectors of the requests that wait for such, together.
    fn compute_vectors(&mut self) {
        let Some(tools) = self.tools else { return };
        let Some((_, _, Ticket { variant, .. })) = self.state.vectors.front() else { return };
        let variant = variant.clone();
        let number = |variant: &Option<Variant>| variant.as_ref().map(Variant::number);
        // Those of one variant, as far as they stand together.
        let alike = |(_, _, ticket): &&(_, _, Ticket)| number(&ticket.variant) == number(&variant);
        let count = self.state.vectors.iter().take(TOGETHER).take_while(alike).count();
        let taken: Vec<_> = self.state.vectors.drain(..count).collect();
        let (mut items, mut wanted) = (Vec::new(), Vec::new());
        for (own, to, ticket) in taken {
            self.figures.queued.observe(ticket.came.elapsed().as_secs_f64());
            wanted.push((own.len(), to));
            items.extend(own);
        }
        let halted = Arc::clone(&self.health);
        let embedder = tools.embedder(false).and_then(|embedder| Ok(embedder.of_variant(variant)?));
        let embedder = match embedder {
            Ok(embedder) => embedder,
            Err(failure) => return wanted.into_iter().for_each(|(_, to)| drop(to.send(Err(failure.clone())))),
        };
        let found = catch_unwind(AssertUnwindSafe(|| {
            embedder.vectors(&items, &mut |step| {
                self.figures.embedded_tokens.inc_by(step.tokens as u64);
                self.between();
                let over = halted.is_halted() || wanted.iter().all(|(_, to)| to.is_closed());
                if over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
        }));
        let failure = match found {
            Ok(Ok(found)) => {
                let mut found = found.into_iter();
                for (own, to) in wanted {
                    let own: Result<Vec<_>, _> = found.by_ref().take(own).collect();
                    self.give(to, own.map_err(Failure::from));
                }
                return;
            }
            Ok(Err(error)) => Failure::from(error),
            Err(panic) => Failure::fault(format!("vectors panicked: {}", words(panic.as_ref()))),
        };
        wanted.into_iter().for_each(|(_, to)| self.give(to, Err(failure.clone())));
    }

    fn give(&self, to: oneshot::Sender<Vectors>, vectors: Vectors) {
        self.note(vectors.as_ref().err());
        // A receiver that is gone wants nothing.
        let _ = to.send(vectors);
    }

    /// Remembers how a request went.
    fn note(&self, failure: Option<&Failure>) {
        if failure.is_none_or(|failure| failure.status != StatusCode::INTERNAL_SERVER_ERROR) {
            return self.health.went_well();
        }
        self.health.went_wrong();
        self.figures.faults.inc();
    }

    fn compute(&mut self, compute: Compute<'a>, gone: &Gone, ticket: Ticket) {
        self.figures.queued.observe(ticket.came.elapsed().as_secs_f64());
        drop(ticket);
        let halted = Arc::clone(&self.health);
        let done = catch_unwind(AssertUnwindSafe(|| {
            compute(&mut |step| {
                self.figures.embedded_tokens.inc_by(step.tokens as u64);
                self.between();
                if gone() || halted.is_halted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
        }));
        // Whoever waits is told by the sender that is gone.
        let fault = done.err().map(|panic| Failure::fault(words(panic.as_ref())));
        self.note(fault.as_ref());
    }
}

/// Passes an event on. `Break`: nobody wants more, or the server stops.
fn tell(entry: Option<&mut Open>, figures: &ModelFigures, halted: bool, event: Event<'_>) -> ControlFlow<()> {
    let Some(entry) = entry.filter(|entry| !entry.to.is_closed()) else { return ControlFlow::Break(()) };
    if entry.place.take().is_some() {
        figures.queued.observe(entry.came.elapsed().as_secs_f64());
    }
    match event {
        Event::Token { choice, id, text, logprob } => {
            let now = Instant::now();
            match entry.last.replace(now) {
                None => figures.first_token.observe((now - entry.came).as_secs_f64()),
                Some(last) => figures.inter_token.observe((now - last).as_secs_f64()),
            }
            if entry.stream {
                let (text, logprob) = (text.to_owned(), logprob.cloned());
                let _ = entry.to.send(Said::Token(Piece { prompt: entry.prompt, choice, id, text, logprob }));
            }
        }
        Event::Finished { choice, text, finish } if entry.stream => {
            let (text, finish) = (text.to_owned(), finish.clone());
            let _ = entry.to.send(Said::Finished { prompt: entry.prompt, choice, text, finish });
        }
        Event::Finished { .. } | Event::Prompt { .. } | Event::Step { .. } => {}
    }
    let enough = entry.enough.as_ref().is_some_and(|enough| enough.load(Ordering::Relaxed));
    if halted || enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// What a panic said.
fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without words")
}

#[cfg(test)]
mod tests;
