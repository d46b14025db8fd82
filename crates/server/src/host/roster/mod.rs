//! Which models are in memory: they come when they are asked for or at the start, and go when nobody has asked for them for
//! long enough, or when another needs their room. A model with requests is never put out.
//!
//! Whoever asks holds a [`Lease`] until the last byte of the answer. Models are brought one after the other: whoever brings
//! one has the turn, in the order of coming. Nobody waits for the turn while it holds a lease, so that those that are waited
//! for always end.

mod policy;
mod room;

pub use policy::{Keep, Policy};

use super::adapter::{Adapter, AdapterAt};
use super::queue::Queue;
use super::{Loader, Model};
use crate::failure::Failure;
use crate::figures::{Figures, ModelFigures};
use crate::front::log::Log;
use prometheus_client::metrics::counter::Counter;
use room::{Chair, Room};
use serde_json::json;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};

/// A model that may be brought into memory.
pub struct Offer {
    pub name: String,
    /// Other names for it.
    pub aliases: Vec<String>,
    pub loader: Loader,
    /// Bytes of its files, where they are known: about what it will take, until it has been loaded once.
    pub size: Option<u64>,
}

/// What does not change of a model.
struct Seat {
    name: String,
    loader: Arc<Mutex<Loader>>,
    adapters: Vec<(AdapterAt, Counter)>,
    /// Requests that wait for the model to be brought.
    queue: Arc<Queue>,
    figures: ModelFigures,
}

/// What the roster tells: that a model can be asked, and that its memory is free again.
#[derive(Clone)]
pub struct Tell {
    pub loaded: Arc<dyn Fn(&Model) + Send + Sync>,
    pub unloaded: Arc<dyn Fn(&str) + Send + Sync>,
}

/// All models of a server, in memory or not.
pub struct Roster {
    seats: Vec<Seat>,
    chairs: Mutex<Vec<Chair>>,
    policy: Policy,
    /// Requests of a model that may wait.
    queue: usize,
    /// Whose turn it is to bring a model.
    turn: tokio::sync::Mutex<()>,
    /// Models that were put out and whose memory may not be free yet.
    departing: Mutex<Vec<watch::Receiver<()>>>,
    /// Something has changed that others may wait for.
    changed: watch::Sender<()>,
    stopping: watch::Sender<bool>,
    tell: Tell,
    log: Arc<Log>,
    /// Where the error of a model goes that must be there from the start.
    failed: mpsc::UnboundedSender<String>,
}

impl std::fmt::Debug for Roster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Roster")
    }
}

/// A request of a model that is in memory; the model stays there as long as this does.
#[derive(Debug)]
pub struct Lease {
    roster: Arc<Roster>,
    seat: usize,
    /// It is held without a request, by something that would be lost with the model.
    pin: bool,
}

/// A model with the lease of it.
pub type Leased = (Arc<Model>, Lease);

impl Roster {
    /// Nothing is loaded yet. Each model comes with its adapters and what counts their requests; an error of a model that is loaded at the start goes to
    /// `failed`.
    pub fn new(
        offers: Vec<(Offer, Vec<(AdapterAt, Counter)>)>,
        (policy, queue): (Policy, usize),
        (figures, log): (&Figures, Arc<Log>),
        (tell, failed): (Tell, mpsc::UnboundedSender<String>),
    ) -> Arc<Roster> {
        let mut chairs = Vec::new();
        let seat = |(offer, adapters): (Offer, Vec<(AdapterAt, Counter)>)| {
            let figures = figures.of_model(&offer.name);
            chairs.push(Chair::new(offer.size, policy.keep()));
            let loader = Arc::new(Mutex::new(offer.loader));
            let queue = Queue::new(queue, figures.waiting.clone());
            Seat { name: offer.name, loader, adapters, queue, figures }
        };
        let seats = offers.into_iter().map(seat).collect();
        Arc::new(Roster {
            seats,
            chairs: Mutex::new(chairs),
            policy,
            queue,
            turn: tokio::sync::Mutex::new(()),
            departing: Mutex::default(),
            changed: watch::Sender::new(()),
            stopping: watch::Sender::new(false),
            tell,
            log,
            failed,
        })
    }

