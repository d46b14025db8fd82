//! What all requests share.

use super::guard::Keys;
use super::log::Log;
use crate::failure::Failure;
use crate::figures::Figures;
use crate::host::Model;
use crate::limits::Limits;
use axum::http::StatusCode;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// The server as its requests see it.
#[derive(Debug)]
pub struct App {
    /// The models in their order, and their adapters behind them.
    models: RwLock<Vec<Arc<Model>>>,
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
        models: Vec<Arc<Model>>,
        limits: Limits,
        (keys, loopback): (Keys, bool),
        (figures, log): (Figures, Arc<Log>),
    ) -> App {
        let salt = attend_engine::rng::fresh_seed();
        let (stopping, requests) = (AtomicBool::new(false), AtomicU64::new(0));
        let models = RwLock::new(models);
        App { models, adapters: None, limits, keys, loopback, figures, log, stopping, salt, requests }
    }

    /// The same, which loads adapters from this folder when it is asked to.
    pub fn with_adapters(self, folder: Option<PathBuf>) -> App {
        App { adapters: folder, ..self }
    }

    /// Everything that a request may name: the models, and their adapters behind them.
    pub fn models(&self) -> Vec<Arc<Model>> {
        self.models.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The models without their adapters.
    pub fn bases(&self) -> Vec<Arc<Model>> {
        let mut models = self.models();
        models.retain(|model| model.adapter.is_none());
        models
    }

    /// The model of this name, or the first where none is named.
    ///
    /// # Errors
    /// A name that no model has.
    pub fn model(&self, name: Option<&str>) -> Result<Arc<Model>, Failure> {
        let models = self.models();
        let found = match name {
            Some(name) => models.iter().find(|model| model.name == name),
            None => models.first(),
        };
        found.cloned().ok_or_else(|| {
            let shown: String = name.unwrap_or_default().chars().take(120).collect();
            let known: Vec<&str> = models.iter().map(|model| model.name.as_str()).collect();
            let message = format!("there is no model {shown:?}; this server has {}", known.join(", "));
            let status = StatusCode::NOT_FOUND;
            Failure { param: Some("model".into()), ..Failure::new(status, message) }.code("model_not_found")
        })
    }

    /// Changes what may be named, while nobody looks.
    pub fn change<T>(&self, change: impl FnOnce(&mut Vec<Arc<Model>>) -> T) -> T {
        change(&mut self.models.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes no new work from now on.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
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
