//! What an exchange has carried so far, and the way to stop it from outside.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use policy::Caps;
use tokio::sync::Notify;

use crate::allowance::Reservation;

/// Which part of an exchange waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The request's body on its way out.
    Request,
    /// The answer: its head first, its body then.
    Answer,
}

/// Why an exchange was ended before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Cut {
    /// It is not permitted any more, or does not move.
    Forbidden = 1,
    /// Its request is longer than its rule permits.
    Request = 2,
    /// Its answer is.
    Answer = 3,
    /// It takes longer than its rule permits.
    Time = 4,
    /// There is nothing left of what its asker may take.
    Allowance = 5,
}

impl Cut {
    const ALL: [Self; 5] = [
        Self::Forbidden,
        Self::Request,
        Self::Answer,
        Self::Time,
        Self::Allowance,
    ];
}

/// Bytes that have gone by, readable from elsewhere while they do, and the switch that cuts the
/// exchange.
#[derive(Debug)]
pub struct Meter {
    sent: AtomicU64,
    received: AtomicU64,
    most_sent: AtomicU64,
    most_received: AtomicU64,
    complete: AtomicBool,
    /// A [`Cut`], or 0.
    cut: AtomicU8,
    /// Told when it is cut.
    alarm: Arc<Notify>,
    held: AtomicBool,
    waiting: AtomicBool,
    starved: AtomicBool,
    /// What its asker may take.
    reservation: OnceLock<Arc<Reservation>>,
    sleepers: Mutex<[Option<Waker>; 2]>,
}

impl Default for Meter {
    fn default() -> Self {
        Self::new(Arc::default())
    }
}

impl Meter {
    /// Without bounds. `alarm` is told when the exchange is cut.
    pub fn new(alarm: Arc<Notify>) -> Self {
        Self {
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            most_sent: AtomicU64::new(u64::MAX),
            most_received: AtomicU64::new(u64::MAX),
            complete: AtomicBool::new(false),
            cut: AtomicU8::new(0),
            alarm,
            held: AtomicBool::new(false),
            waiting: AtomicBool::new(false),
            starved: AtomicBool::new(false),
            reservation: OnceLock::new(),
            sleepers: Mutex::default(),
        }
    }

    /// Sets what may go by from now on; cuts where more has gone by already.
    pub fn bound(&self, caps: Caps) {
        let (sent, received) = (caps.request_bytes, caps.response_bytes);
        let most = |bound: Option<u64>| bound.unwrap_or(u64::MAX);
        self.most_sent.store(most(sent), Ordering::Release);
        self.most_received.store(most(received), Ordering::Release);
        if self.sent() > most(sent) {
            self.cut(Cut::Request);
        } else if self.received() > most(received) {
            self.cut(Cut::Answer);
        }
    }

    /// Lets no more go by than its asker may take. Once only.
    pub fn hold_to(&self, reservation: Arc<Reservation>) {
        // A second one would be of the same asker.
        let _ = self.reservation.set(reservation);
    }

    /// The most bytes of the request's body.
    pub fn most_sent(&self) -> u64 {
        self.most_sent.load(Ordering::Acquire)
    }

    /// The most bytes of the answer's body.
    pub fn most_received(&self) -> u64 {
        self.most_received.load(Ordering::Acquire)
    }

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

    /// Ends the exchange wherever it is. The first reason counts.
    pub fn cut(&self, why: Cut) {
        let order = (Ordering::AcqRel, Ordering::Acquire);
        // It was cut already, and everybody has been told.
        let _ = self.cut.compare_exchange(0, why as u8, order.0, order.1);
        self.wake();
        self.alarm.notify_one();
    }

    /// Whether it was cut.
    pub fn is_cut(&self) -> bool {
        self.why_cut().is_some()
    }

    /// Why it was cut, if it was.
    pub fn why_cut(&self) -> Option<Cut> {
        let why = self.cut.load(Ordering::Acquire);
        Cut::ALL.into_iter().find(|cut| *cut as u8 == why)
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

    /// Counts more of the request's body, if it may go by; else the exchange is cut.
    #[must_use]
    pub fn count_sent(&self, bytes: usize) -> bool {
        self.count(&self.sent, bytes, self.most_sent(), Cut::Request)
    }

    /// The same for the answer's body.
    #[must_use]
    pub fn count_received(&self, bytes: usize) -> bool {
        self.count(&self.received, bytes, self.most_received(), Cut::Answer)
    }

    fn count(&self, counter: &AtomicU64, bytes: usize, most: u64, why: Cut) -> bool {
        let more = u64::try_from(bytes).unwrap_or(u64::MAX);
        // Each direction is counted by one task alone.
        let fits = counter.load(Ordering::Relaxed).saturating_add(more) <= most;
        if !fits {
            self.cut(why);
            return false;
        }
        counter.fetch_add(more, Ordering::Relaxed);
        let all = self.sent().saturating_add(self.received());
        let left = self.reservation.get().is_none_or(|held| held.bytes(all));
        if !left {
            self.cut(Cut::Allowance);
        }
        left
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