    /// Begins to load the models, as many as may be there at once; none where they are loaded on demand.
    ///
    /// # Errors
    /// A system that gives no threads.
    pub fn start(self: &Arc<Roster>) -> std::io::Result<()> {
        for seat in 0..self.seats.len() {
            let fits =
                !self.policy.on_demand && matches!(room::verdict(&self.chairs(), seat, &self.policy), Ok(Room::There));
            if fits {
                self.spawn(seat, true)?;
            }
        }
        Ok(())
    }

    /// Models may leave while the server runs.
    pub fn manages(&self) -> bool {
        self.policy.manages()
    }

    fn chairs(&self) -> MutexGuard<'_, Vec<Chair>> {
        self.chairs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) {
        self.changed.send_replace(());
    }

    /// The model, where it is in memory or on its way there. Whoever looks must not keep it.
    pub fn peek(&self, seat: usize) -> Option<Arc<Model>> {
        self.chairs().get(seat)?.model.clone()
    }

    /// What the model is doing, in a word, if not answering; None: it answers, or would when it is asked.
    pub fn trouble(&self, seat: usize) -> Option<&'static str> {
        let chairs = self.chairs();
        let chair = chairs.get(seat)?;
        match &chair.model {
            // It is brought while requests wait.
            Some(model) if self.manages() && model.state().is_none() => None,
            Some(model) => model.trouble(),
            None => chair.failed.is_some().then_some("it could not be loaded"),
        }
    }

    /// When the model will be put out if nobody asks for it before; None: not by time alone.
    pub fn expires(&self, seat: usize) -> Option<Duration> {
        let chairs = self.chairs();
        let at = chairs.get(seat)?.expires()?;
        Some(at.saturating_duration_since(Instant::now()))
    }

    /// The model for a request. Where it is not in memory it is brought there first, if that is how this server does it.
    ///
    /// # Errors
    /// A model that is loading or could not be loaded, too many that wait, no room, and the end of the server.
    pub async fn lease(self: &Arc<Roster>, seat: usize) -> Result<Leased, Failure> {
        let came = Instant::now();
        if let Some(found) = self.present(seat, came)? {
            return Ok(found);
        }
        let own = self.seats.get(seat).ok_or_else(|| Failure::fault("a model without a seat"))?;
        if !self.manages() {
            return Err(Failure::loading(&own.name));
        }
        let _place = own.queue.enter().ok_or_else(|| Failure::busy(own.queue.most()))?;
        let mut stopping = self.stopping.subscribe();
        tokio::select! {
            _ = stopping.wait_for(|stopping| *stopping) => Err(Failure::stopping()),
            found = self.bring(seat, came) => found,
        }
    }

    /// The model, if it can be asked at once.
    fn present(self: &Arc<Roster>, seat: usize, came: Instant) -> Result<Option<Leased>, Failure> {
        let mut chairs = self.chairs();
        let Some(chair) = chairs.get_mut(seat) else { return Ok(None) };
        if self.manages()
            && chair.model.as_ref().is_some_and(|model| matches!(model.state(), Some(Ok(_))) && model.has_ended())
        {
            // It was well once: it is brought anew, like one that was put out.
            let gone = chair.model.take();
            drop(chairs);
            self.log.say("error", "ended", json!({"model": gone.as_ref().map(|model| model.name.as_str())}));
            self.see_off(gone);
            return Ok(None);
        }
        let model = chair.model.clone();
        match model.as_ref().map(|model| (model, model.state())) {
            Some((model, Some(Ok(facts)))) if !chair.leaving => {
                (chair.users, chair.used, chair.keep) = (chair.users + 1, Instant::now(), self.policy.keep());
                (chair.bytes, chair.failed) = (Some(facts.most_bytes), None);
                let lease = Lease { roster: Arc::clone(self), seat, pin: false };
                Ok(Some((Arc::clone(model), lease)))
            }
            Some((_, Some(Err(error)))) => {
                let failure = Failure::fault(error);
                if self.manages() {
                    chair.failed = Some((Instant::now(), error.to_owned()));
                    chair.model = None;
                }
                Err(failure)
            }
            _ => match &chair.failed {
                // It was tried since this request has come; one that comes later has it tried again.
                Some((at, error)) if *at >= came => Err(Failure::fault(error)),
                _ => Ok(None),
            },
        }
    }

    /// Waits for the turn, then for room, then for the model.
    async fn bring(self: &Arc<Roster>, seat: usize, came: Instant) -> Result<Leased, Failure> {
        let _turn = self.turn.lock().await;
        loop {
            if let Some(found) = self.present(seat, came)? {
                self.trim(seat);
                return Ok(found);
            }
            match self.peek(seat) {
                Some(model) if model.state().is_none() => model.loaded().await,
                Some(_) => tokio::task::yield_now().await,
                None => {
                    self.make_room(seat).await?;
                    self.spawn(seat, false).map_err(|error| Failure::fault(format!("no thread: {error}")))?;
                }
            }
        }
    }

    /// Puts out what has to go before this model can come, the least recently used first. One with requests takes no more
    /// and goes when it has answered them.
    async fn make_room(self: &Arc<Roster>, seat: usize) -> Result<(), Failure> {
        loop {
            self.departed().await;
            let verdict = room::verdict(&self.chairs(), seat, &self.policy);
            match verdict.map_err(|problem| {
                Failure::new(axum::http::StatusCode::SERVICE_UNAVAILABLE, problem).code("no_room").retry(5)
            })? {
                Room::There => return Ok(()),
                Room::Loading(model) => model.loaded().await,
                Room::After(other) => {
                    let _leaving = Leaving::mark(self, other);
                    let mut changed = self.changed.subscribe();
                    while !self.dismiss(other) {
                        // Something holds it that has no end of its own: then another has to go.
                        if self.chairs().get(other).is_some_and(|chair| chair.pins > 0) {
                            break;
                        }
                        // The sender lives as long as the roster.
                        let _ = changed.changed().await;
                    }
                }
            }
        }
    }

    /// What the model takes is known now: puts idle ones out where that is more than was thought.
    fn trim(&self, seat: usize) {
        loop {
            let over = room::over(&self.chairs(), seat, &self.policy);
            if !over.is_some_and(|other| self.dismiss(other)) {
                return;
            }
        }
    }

    /// Waits until the memory of those that were put out is free.
    async fn departed(&self) {
        let departing = || self.departing.lock().unwrap_or_else(PoisonError::into_inner);
        let all = departing().clone();
        for mut gone in all {
            while gone.changed().await.is_ok() {}
        }
        departing().retain(|gone| gone.has_changed().is_ok());
    }

    /// Puts a model out; false while it has requests.
    pub fn dismiss(&self, seat: usize) -> bool {
        let model = {
            let mut chairs = self.chairs();
            let Some(chair) = chairs.get_mut(seat) else { return true };
            if chair.is_used() || chair.model.as_ref().is_some_and(|model| model.state().is_none()) {
                return false;
            }
            chair.leaving = false;
            chair.model.take()
        };
        self.see_off(model);
        true
    }

    /// Lets a model go that has no chair any more. Its thread ends when nobody who waits for an answer holds it.
    fn see_off(&self, model: Option<Arc<Model>>) {
        let Some(model) = model else { return };
        self.log.say("info", "unloaded", json!({"model": model.name}));
        self.departing.lock().unwrap_or_else(PoisonError::into_inner).push(model.gone());
        model.dismiss();
        drop(model);
        self.change();
    }

    /// From now on it stays so long behind its last request; where that is no time at all, it goes with the last of them.
    ///
    /// False: it has requests still.
    pub fn keep(&self, seat: usize, keep: Keep) -> bool {
        if !self.manages() {
            return true;
        }
        if let Some(chair) = self.chairs().get_mut(seat) {
            chair.keep = keep;
        }
        self.change();
        keep != Keep::For(Duration::ZERO) || self.dismiss(seat)
    }

    /// Puts models out when their time has come, for ever.
    pub async fn tend(&self) -> Infallible {
        let mut changed = self.changed.subscribe();
        loop {
            let (due, next) = room::due(&self.chairs(), Instant::now());
            for seat in due {
                self.dismiss(seat);
            }
            match next {
                Some(at) => tokio::select! {
                    () = tokio::time::sleep_until(at.into()) => {}
                    _ = changed.changed() => {}
                },
                None => drop(changed.changed().await),
            }
        }
    }

    /// Those that wait for a model are told that the server stops.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Cuts all work.
    pub fn halt(&self) {
        self.chairs().iter().filter_map(|chair| chair.model.as_ref()).for_each(|model| model.halt());
    }

    /// Begins to load a model, with its adapters.
    fn spawn(self: &Arc<Roster>, seat: usize, first: bool) -> std::io::Result<()> {
        let Some(own) = self.seats.get(seat) else { return Ok(()) };
        let (log, tell, failed) = (Arc::clone(&self.log), self.tell.clone(), self.failed.clone());
        let loaded = move |model: &Model| match model.state() {
            Some(Ok(facts)) => {
                let seconds = (facts.load_seconds * 1e3).round() / 1e3;
                log.say("info", "loaded", json!({"model": model.name, "seconds": seconds, "bytes": facts.most_bytes}));
                (tell.loaded)(model);
            }
            // What is there from the start must be well, or the server does not begin.
            Some(Err(error)) if first => drop(failed.send(error.to_owned())),
            Some(Err(error)) => log.say("error", "not loaded", json!({"model": model.name, "detail": error})),
            None => {}
        };
        let adapter =
            |(at, requests): &(AdapterAt, Counter)| (at.clone(), Arc::new(Adapter::new(&own.name, requests.clone())));
        let adapters = own.adapters.iter().map(adapter).collect();
        let loader = Arc::clone(&own.loader);
        let unloaded = Arc::clone(&self.tell.unloaded);
        let figures = (self.queue, own.figures.clone());
        let model = Model::spawn(own.name.clone(), loader, figures, adapters, (loaded, move |name| unloaded(name)))?;
        if let Some(chair) = self.chairs().get_mut(seat) {
            (chair.model, chair.used, chair.leaving) = (Some(model), Instant::now(), false);
        }
        self.change();
        Ok(())
    }
}

