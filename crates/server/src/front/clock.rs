//! The time that a connection takes: for a request's head, in silence, and without reading what it is sent.

use crate::limits::Limits;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Between two requests.
const SILENT: u8 = 0;
/// A request's head has begun.
const HEAD: u8 = 1;
/// A request is worked on.
const BUSY: u8 = 2;

/// What a connection does, and since when.
#[derive(Debug)]
pub struct Clock {
    begun: Instant,
    state: AtomicU8,
    since: AtomicU64,
    /// Since when nothing can be written, plus one; 0: it can.
    stalled: AtomicU64,
}

impl Clock {
    pub fn new() -> Arc<Clock> {
        let (state, since, stalled) = (AtomicU8::new(SILENT), AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Clock { begun: Instant::now(), state, since, stalled })
    }

    fn now(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    fn enter(&self, state: u8) {
        self.since.store(self.now(), Ordering::SeqCst);
        self.state.store(state, Ordering::SeqCst);
    }

    /// A request is worked on until the guard is dropped.
    pub fn busy(self: &Arc<Clock>) -> Busy {
        self.enter(BUSY);
        Busy(Arc::clone(self))
    }

    fn arrived(&self) {
        if self.state.load(Ordering::SeqCst) == SILENT {
            self.enter(HEAD);
        }
    }

    fn wrote(&self, written: bool) {
        if written {
            self.stalled.store(0, Ordering::SeqCst);
        } else {
            let _ = self.stalled.compare_exchange(0, self.now() + 1, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    /// When the connection is to be given up, as things are; None: not because of anything it does now.
    fn deadline(&self, limits: &Limits) -> Option<Duration> {
        let after = |from: u64, time: Duration| Duration::from_millis(from) + time;
        let since = self.since.load(Ordering::SeqCst);
        let own = match self.state.load(Ordering::SeqCst) {
            SILENT => Some(after(since, limits.idle)),
            HEAD => Some(after(since, limits.head_time)),
            _ => None,
        };
        let stalled = self.stalled.load(Ordering::SeqCst).checked_sub(1).map(|from| after(from, limits.idle));
        own.into_iter().chain(stalled).min()
    }

    /// Ends when the connection has taken too long for something.
    pub async fn expired(self: Arc<Clock>, limits: &Limits) {
        let look_again = limits.head_time.min(limits.idle) / 4;
        loop {
            let passed = self.begun.elapsed();
            match self.deadline(limits) {
                Some(deadline) if deadline <= passed => return,
                Some(deadline) => tokio::time::sleep((deadline - passed).min(look_again)).await,
                None => tokio::time::sleep(look_again).await,
            }
        }
    }
}

/// A request is worked on.
#[derive(Debug)]
pub struct Busy(Arc<Clock>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.enter(SILENT);
    }
}

/// A connection that tells its clock what happens.
#[derive(Debug)]
pub struct Timed<T> {
    pub inner: T,
    pub clock: Arc<Clock>,
}

impl<T: AsyncRead + Unpin> AsyncRead for Timed<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let outcome = Pin::new(&mut self.inner).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.clock.arrived();
        }
        outcome
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Timed<T> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.clock.wrote(outcome.is_ready());
        outcome
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.inner).poll_write_vectored(context, slices);
        self.clock.wrote(outcome.is_ready());
        outcome
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_has_its_time() {
        let limits = Limits::default();
        let clock = Clock::new();
        let about = |clock: &Clock| clock.deadline(&limits).map(|deadline| deadline.as_secs());
        assert_eq!(about(&clock), Some(60));
        clock.arrived();
        assert_eq!(about(&clock), Some(10));
        let busy = clock.busy();
        clock.arrived();
        assert_eq!(about(&clock), None);
        clock.wrote(false);
        assert_eq!(about(&clock), Some(60));
        clock.wrote(true);
        assert_eq!(about(&clock), None);
        drop(busy);
        assert_eq!(about(&clock), Some(60));
    }
}
