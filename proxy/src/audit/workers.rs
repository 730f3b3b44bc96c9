//! Whether the gate's threads are all at work. While one of them is idle, what waits for the disk is
//! synced at once; while none is, a sync is shared by all that come within a millisecond, since each
//! costs the processor as much as several requests.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use super::keeper::Sleep;
use super::shared::Shared;

/// Told by the runtime when its threads fall idle and when they go on.
#[derive(Default)]
pub struct Workers {
    idle: AtomicUsize,
    log: OnceLock<Weak<Shared>>,
}

impl std::fmt::Debug for Workers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workers")
            .field("idle", &self.idle)
            .finish_non_exhaustive()
    }
}

impl Workers {
    /// Has a runtime tell of its threads.
    pub fn of(runtime: &mut tokio::runtime::Builder) -> Arc<Self> {
        let workers = Arc::<Self>::default();
        let (parks, unparks) = (Arc::clone(&workers), Arc::clone(&workers));
        runtime
            .on_thread_park(move || parks.falls_idle())
            .on_thread_unpark(move || unparks.goes_on());
        workers
    }

    /// A thread has nothing to do.
    fn falls_idle(&self) {
        self.idle.fetch_add(1, Ordering::SeqCst);
        if let Some(log) = self.log.get().and_then(Weak::upgrade) {
            log.hurry();
        }
    }

    /// It has something to do again.
    fn goes_on(&self) {
        self.idle.fetch_sub(1, Ordering::SeqCst);
    }

    pub(super) fn is_one_idle(&self) -> bool {
        self.idle.load(Ordering::SeqCst) > 0
    }

    /// The log to be told.
    pub(super) fn tell(&self, log: &Arc<Shared>) {
        // The first log of a process is the gate's.
        let _ = self.log.set(Arc::downgrade(log));
    }
}

impl Shared {
    /// Nobody comes to share a sync any more for now.
    fn hurry(&self) {
        if self.gathering.load(Ordering::SeqCst) {
            let state = self.lock();
            if matches!(state.sleep, Sleep::Gathering(_)) {
                self.work.notify_one();
            }
        }
    }
}
