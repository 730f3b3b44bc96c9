//! Keeps routines going: looks when a slot is due, to the second.

use std::time::Duration;

use tokio::sync::watch;

use crate::gate_client::chain;
use crate::model::Actor;
use crate::store::{Store, routines};

/// Looks until `stop` turns true. A slot that cannot be recorded is tried again.
pub async fn keep(store: Store, mut stop: watch::Receiver<bool>) {
    while !*stop.borrow() {
        let due = store.read(routines::next).await;
        let worked = match due {
            Ok(Some(due)) if due <= store.now() => store
                .write(Actor::System, routines::tick)
                .await
                .map(|()| true),
            Ok(_) => Ok(false),
            Err(error) => Err(error),
        };
        match worked {
            // There may be more of them.
            Ok(true) => continue,
            Ok(false) => {}
            Err(error) => tracing::error!(error = chain(&error), "routines stand still"),
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
            _changed = stop.changed() => {}
        }
    }
}
