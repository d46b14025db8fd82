//! How many bytes all matchers of a vocabulary hold together, and how many they may.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The most bytes of what requests are held to, of all requests of a model together. One alone is bounded at 64 MiB by what
/// it may cost; a common schema takes some hundred KiB.
pub const MAX_BYTES: u64 = 512 << 20;

/// What is held, and what may be.
#[derive(Debug)]
pub(super) struct Ledger {
    held: AtomicU64,
    limit: u64,
}

/// A part of what is held, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Share {
    ledger: Arc<Ledger>,
    bytes: u64,
}

impl Ledger {
    pub fn new(limit: u64) -> Ledger {
        Ledger { held: AtomicU64::new(0), limit }
    }

    pub fn held(&self) -> u64 {
        self.held.load(Relaxed)
    }

    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Whether so many more bytes fit.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.held().saturating_add(bytes) <= self.limit
    }

    pub fn share(self: &Arc<Self>, bytes: u64) -> Share {
        self.held.fetch_add(bytes, Relaxed);
        Share { ledger: Arc::clone(self), bytes }
    }
}

impl Share {
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// It has grown, or become less.
    pub fn set(&mut self, bytes: u64) {
        match bytes >= self.bytes {
            true => self.ledger.held.fetch_add(bytes - self.bytes, Relaxed),
            false => self.ledger.held.fetch_sub(self.bytes - bytes, Relaxed),
        };
        self.bytes = bytes;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.ledger.held.fetch_sub(self.bytes, Relaxed);
    }
}
