//! Many requests in one loop: each step feeds the next token of every open sequence, and what is still to be read, together.
//!
//! Requests join as soon as there is room and leave when they are answered (continuous batching; Yu et al. 2022, Orca). The
//! bounds are [`Limits`]: where what is held outgrows them, the least urgent request, of equal ones the one that joined last,
//! is put back and begins anew later. Who joins next is `queue`.
//! A step that fails puts all that were in it under suspicion: each begins anew and goes on by itself until it has one more
//! token, so that the one at whose tokens it fails is found, and ends alone.
//! None of this changes an answer. The loop knows no tensors; whoever owns a [`Schedule`] decides when to add and to step.

mod pace;
mod prices;
mod queue;

use crate::constrain::Beside;
use crate::error::Error;
use crate::guard::guarded;
use crate::options::GenerateOptions;
use crate::output::{Event, Output, Prompt};
use crate::prefix::Prefixes;
use crate::request::{Ready, Surroundings};
use crate::source::{LogitsSource, Start};
use crate::vocabulary::Vocabulary;
use crate::work::{Around, Part, Room, Work};
use attend_nn::BLOCK_TOKENS;
use pace::{Company, Pace};
use prices::{Prices, Step};
use queue::{Queue, Rank};
use std::cmp::Reverse;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Takes the events of each request, by its key; `Break` ends that request.
pub type EachHandler<'a> = dyn FnMut(usize, Event<'_>) -> ControlFlow<()> + 'a;

/// How much is worked on at once. One request is always worked on, however large it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Sequences: choices and beams of all requests together.
    pub sequences: usize,
    /// Room for keys and values, those of sources included, in tokens that every layer keeps. Of a layer with a window only
    /// what it keeps takes room.
    pub tokens: usize,
}

impl Limits {
    /// Bytes of the room for keys and values, for so many bytes of a token in every layer.
    pub fn bytes(&self, per_token: u64) -> u64 {
        (self.tokens as u64).saturating_mul(per_token)
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { sequences: 64, tokens: 1 << 15 }
    }
}

/// The most tokens that are guessed in a step, all sequences together: about as many rows as cost little more than one,
/// because the weights have to be read anyway. What they hold is gone after the step.
const GUESSES: usize = 16;

/// A smaller model with the same vocabulary that guesses what the source will say.
#[derive(Debug)]
pub struct Draft<'a, S> {
    pub source: &'a S,
    /// The most tokens of a sequence that it can read; None: no limit.
    pub context: Option<usize>,
}

/// The requests of one source.
pub struct Schedule<'a, S: LogitsSource> {
    source: &'a S,
    draft: Option<Draft<'a, S>>,
    prefixes: Option<Box<dyn Prefixes<S::State> + 'a>>,
    vocabulary: Option<&'a dyn Vocabulary>,
    around: &'a Surroundings,
    limits: Limits,
    /// Bytes of a token that every layer keeps.
    per_token: u64,
    waiting: Queue<Entry<'a, S::State>>,
    /// The one that joined first comes first.
    running: Vec<(Rank, Entry<'a, S::State>)>,
    preempted: u64,
    beside: Beside,
    prices: Prices,
    /// None: a step reads as much as fits in a chunk.
    pace: Option<Pace>,
}

/// What a schedule is busy with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    /// Requests that are worked on.
    pub running: usize,
    pub waiting: usize,
    /// Sequences of those that are worked on.
    pub sequences: usize,
    /// Keys and values that are held for them, as [`Limits::tokens`] counts them.
    pub tokens: usize,
    /// Bytes of them.
    pub bytes: u64,
    /// How often a request was put back because the others needed its room, since the beginning.
    pub preempted: u64,
}

struct Entry<'a, T> {
    key: usize,
    work: Work<'a, T>,
    /// Of one that was in a step that failed, until it has gone on by itself: how many tokens it had then.
    suspected: Option<usize>,
}

/// What has become of a request.
pub type Ended = (usize, Result<Output, Error>);

