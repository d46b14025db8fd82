//! The bound on requests that wait.

use prometheus_client::metrics::gauge::Gauge;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the requests of a model that have not begun.
#[derive(Debug)]
pub struct Queue {
    waiting: AtomicUsize,
    most: usize,
    gauge: Gauge,
}

/// A place in the queue; given up when it is dropped.
#[derive(Debug)]
pub struct Place(Arc<Queue>);

impl Queue {
    pub fn new(most: usize, gauge: Gauge) -> Arc<Queue> {
        Arc::new(Queue { waiting: AtomicUsize::new(0), most, gauge })
    }

    pub fn most(&self) -> usize {
        self.most
    }

    /// A place, if there is one.
    pub fn enter(self: &Arc<Queue>) -> Option<Place> {
        let more = |waiting: usize| (waiting < self.most).then_some(waiting + 1);
        self.waiting.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).ok()?;
        self.gauge.inc();
        Some(Place(Arc::clone(self)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
        self.0.gauge.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_and_given_back() {
        let queue = Queue::new(2, Gauge::default());
        let (first, second) = (queue.enter(), queue.enter());
        assert!(first.is_some() && second.is_some() && queue.enter().is_none());
        drop(first);
        assert!(queue.enter().is_some());
        drop(second);
        assert_eq!(queue.gauge.get(), 0);
    }
}
