//! Descriptors, of which a process has only so many. What clients can make grow takes a place each,
//! their connections and those upstream; what the gate itself needs to refuse, to record and to be
//! asked is kept back, so that a crowd finds a refusal and not a gate that cannot open a file.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit};
use serde::Serialize;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::config::Limits;
use crate::delegate::delegate_write;

/// Kept back for the log, policies, credentials, the kernel's answers, look-ups over TCP, scrapers,
/// and clients that are told why they are not served.
const KEPT_BACK: usize = 256;
/// With fewer for its clients than this a gate is not worth starting.
const LEAST: usize = 64;
/// Runs have a socket each: at most this part of all descriptors.
const OF_RUNS: usize = 8;

/// The places.
#[derive(Debug)]
pub struct Descriptors {
    free: Arc<Semaphore>,
    most: usize,
    /// Runs that can be open at once beside them.
    pub runs: usize,
}

/// One place. Leaving is dropping.
#[derive(Debug)]
pub struct Descriptor(#[allow(dead_code, reason = "it is held")] OwnedSemaphorePermit);

/// What status says of them.
#[derive(Debug, Clone, Serialize)]
pub struct DescriptorsView {
    /// Whether one more connection can be served.
    pub ok: bool,
    /// Taken by connections of clients and to upstreams.
    pub used: usize,
    /// As many as there are for them.
    pub most: usize,
}

/// Why there are too few of them.
#[derive(Debug, thiserror::Error)]
pub enum DescriptorsError {
    #[error("reading how many descriptors the process may have")]
    Limit(#[source] io::Error),
    #[error(
        "the process may have {have} descriptors, and needs at least {need}\n  \
         hint: raise the limit (LimitNOFILE= of the unit, ulimit -n)"
    )]
    TooFew { have: usize, need: usize },
}

impl Descriptors {
    /// What this process's limit leaves, beside what is open already and what is kept back.
    ///
    /// # Errors
    /// [`DescriptorsError`]: a gate with so few would stall rather than refuse.
    pub fn of_process(limits: &Limits) -> Result<Self, DescriptorsError> {
        let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE)
            .map_err(|error| DescriptorsError::Limit(error.into()))?;
        let have = usize::try_from(soft).unwrap_or(usize::MAX);
        let open = std::fs::read_dir("/proc/self/fd").map_err(DescriptorsError::Limit)?;
        let runs = limits.runs.min(have / OF_RUNS);
        let kept = open.count() + KEPT_BACK + limits.control_connections + runs;
        let most = have.saturating_sub(kept);
        if most < LEAST {
            let need = (kept - runs + LEAST) * OF_RUNS / (OF_RUNS - 1) + 1;
            return Err(DescriptorsError::TooFew { have, need });
        }
        Ok(Self {
            runs,
            ..Self::new(most)
        })
    }

    /// So many, and any number of runs.
    #[must_use]
    pub fn new(most: usize) -> Self {
        let most = most.min(Semaphore::MAX_PERMITS);
        Self {
            free: Arc::new(Semaphore::new(most)),
            most,
            runs: usize::MAX,
        }
    }

    /// A place, if there is one.
    #[must_use]
    pub fn take(&self) -> Option<Descriptor> {
        let place = Arc::clone(&self.free).try_acquire_owned();
        place.ok().map(Descriptor)
    }

    /// A place, if one becomes free in this time.
    pub async fn take_within(&self, patience: Duration) -> Option<Descriptor> {
        let place = Arc::clone(&self.free).acquire_owned();
        let place = tokio::time::timeout(patience, place).await;
        place.ok()?.ok().map(Descriptor)
    }

    /// How things are.
    #[must_use]
    pub fn view(&self) -> DescriptorsView {
        let free = self.free.available_permits();
        DescriptorsView {
            ok: free > 0,
            used: self.most - free.min(self.most),
            most: self.most,
        }
    }
}

/// Whether the system has none left, for this process or for all.
#[must_use]
pub fn are_used_up(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// A stream that takes a place as long as it is open.
#[derive(Debug)]
pub(crate) struct Placed<IO> {
    pub(crate) io: IO,
    pub(crate) _place: Descriptor,
}

impl<IO: AsyncRead + Unpin> AsyncRead for Placed<IO> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_read(context, buffer)
    }
}

delegate_write!(Placed, io);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn places_are_given_until_there_are_none_and_again_when_some_are_left() {
        let places = Descriptors::new(2);
        let (one, two) = (places.take(), places.take());
        assert!(one.is_some() && two.is_some() && places.take().is_none());
        let view = places.view();
        assert!(!view.ok && view.used == 2 && view.most == 2, "{view:?}");
        assert!(places.take_within(Duration::from_millis(1)).await.is_none());
        drop(one);
        assert!(places.view().ok);
        assert!(places.take_within(Duration::from_secs(20)).await.is_some());
    }

    #[test]
    fn as_many_are_kept_back_as_the_limits_let_others_take() {
        let limits = Limits::default();
        let places = Descriptors::of_process(&limits).unwrap();
        let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        let kept = usize::try_from(soft).unwrap_or(usize::MAX) - places.view().most;
        assert!(kept >= KEPT_BACK + limits.control_connections + places.runs);
    }
}