impl<'a, S: LogitsSource> Schedule<'a, S> {
    pub fn new(
        source: &'a S,
        vocabulary: Option<&'a dyn Vocabulary>,
        around: &'a Surroundings,
        limits: Limits,
    ) -> Schedule<'a, S> {
        Schedule {
            source,
            draft: None,
            prefixes: None,
            vocabulary,
            around,
            limits,
            per_token: source.footprint().per_token().max(1),
            waiting: Queue::new(),
            running: Vec::new(),
            preempted: 0,
            beside: Beside::default(),
            prices: Prices::default(),
            pace: None,
        }
    }

    /// Lets a draft model guess for requests of one choice. Keys and values of its own are not counted in the limits.
    pub fn with_draft(self, draft: Option<Draft<'a, S>>) -> Schedule<'a, S> {
        Schedule { draft, ..self }
    }

    /// Lets requests begin with what earlier ones have in common with them. What is kept for that is not counted in the
    /// limits.
    pub fn with_prefixes(self, prefixes: Option<Box<dyn Prefixes<S::State> + 'a>>) -> Schedule<'a, S> {
        Schedule { prefixes, ..self }
    }

    /// Steps read only so much beside sequences that go on that these do not wait long for their next token. For answers that
    /// are read as they are made; without it all of them together are there a little sooner.
    pub fn with_even_steps(self) -> Schedule<'a, S> {
        Schedule { pace: Some(Pace::default()), ..self }
    }

    /// Adds a request to those that wait. `key` is the caller's name for it.
    ///
    /// # Errors
    /// Parameters and prompts that cannot be served.
    pub fn add(&mut self, key: usize, prompt: Prompt, options: Arc<GenerateOptions>) -> Result<(), Error> {
        let ready = Ready::new(self.source, self.vocabulary, self.around, prompt, options)?;
        self.add_ready(key, ready);
        Ok(())
    }

    /// The same for a request that was checked before, for the same source and surroundings.
    pub fn add_ready(&mut self, key: usize, ready: Ready) {
        let (priority, client) = ready.rank();
        self.waiting.push(priority, client, Entry { key, work: Work::new(ready, self.vocabulary), suspected: None });
    }

    /// Forgets a request, whether it waits or is worked on, with all that is held for it. False: there is none of this key.
    pub fn cancel(&mut self, key: usize) -> bool {
        let before = self.waiting.len() + self.running.len();
        self.waiting.retain(|entry| entry.key != key);
        self.running.retain(|(_, entry)| entry.key != key);
        self.waiting.len() + self.running.len() < before
    }

    /// Those that wait join in the order of their lengths from now on, the longest first: what does not fit in memory shows
    /// at once, and short ones fill the end. Equal lengths stay in order.
    pub fn longest_first(&mut self) {
        let length = |entry: &Entry<'a, S::State>| {
            let start = entry.work.start();
            start.prompt_len + start.encoder_ids.map_or(0, <[u32]>::len)
        };
        self.waiting.sort_by_key(|entry| Reverse(length(entry)));
    }

    /// Nothing is left to do.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    pub fn load(&self) -> Load {
        let ((running, waiting), bytes) = (self.counts(), self.held());
        let tokens = usize::try_from(bytes.div_ceil(self.per_token)).unwrap_or(usize::MAX);
        Load { running, waiting, sequences: self.sequences(), tokens, bytes, preempted: self.preempted }
    }

    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Requests that are worked on, and those that wait.
    pub fn counts(&self) -> (usize, usize) {
        (self.running.len(), self.waiting.len())
    }

    /// Lets requests join, takes one step with all of them, and returns those that ended in it. A request that the step fails
    /// or panics at ends with that error, and no other does.
    pub fn step(&mut self, on: &mut EachHandler<'_>) -> Vec<Ended> {
        self.make_room();
        let mut ended = self.join();
        let computed = guarded(|| {
            let drafting = self.guess()?;
            self.feed(drafting)
        });
        match computed {
            Ok(fed) => self.advance(fed, on, &mut ended),
            Err(error) => self.blame(error, &mut ended),
        }
        ended
    }

    /// Lets those that were fed make of it what they can, each for itself.
    fn advance(&mut self, fed: Vec<Option<bool>>, on: &mut EachHandler<'_>, ended: &mut Vec<Ended>) {
        if !fed.contains(&Some(true)) {
            // Whoever is left waits for a mask, and there is nothing else to do meanwhile.
            let _ = self.running.iter_mut().any(|(_, entry)| entry.work.wait());
        }
        let mut fed = fed.into_iter();
        let draft = self.draft.as_ref().map(|draft| draft.source);
        let around = Around { source: self.source, draft, prefixes: self.prefixes.as_deref(), beside: &self.beside };
        let mut open = Vec::with_capacity(self.running.len());
        for (rank, mut entry) in std::mem::take(&mut self.running) {
            let key = entry.key;
            let done = match fed.next() {
                Some(Some(fed)) if fed || entry.work.has_rows() => {
                    guarded(|| entry.work.advance(around, &mut |event| on(key, event)))
                }
                Some(_) | None => Ok(false),
            };
            match done {
                Ok(false) => {
                    entry.suspected = entry.suspected.filter(|then| entry.work.generated() <= *then);
                    open.push((rank, entry));
                }
                Ok(true) => ended.push((key, Ok(entry.work.into_output()))),
                Err(error) => ended.push((key, Err(error))),
            }
        }
        self.running = open;
    }

    /// The one suspect that may be fed at present, where there are any.
    fn suspect(&self) -> Option<usize> {
        self.running.iter().position(|(_, entry)| entry.suspected.is_some())
    }

    /// A step has failed. Whoever was in it alone is at fault; else everybody begins anew, under suspicion.
    fn blame(&mut self, error: Error, ended: &mut Vec<Ended>) {
        let only = (self.running.len() == 1).then_some(0);
        if let Some(guilty) = self.suspect().or(only) {
            let (_, entry) = self.running.remove(guilty);
            ended.push((entry.key, Err(error)));
            return;
        }
        // What all of them hold goes before any of them begins again.
        self.running.iter_mut().for_each(|(_, entry)| {
            entry.suspected = Some(entry.work.generated());
            entry.work.put_back();
        });
        let all = std::mem::take(&mut self.running);
        ended.append(&mut self.start(all));
    }

    /// Puts back the least urgent, of equal ones the youngest, as long as the next step would hold too much.
    fn make_room(&mut self) {
        while self.running.len() > 1 && self.held() > self.room() {
            let Some(least) = (0..self.running.len()).max_by_key(|&index| self.running[index].0.priority) else {
                return;
            };
            let (rank, mut entry) = self.running.remove(least);
            entry.work.put_back();
            self.preempted += 1;
            self.waiting.put_back(rank, entry);
        }
    }

    fn sequences(&self) -> usize {
        self.running.iter().map(|(_, entry)| entry.work.sequences()).sum()
    }

    /// Bytes of keys and values, the next step's included.
    fn held(&self) -> u64 {
        self.running.iter().map(|(_, entry)| entry.work.bytes(0)).fold(0, u64::saturating_add)
    }

    /// The most bytes of them.
    fn room(&self) -> u64 {
        (self.limits.tokens as u64).saturating_mul(self.per_token)
    }

    /// Lets those that are next join as long as they fit. Returns those that cannot be started.
    fn join(&mut self) -> Vec<Ended> {
        let mut sequences = self.sequences();
        let (mut held, room) = (self.held(), self.room());
        let mut joining = Vec::new();
        while let Some(Entry { work, .. }) = self.waiting.peek() {
            let own = work.sequences();
            // With a block more for each sequence, so that it is not soon put back.
            let needed = held.saturating_add(work.bytes(BLOCK_TOKENS));
            let fits = sequences + own <= self.limits.sequences && needed <= room;
            let alone = self.running.is_empty() && joining.is_empty();
            if !fits && !alone {
                break;
            }
            (sequences, held) = (sequences + own, held.saturating_add(work.bytes(0)));
            joining.extend(self.waiting.take());
        }
        self.start(joining)
    }

    fn start(&mut self, joining: Vec<(Rank, Entry<'a, S::State>)>) -> Vec<Ended> {
        let starts: Vec<Start<'_>> = joining.iter().map(|(_, entry)| entry.work.start()).collect();
        let together = if starts.is_empty() { Ok(Vec::new()) } else { guarded(|| self.source.start_all(&starts)) };
        let states: Vec<Result<S::State, Error>> = match together {
            Ok(states) => states.into_iter().map(Ok).collect(),
            // One that cannot be started must not keep the others from it.
            Err(_) => starts.iter().map(|start| self.alone(*start)).collect(),
        };
        let mut failed = Vec::new();
        for ((rank, mut entry), state) in joining.into_iter().zip(states) {
            match state {
                Ok(state) => {
                    entry.work.begin(state, self.prefixes.as_deref());
                    self.running.push((rank, entry));
                }
                Err(error) => failed.push((entry.key, Err(error))),
            }
        }
        failed
    }

    fn alone(&self, start: Start<'_>) -> Result<S::State, Error> {
        let mut states = guarded(|| self.source.start_all(&[start]))?;
        states.pop().ok_or_else(|| Error::Unsupported("the source of logits began no sequence".into()))
    }

    /// Lets requests guess what follows; what is right is known after the step that feeds it. Returns what a draft model took
    /// for it that read nothing else.
    fn guess(&mut self) -> Result<Option<Duration>, Error> {
        let sequences = self.sequences();
        let (most, price) = (GUESSES / sequences.max(1), self.prices.of(sequences));
        let suspect = self.suspect();
        let turn = |index: usize| suspect.is_none_or(|suspect| suspect == index);
        for (_, (_, entry)) in self.running.iter_mut().enumerate().filter(|(index, _)| turn(*index)) {
            entry.work.consider(price);
            entry.work.look_up(self.source, most);
        }
        let Some(draft) = &self.draft else { return Ok(None) };
        let (begun, mut reads) = (Instant::now(), false);
        let mut room = Room { reading: self.around.chunk.max(1) };
        loop {
            let mut parts = Vec::new();
            for (_, (_, entry)) in self.running.iter_mut().enumerate().filter(|(index, _)| turn(*index)) {
                parts.extend(entry.work.draft_part((self.source, draft), &mut room, most)?);
            }
            if parts.is_empty() {
                return Ok(Some(begun.elapsed()).filter(|_| !reads));
            }
            // After a right guess the last two tokens are new to it.
            reads |= parts.iter().any(|part| part.feed.tokens.len() > 2);
            feed(draft.source, parts)?;
            for (_, entry) in &mut self.running {
                entry.work.take_guess((self.source, draft.source));
            }
        }
    }

    /// Feeds what every running request wants; says of each whether it had a part in the step. None: it must not go on now.
    /// Where what answers are held to has outgrown its memory, only the first of such requests goes on, until it has ended;
    /// where there are suspects, only the first of them.
    fn feed(&mut self, drafting: Option<Duration>) -> Result<Vec<Option<bool>>, Error> {
        let company = self.company();
        let chunk = self.around.chunk.max(1);
        let mut room = Room { reading: self.pace.as_ref().map_or(chunk, |pace| pace.of(company, chunk)) };
        let before = room.reading;
        let (mut all, mut fed) = (Vec::new(), Vec::new());
        let (over, mut others) = (self.around.grammars.is_over(), false);
        let suspect = self.suspect();
        for (index, (_, entry)) in self.running.iter_mut().enumerate() {
            if suspect.is_some_and(|suspect| suspect != index) {
                fed.push(None);
                continue;
            }
            if over && entry.work.is_constrained() && std::mem::replace(&mut others, true) {
                fed.push(None);
                continue;
            }
            let parts = entry.work.parts(&mut room);
            fed.push(Some(!parts.is_empty()));
            all.extend(parts);
        }
        let (sequences, read) = (all.len(), before - room.reading);
        let begun = Instant::now();
        feed(self.source, all)?;
        let guesses = self.running.iter().map(|(_, entry)| entry.work.guesses()).sum();
        let took = begun.elapsed();
        if let Some(pace) = &mut self.pace {
            pace.learn(read, company, took);
        }
        if sequences > 0 && read == 0 {
            self.prices.learn(Step { sequences, guesses, took, drafting });
        }
        Ok(fed)
    }

    fn company(&self) -> Company {
        let (mut going_on, mut reading) = (0, 0);
        for own in self.running.iter().map(|(_, entry)| entry.work.going_on()) {
            going_on += own;
            reading += usize::from(own == 0);
        }
        Company { going_on, reading, plain: self.prices.plain(going_on) }
    }
}

/// Takes the parts of a step through a model and their rows to where they are wanted.
fn feed<S: LogitsSource>(source: &S, parts: Vec<Part<'_, S::State>>) -> Result<(), Error> {
    if parts.is_empty() {
        return Ok(());
    }
    let (mut feeds, mut targets): (Vec<_>, Vec<_>) = parts.into_iter().map(|part| (part.feed, part.target)).unzip();
    source.feed(&mut feeds, &mut |feed, token, row| {
        targets[feed].take(token, row);
        Ok(())
    })
}

#[cfg(test)]
mod tests;
