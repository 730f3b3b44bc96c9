//! What an exchange has carried so far, and the way to stop it from outside.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Which part of an exchange waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The request's body on its way out.
    Request,
    /// The answer: its head first, its body then.
    Answer,
}

/// Bytes that have gone by, readable from elsewhere while they do, and the switch that cuts the
/// exchange.
#[derive(Debug, Default)]
pub struct Meter {
    sent: AtomicU64,
    received: AtomicU64,
    complete: AtomicBool,
    cut: AtomicBool,
    held: AtomicBool,
    waiting: AtomicBool,
    starved: AtomicBool,
    sleepers: Mutex<[Option<Waker>; 2]>,
}

impl Meter {
    /// Bytes of the request's body so far.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Bytes of the answer's body so far.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Whether the request's body has been read to its end.
    pub fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Acquire)
    }

    /// Ends the exchange wherever it is.
    pub fn cut(&self) {
        self.cut.store(true, Ordering::Release);
        self.wake();
    }

    /// Whether it was cut.
    pub fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Acquire)
    }

    /// Ready once the exchange is cut; else `part` is woken when it is.
    pub fn poll_cut(&self, part: Part, context: &Context<'_>) -> Poll<()> {
        if self.is_cut() {
            return Poll::Ready(());
        }
        self.sleep(part, context);
        if self.is_cut() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    /// Ends once the exchange is cut.
    pub async fn until_cut(&self) {
        std::future::poll_fn(|context| self.poll_cut(Part::Answer, context)).await;
    }

    /// Keeps the request's body back until [`Meter::release`].
    pub fn hold(&self) {
        self.held.store(true, Ordering::Release);
    }

    /// Lets the request's body go.
    pub fn release(&self) {
        if self.held.swap(false, Ordering::AcqRel) {
            self.wake();
        }
    }

    /// Whether the request's body is kept back.
    pub fn is_held(&self) -> bool {
        self.held.load(Ordering::Acquire)
    }

    /// Whether the gate waits for the upstream's head, which has a deadline of its own.
    pub fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Says whether it does.
    pub fn set_waiting(&self, waiting: bool) {
        self.waiting.store(waiting, Ordering::Relaxed);
    }

    /// Whether more of the request's body was asked for and its client has not sent it.
    pub fn is_starved(&self) -> bool {
        self.starved.load(Ordering::Relaxed)
    }

    /// Says whether that is so.
    pub fn set_starved(&self, starved: bool) {
        self.starved.store(starved, Ordering::Relaxed);
    }

    /// More of the request's body has gone by.
    pub fn count_sent(&self, bytes: usize) {
        let more = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.sent.fetch_add(more, Ordering::Relaxed);
    }

    /// More of the answer's body has gone by.
    pub fn count_received(&self, bytes: usize) {
        let more = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.received.fetch_add(more, Ordering::Relaxed);
    }

    /// The request's body has been read to its end.
    pub fn finish(&self) {
        self.complete.store(true, Ordering::Release);
    }

    fn sleep(&self, part: Part, context: &Context<'_>) {
        let mut sleepers = self.sleepers();
        let place = match part {
            Part::Request => &mut sleepers[0],
            Part::Answer => &mut sleepers[1],
        };
        match place {
            Some(waker) => waker.clone_from(context.waker()),
            None => *place = Some(context.waker().clone()),
        }
    }

    fn wake(&self) {
        let sleepers = std::mem::take(&mut *self.sleepers());
        sleepers.into_iter().flatten().for_each(Waker::wake);
    }

    fn sleepers(&self) -> MutexGuard<'_, [Option<Waker>; 2]> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
