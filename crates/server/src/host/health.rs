//! Whether a model answers.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// So many requests in a row that failed by our fault mean that the next one will, too.
const POISONED: u32 = 3;

/// What is known about a model's thread.
#[derive(Debug, Default)]
pub struct Health {
    halted: AtomicBool,
    ended: AtomicBool,
    wrong: AtomicU32,
}

impl Health {
    /// Running work is to be cut.
    pub fn halt(&self) {
        self.halted.store(true, Ordering::SeqCst);
    }

    pub fn is_halted(&self) -> bool {
        self.halted.load(Ordering::SeqCst)
    }

    /// The thread is gone.
    pub fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
    }

    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    pub fn went_well(&self) {
        self.wrong.store(0, Ordering::SeqCst);
    }

    pub fn went_wrong(&self) {
        self.wrong.fetch_add(1, Ordering::SeqCst);
    }

    /// Why nothing good is to be expected, if so.
    pub fn trouble(&self) -> Option<&'static str> {
        if self.has_ended() {
            return Some("its thread has ended");
        }
        (self.wrong.load(Ordering::SeqCst) >= POISONED)
            .then_some("its last requests failed by a fault of the server or its weights")
    }
}
