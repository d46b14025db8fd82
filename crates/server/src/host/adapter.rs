//! Adapters of a served model: each is asked for by a name of its own, as if it were a model, and computed by the model's
//! thread beside everything else that it has to do.

use attend_engine::Variant;
use prometheus_client::metrics::counter::Counter;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Where an adapter lies, and by what its own scale is multiplied.
#[derive(Debug, Clone, PartialEq)]
pub struct AdapterAt {
    pub name: String,
    pub path: PathBuf,
    pub strength: f64,
}

/// An adapter in memory.
#[derive(Debug, Clone)]
pub struct Held {
    pub variant: Variant,
    /// Bytes of its own weights.
    pub bytes: u64,
    /// What was assumed because its files do not say it.
    pub notices: Vec<String>,
}

/// An adapter, which may still be loading.
#[derive(Debug)]
pub struct Adapter {
    /// The name of its model.
    pub base: String,
    pub requests: Counter,
    held: OnceLock<Held>,
}

impl Adapter {
    pub fn new(base: &str, requests: Counter) -> Adapter {
        Adapter { base: base.to_owned(), requests, held: OnceLock::new() }
    }

    /// It is in memory.
    pub fn set(&self, held: Held) {
        // It is brought there once.
        let _ = self.held.set(held);
    }

    /// None while it is being loaded.
    pub fn held(&self) -> Option<&Held> {
        self.held.get()
    }
}
