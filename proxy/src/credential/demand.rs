//! Canaries on demand: every credential is tried now, because somebody asks whether they work.
//!
//! One round at a time: whoever asks while one is under way waits for the next one together with all
//! others who do, so that asking often sends little. A round is bounded however many credentials there are and however
//! slowly the far ends answer, and every call in it is in the audit log like any other.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::canary::{self, CanaryView, Verdict};
use crate::gate::Gate;

/// A round ends after this; what has no answer by then is unknown.
const ROUND: Duration = Duration::from_secs(20);
/// Credentials that are tried at once.
const AT_ONCE: usize = 4;

/// When the last round began. Held while one is under way.
#[derive(Default)]
pub(super) struct Rounds(tokio::sync::Mutex<Option<Instant>>);

/// Tries every credential that has a canary, for `by`, unless a round that began after this call has
/// done so. What was found is in [`super::Vault::view`] then.
pub async fn try_now(gate: &Arc<Gate>, by: &str) {
    let asked = Instant::now();
    let mut last = gate.vault.demanded().0.lock().await;
    if last.is_some_and(|began| began >= asked) {
        return;
    }
    let began = Instant::now();
    let deadline = began + ROUND;
    gate.audit
        .event(&format!("canaries: {by} asks whether the credentials work"));
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let mut trying = JoinSet::new();
    for (credential, canary) in gate.vault.to_try(true) {
        let (gate, places) = (Arc::clone(gate), Arc::clone(&places));
        trying.spawn(async move {
            let call = async {
                // It is never closed.
                let _place = places.acquire().await;
                canary::test(&gate, &credential, &canary).await
            };
            let found = timeout_at(deadline, call).await.unwrap_or_else(|_| late());
            canary::note(&gate, &credential, found);
        });
    }
    while let Some(ended) = trying.join_next().await {
        if let Err(problem) = ended {
            tracing::error!("a canary failed: {problem}");
        }
    }
    *last = Some(began);
}

fn late() -> CanaryView {
    CanaryView {
        at: crate::audit::now(),
        verdict: Verdict::Unknown,
        text: format!("there was no answer within {} seconds", ROUND.as_secs()),
        clock_ahead_seconds: None,
    }
}
