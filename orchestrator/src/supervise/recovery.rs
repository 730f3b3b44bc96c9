//! After a crash: what was live is killed, proven gone, ended as `lost`, and its ticket parked.

use std::sync::Arc;
use std::time::Duration;

use policy::grant::RunId;
use tokio::task::JoinSet;

use super::{Homes, Shared, carry};
use crate::container::Engine;
use crate::gate_client::chain;
use crate::model::run::Outcome;
use crate::model::{Run, RunStatus};
use crate::store::runs;

/// Starts one task per run that was live. Until it ends, the run holds its ticket and its agent, so
/// that no second run can start.
pub(super) async fn start<E: Engine, H: Homes>(
    shared: &Arc<Shared<E, H>>,
    tasks: &mut JoinSet<()>,
) {
    let left = loop {
        match shared.store.read(runs::holding).await {
            Ok(left) => break left,
            Err(error) => {
                tracing::error!(
                    error = chain(&error),
                    "live runs cannot be read; trying again"
                );
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    };
    for run in left {
        tracing::warn!(run = run.id, status = %run.status, "a run was left live; ending it");
        tasks.spawn(finish(Arc::clone(shared), run));
    }
}

async fn finish<E: Engine, H: Homes>(shared: Arc<Shared<E, H>>, row: Run) {
    let Ok(run) = RunId::parse(&row.id) else {
        return;
    };
    let outcome = Outcome {
        status: RunStatus::Lost,
        exit: None,
        reason: "the orchestrator ended while it ran".to_owned(),
        retry: false,
    };
    carry::end(&shared, &run, &row, outcome).await;
}
