//! Canaries on demand: every credential is tried now, because somebody asks whether they work.
//!
//! One round at a time: whoever asks while one is under way waits for the next one together with all
//! others who do, so that asking often sends little. A round is bounded however many credentials there are and however
//! slowly the far ends answer, and every call in it is in the audit log like any other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::canary::{self, CanaryView, Verdict};
use crate::gate::Gate;

/// A round ends after this; what has no answer by then is unknown. Whoever asks while one is under
/// way waits for two, which `canary --help` says.
const ROUND: Duration = Duration::from_secs(20);
/// Credentials that are tried at once.
const AT_ONCE: usize = 4;

/// When the last round began. Held while one is under way.
#[derive(Default)]
pub(super) struct Rounds(Arc<tokio::sync::Mutex<Option<Instant>>>);

/// Tries every credential that has a canary, for `by`, unless a round that began after this call has
/// done so. What was found is in [`super::Vault::view`] then.
pub async fn try_now(gate: &Arc<Gate>, by: &str) {
    let asked = Instant::now();
    let last = Arc::clone(&gate.vault.demanded().0);
    let mut last = last.lock_owned().await;
    if last.is_some_and(|began| began >= asked) {
        return;
    }
    let (gate, by) = (Arc::clone(gate), by.to_owned());
    // A task of its own: a round goes on to its end though nobody waits for it any more.
    let round = tokio::spawn(async move {
        *last = Some(round(&gate, &by).await);
    });
    if let Err(problem) = round.await {
        tracing::error!("a round of canaries failed: {problem}");
    }
}

/// Tries all; when it began.
async fn round(gate: &Arc<Gate>, by: &str) -> Instant {
    let began = Instant::now();
    let deadline = began + ROUND;
    gate.audit
        .event(&format!("canaries: {by} asks whether the credentials work"));
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let mut trying = JoinSet::new();
    for (credential, canary) in gate.vault.to_try(true) {
        let (gate, places) = (Arc::clone(gate), Arc::clone(&places));
        trying.spawn(async move {
            let begun = AtomicBool::new(false);
            let call = async {
                // It is never closed.
                let _place = places.acquire().await;
                // The places of those who had no answer are free when the time is over.
                if Instant::now() >= deadline {
                    return late(false);
                }
                begun.store(true, Ordering::Relaxed);
                canary::test(&gate, &credential, &canary).await
            };
            let found = timeout_at(deadline, call).await;
            let found = found.unwrap_or_else(|_| late(begun.load(Ordering::Relaxed)));
            canary::note(&gate, &credential, found);
        });
    }
    while let Some(ended) = trying.join_next().await {
        if let Err(problem) = ended {
            tracing::error!("a canary failed: {problem}");
        }
    }
    began
}

/// What is found of a credential for which the time was over; `begun` says that it had its turn.
fn late(begun: bool) -> CanaryView {
    let seconds = ROUND.as_secs();
    CanaryView {
        at: crate::audit::now(),
        verdict: Verdict::Unknown,
        text: match begun {
            true => format!("there was no answer within {seconds} seconds"),
            false => {
                format!("not tried: others took the {seconds} seconds that there are for all")
            }
        },
        clock_ahead_seconds: None,
    }
}