impl Lease {
    /// The model stays so long behind this request.
    pub fn keep(&self, keep: Keep) {
        if let Some(chair) = self.roster.chairs().get_mut(self.seat)
            && self.roster.manages()
        {
            chair.keep = keep;
        }
    }

    /// The model stays until this is dropped, and is not waited for by others.
    pub fn pinned(mut self) -> Lease {
        if let Some(chair) = self.roster.chairs().get_mut(self.seat) {
            (chair.users, chair.pins) = (chair.users.saturating_sub(1), chair.pins + 1);
        }
        self.pin = true;
        self.roster.change();
        self
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let gone = {
            let mut chairs = self.roster.chairs();
            let Some(chair) = chairs.get_mut(self.seat) else { return };
            let count = if self.pin { &mut chair.pins } else { &mut chair.users };
            *count = count.saturating_sub(1);
            chair.used = Instant::now();
            let goes = !chair.is_used() && chair.keep == Keep::For(Duration::ZERO);
            if goes { chair.model.take() } else { None }
        };
        self.roster.see_off(gone);
        self.roster.change();
    }
}

/// A model that takes no new requests, because another wants its room; it does again when that one has gone away.
struct Leaving<'r>(&'r Roster, usize);

impl Leaving<'_> {
    fn mark(roster: &Roster, seat: usize) -> Leaving<'_> {
        if let Some(chair) = roster.chairs().get_mut(seat) {
            chair.leaving = true;
        }
        Leaving(roster, seat)
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if let Some(chair) = self.0.chairs().get_mut(self.1) {
            chair.leaving = false;
        }
        self.0.change();
    }
}
