//! Whether the threads that serve are all at work: while they are, a sync loses nothing by waiting for
//! company, since nobody could do anything with its result before others are done.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use super::shared::Shared;

/// The threads of one runtime, as the log sees them.
#[allow(
    missing_debug_implementations,
    reason = "there is nothing to see in it"
)]
#[derive(Default)]
pub struct Workers {
    idle: AtomicUsize,
    /// The log's thread waits for one of them to have nothing to do.
    awaited: AtomicBool,
    log: OnceLock<Weak<Shared>>,
}

impl Workers {
    /// Those of the runtime that is about to be built.
    #[must_use]
    pub fn of(runtime: &mut tokio::runtime::Builder) -> Arc<Self> {
        let workers = Arc::new(Self::default());
        let (parking, waking) = (Arc::clone(&workers), Arc::clone(&workers));
        runtime
            .on_thread_park(move || parking.rest())
            .on_thread_unpark(move || waking.resume());
        workers
    }

    /// The log that asks.
    pub(super) fn tell(&self, log: &Arc<Shared>) {
        // A second log of the same threads waits for company as one that knows of none does.
        let _ = self.log.set(Arc::downgrade(log));
    }

    pub(super) fn is_any_idle(&self) -> bool {
        self.idle.load(Ordering::SeqCst) > 0
    }

    /// Says whether the log's thread wants to be woken when one of them rests. Called with the log's
    /// state held, before it is looked whether one does.
    pub(super) fn await_one(&self, wanted: bool) {
        self.awaited.store(wanted, Ordering::SeqCst);
    }

    fn rest(&self) {
        self.idle.fetch_add(1, Ordering::SeqCst);
        if self.awaited.load(Ordering::SeqCst)
            && let Some(log) = self.log.get().and_then(Weak::upgrade)
        {
            // With the state held, so that it cannot fall between the look and the sleep.
            let _state = log.lock();
            log.work.notify_one();
        }
    }

    fn resume(&self) {
        self.idle.fetch_sub(1, Ordering::SeqCst);
    }
}
