//! Masks that take long are made beside the steps: a matcher that is known to be slow goes to a thread as soon as its token is
//! chosen, finds what may come next while the token is computed, and is taken back before the next one is drawn.

use super::Matcher;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

/// Threads that look for tokens. They are started when the first matcher is slow, and end with the schedule.
#[derive(Debug, Default)]
pub(crate) struct Beside(OnceLock<Option<Sender<Arc<Slot>>>>);

/// Where a matcher is looked for.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    place: Mutex<Place>,
    back: Condvar,
}

#[derive(Debug, Default)]
enum Place {
    /// With a thread.
    #[default]
    Away,
    Waiting(Box<Matcher>),
    Back(Box<Matcher>),
}

/// A choice's matcher, wherever it is.
#[derive(Debug)]
pub(crate) enum Held {
    Here(Box<Matcher>),
    Away(Arc<Slot>),
}

impl Beside {
    /// The way to the threads; none where the system gives none.
    fn threads(&self) -> Option<&Sender<Arc<Slot>>> {
        let start = || {
            let (sender, slots) = channel();
            let slots = Arc::new(Mutex::new(slots));
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            let begun = (0..(cores / 4).clamp(1, 4)).filter(|_| spawn(Arc::clone(&slots))).count();
            (begun > 0).then_some(sender)
        };
        self.0.get_or_init(start).as_ref()
    }
}

fn spawn(slots: Arc<Mutex<Receiver<Arc<Slot>>>>) -> bool {
    let work = move || {
        loop {
            let next = slots.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(slot) = next else { return };
            // A slot of a request that is gone is nobody else's.
            if Arc::strong_count(&slot) > 1 {
                slot.look();
            }
        }
    };
    std::thread::Builder::new().name("constraints".into()).spawn(work).is_ok()
}

impl Slot {
    fn place(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the thread does. A matcher catches its own panics.
    fn look(&self) {
        let Some(mut matcher) = self.begin() else { return };
        matcher.look();
        *self.place() = Place::Back(matcher);
        self.back.notify_all();
    }

    /// The matcher, unless it was taken back already.
    fn begin(&self) -> Option<Box<Matcher>> {
        match std::mem::take(&mut *self.place()) {
            Place::Waiting(matcher) => Some(matcher),
            Place::Away | Place::Back(_) => None,
        }
    }

    /// The matcher, if it is back.
    fn take(&self) -> Option<Box<Matcher>> {
        let mut place = self.place();
        match std::mem::take(&mut *place) {
            Place::Back(matcher) => Some(matcher),
            other => {
                *place = other;
                None
            }
        }
    }

    /// The matcher: waits for it, and where no thread has begun with it looks itself.
    fn wait(&self) -> Box<Matcher> {
        let mut place = self.place();
        loop {
            match std::mem::take(&mut *place) {
                Place::Back(matcher) | Place::Waiting(matcher) => return matcher,
                Place::Away => place = self.back.wait(place).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

impl Held {
    pub fn new(matcher: Matcher) -> Held {
        Held::Here(Box::new(matcher))
    }

    /// Sends a slow matcher away to find what may come next.
    pub fn send(&mut self, beside: &Beside) {
        if !self.get().is_some_and(Matcher::is_slow) {
            return;
        }
        let Some(threads) = beside.threads() else { return };
        let slot = Arc::new(Slot::default());
        let Held::Here(matcher) = std::mem::replace(self, Held::Away(Arc::clone(&slot))) else { return };
        *slot.place() = Place::Waiting(matcher);
        // Where the threads are gone the matcher looks when it is waited for.
        let _ = threads.send(slot);
    }

    /// Whether it is here, or has come back.
    pub fn is_here(&mut self) -> bool {
        if let Held::Away(slot) = self
            && let Some(matcher) = slot.take()
        {
            *self = Held::Here(matcher);
        }
        matches!(self, Held::Here(_))
    }

    /// The matcher, which is waited for where it is away.
    pub fn here(&mut self) -> &mut Matcher {
        if let Held::Away(slot) = self {
            *self = Held::Here(slot.wait());
        }
        let Held::Here(matcher) = self else { unreachable!("it has just been taken back") };
        matcher
    }

    /// The matcher, where it is here.
    pub fn get(&self) -> Option<&Matcher> {
        match self {
            Held::Here(matcher) => Some(matcher),
            Held::Away(_) => None,
        }
    }
}
