//! Adapters of a served model: each is asked for by a name of its own, as if it were a model, and computed by the model's
//! thread beside everything else that it has to do.

use attend_engine::Variant;
use prometheus_client::metrics::counter::Counter;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

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
    /// What the variant was made of, for requests that want it stronger or weaker, or several at once.
    pub source: Arc<attend_model::Adapter>,
    /// How strong the variant has it.
    pub strength: f64,
    /// Bytes of its own weights.
    pub bytes: u64,
    /// What was assumed because its files do not say it.
    pub notices: Vec<String>,
}

/// An adapter as strong as a request wants it.
#[derive(Debug, Clone)]
pub struct Scaled {
    pub adapter: Arc<Adapter>,
    pub scale: f64,
}

/// An adapter, which may still be loading.
#[derive(Debug)]
pub struct Adapter {
    /// The name of its model.
    pub base: String,
    pub requests: Counter,
    held: OnceLock<Held>,
    left: AtomicBool,
}

impl Adapter {
    pub fn new(base: &str, requests: Counter) -> Adapter {
        Adapter { base: base.to_owned(), requests, held: OnceLock::new(), left: AtomicBool::new(false) }
    }

    /// It is in memory.
    pub fn set(&self, held: Held) {
        // It is brought there once.
        let _ = self.held.set(held);
    }

    /// Nobody can name it any more.
    pub fn leave(&self) {
        self.left.store(true, Ordering::SeqCst);
    }

    pub fn has_left(&self) -> bool {
        self.left.load(Ordering::SeqCst)
    }

    /// None while it is being loaded.
    pub fn held(&self) -> Option<&Held> {
        self.held.get()
    }
}
