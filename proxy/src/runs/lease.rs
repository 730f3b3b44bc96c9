//! The clock of a lease: monotonic, one sleeping task per run.

use std::sync::Arc;

use super::{Run, Runs};

/// Ends the run when its deadline passes without having been moved.
pub(super) fn watch(runs: Arc<Runs>, run: Arc<Run>) {
    let mut deadline = run.deadline.subscribe();
    let mut closed = run.closed();
    tokio::spawn(async move {
        loop {
            let until = *deadline.borrow_and_update();
            tokio::select! {
                () = tokio::time::sleep_until(until) => runs.expire(&run),
                // The senders live in `run`, which this task holds.
                _ = deadline.changed() => {}
                _ = closed.wait_for(|closed| *closed) => return,
            }
            if *closed.borrow() {
                return;
            }
        }
    });
}
