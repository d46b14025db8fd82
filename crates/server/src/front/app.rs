//! What all requests share.

use super::guard::Keys;
use super::log::Log;
use crate::failure::Failure;
use crate::figures::Figures;
use crate::host::Model;
use crate::host::adapter::Adapter;
use crate::host::roster::{Lease, Roster};
use crate::limits::Limits;
use axum::http::StatusCode;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// What a request may name: a model, or an adapter of one.
#[derive(Debug)]
pub struct Entry {
    pub name: String,
    /// Other names for the same.
    pub aliases: Vec<String>,
    /// Seconds of Unix time.
    pub created: u64,
    pub seat: usize,
    pub adapter: Option<Attach>,
}

/// An adapter that may be named.
#[derive(Debug)]
pub struct Attach {
    /// The name of its model.
    pub base: String,
    /// What a request has loaded, with what keeps its model in memory; None: it comes with its model.
    pub own: Option<(Arc<Adapter>, Lease)>,
    /// How much it counts in requests to its model that do not say it themselves, as the bits of a f64.
    scale: AtomicU64,
}

impl Attach {
    pub fn new(base: &str, own: Option<(Arc<Adapter>, Lease)>) -> Attach {
        Attach { base: base.to_owned(), own, scale: AtomicU64::new(0.0f64.to_bits()) }
    }
}

impl Entry {
    pub fn answers_to(&self, name: &str) -> bool {
        self.name == name || self.aliases.iter().any(|alias| alias == name)
    }

    /// The model under this name, of one that is in memory.
    pub fn of(&self, model: Arc<Model>) -> Option<Arc<Model>> {
        let adapter = match &self.adapter {
            None => return Some(model),
            Some(Attach { own: Some((adapter, _)), .. }) => Arc::clone(adapter),
            Some(Attach { own: None, .. }) => model.attached(&self.name)?,
        };
        Some(model.with_adapter(self.name.clone(), adapter))
    }
}

/// The server as its requests see it.
#[derive(Debug)]
pub struct App {
    /// The models in their order, and their adapters behind them.
    entries: RwLock<Vec<Arc<Entry>>>,
    pub roster: Arc<Roster>,
    /// Where adapters may be loaded from while it runs; None: nowhere.
    pub adapters: Option<PathBuf>,
    pub limits: Limits,
    pub keys: Keys,
    /// It listens on this machine only.
    pub loopback: bool,
    pub figures: Figures,
    pub log: Arc<Log>,
    stopping: AtomicBool,
    salt: u64,
    requests: AtomicU64,
}

impl App {
    pub fn new(
        (entries, roster): (Vec<Arc<Entry>>, Arc<Roster>),
        limits: Limits,
        (keys, loopback): (Keys, bool),
        (figures, log): (Figures, Arc<Log>),
    ) -> App {
        let salt = attend_engine::rng::fresh_seed();
        let (stopping, requests) = (AtomicBool::new(false), AtomicU64::new(0));
        let entries = RwLock::new(entries);
        App { entries, roster, adapters: None, limits, keys, loopback, figures, log, stopping, salt, requests }
    }

    /// The same, which loads adapters from this folder when it is asked to.
    pub fn with_adapters(self, folder: Option<PathBuf>) -> App {
        App { adapters: folder, ..self }
    }

    /// Everything that a request may name: the models, and their adapters behind them.
    pub fn entries(&self) -> Vec<Arc<Entry>> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The models without their adapters.
    pub fn bases(&self) -> Vec<Arc<Entry>> {
        let mut entries = self.entries();
        entries.retain(|entry| entry.adapter.is_none());
        entries
    }

    /// The adapters of a model in the order of their numbers, with how much each counts in requests that do not say it.
    pub fn adapters_of(&self, base: &str) -> Vec<(Arc<Entry>, f64)> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let own = |entry: &Arc<Entry>| {
            let attach = entry.adapter.as_ref().filter(|attach| attach.base == base)?;
            Some((Arc::clone(entry), f64::from_bits(attach.scale.load(Ordering::Relaxed))))
        };
        entries.iter().filter_map(own).collect()
    }

    /// Says how much each adapter of a model counts from now on in requests that do not say it: no request sees some of
    /// the old scales and some of the new.
    ///
    /// # Errors
    /// Whatever `scales` says of the adapters that there are.
    pub fn set_scales<E>(&self, base: &str, scales: impl FnOnce(usize) -> Result<Vec<f64>, E>) -> Result<(), E> {
        self.change(|entries| {
            let own = || entries.iter().filter_map(|entry| entry.adapter.as_ref()).filter(|own| own.base == base);
            for (attach, scale) in own().zip(scales(own().count())?) {
                attach.scale.store(scale.to_bits(), Ordering::Relaxed);
            }
            Ok(())
        })
    }

    /// What has this name, or the first model where none is named.
    ///
    /// # Errors
    /// A name that nothing has.
    pub fn entry(&self, name: Option<&str>) -> Result<Arc<Entry>, Failure> {
        let entries = self.entries();
        let found = match name {
            Some(name) => entries.iter().find(|entry| entry.answers_to(name)),
            None => entries.first(),
        };
        found.cloned().ok_or_else(|| {
            let shown: String = name.unwrap_or_default().chars().take(120).collect();
            let known: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
            let message = format!("there is no model {shown:?}; this server has {}", known.join(", "));
            let status = StatusCode::NOT_FOUND;
            Failure { param: Some("model".into()), ..Failure::new(status, message) }.code("model_not_found")
        })
    }

    /// The model of an entry as it is in memory, or on its way there. Whoever looks must not keep it.
    pub fn look(&self, entry: &Entry) -> Option<Arc<Model>> {
        self.roster.peek(entry.seat).and_then(|model| entry.of(model))
    }

    /// What the model of an entry does, in a word or some.
    pub fn status(&self, entry: &Entry) -> &'static str {
        match (self.roster.trouble(entry.seat), self.roster.peek(entry.seat)) {
            (Some(trouble), _) => trouble,
            (None, None) => "unloaded",
            (None, Some(model)) => model.trouble().unwrap_or("ready"),
        }
    }

    /// The model of an entry for a request, which keeps it in memory.
    ///
    /// # Errors
    /// As [`Roster::lease`].
    pub async fn lease(&self, entry: &Entry) -> Result<(Arc<Model>, Lease), Failure> {
        let (model, lease) = self.roster.lease(entry.seat).await?;
        let model = entry.of(model).ok_or_else(|| Failure::fault("an adapter did not come with its model"))?;
        Ok((model, lease))
    }

    /// Changes what may be named, while nobody looks.
    pub fn change<T>(&self, change: impl FnOnce(&mut Vec<Arc<Entry>>) -> T) -> T {
        change(&mut self.entries.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes no new work from now on.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.roster.stop();
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// A name for a request that no other has.
    pub fn fresh_id(&self) -> String {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        // The multiplier is odd, so that different numbers stay different.
        let mixed = (self.salt ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        format!("{mixed:016x}{:08x}", (self.salt >> 21) as u32 ^ number as u32)
    }
}
