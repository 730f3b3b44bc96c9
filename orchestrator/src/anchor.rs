//! Anchors: the checkpoints of the gate's audit log, kept in the journal, which the gate cannot
//! write. They show a log that was cut back to an earlier clean close (`audit verify --anchors`).
//!
//! The orchestrator only reads them. It asks the gate now and then, so a gate that is away costs
//! nothing but a later anchor; one that falls back behind its last anchor is said out loud.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;

use crate::gate_client::GateClient;
use crate::model::Actor;
use crate::store::journal::{self, About};
use crate::store::{Store, StoreError};

/// The journal's word for an anchor.
pub const KIND: &str = "audit.checkpoint";
/// The journal's word for a log that fell back.
pub const FELL_BACK: &str = "audit.fell_back";
/// How often the gate is asked.
const EVERY: Duration = Duration::from_secs(10);
/// A statement is a few lines; more than this is none.
const STATEMENT_BYTES_MAX: usize = 64 * 1024;

/// What happened to a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// It is in the journal now.
    Anchored,
    /// It was there.
    Known,
    /// It stands before one that was anchored earlier, or differs from the one of the same line.
    FellBack,
    /// It is no checkpoint.
    Unreadable,
}

/// Keeps anchors until `stopped`.
pub async fn keep(store: Store, gate: GateClient, mut stopped: watch::Receiver<bool>) {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = stopped.wait_for(|stopped| *stopped) => return,
        }
        // None yet; and a gate that is away is told by others.
        let Ok(Some(record)) = gate.checkpoint().await else {
            continue;
        };
        match anchor(&store, &record).await {
            Ok(Kept::FellBack) => {
                tracing::error!(
                    "the gate's audit log stands before a line that was anchored: it was cut back \
                     or written anew (portcullis audit verify --anchors)"
                );
            }
            Ok(Kept::Unreadable) => tracing::error!("the gate's checkpoint cannot be read"),
            Ok(Kept::Anchored | Kept::Known) => {}
            Err(error) => tracing::error!("a checkpoint could not be anchored: {error}"),
        }
    }
}

/// Puts a checkpoint record into the journal, unless it is there.
///
/// # Errors
/// What the store says.
pub async fn anchor(store: &Store, record: &Value) -> Result<Kept, StoreError> {
    let Some((seq, head, statement)) = parts(record) else {
        return Ok(Kept::Unreadable);
    };
    let facts = json!({
        "seq": seq, "head": head, "statement": statement, "key": record["checkpoint"]["key"],
        "signature": record["checkpoint"]["signature"],
    });
    store
        .write(Actor::System, move |writer| {
            let last = journal::last_of_kind(writer, KIND)?;
            let (before, known) = last.map_or((0, Value::Null), |entry| {
                (
                    entry.facts["seq"].as_u64().unwrap_or(0),
                    entry.facts["head"].clone(),
                )
            });
            if seq == before && known == facts["head"] {
                return Ok(Kept::Known);
            }
            let kept = if seq > before {
                Kept::Anchored
            } else {
                Kept::FellBack
            };
            if kept == Kept::FellBack {
                // Once for each such checkpoint.
                let said = journal::last_of_kind(writer, FELL_BACK)?;
                if said.is_some_and(|entry| entry.facts["head"] == facts["head"]) {
                    return Ok(Kept::FellBack);
                }
            }
            let kind = if kept == Kept::Anchored {
                KIND
            } else {
                FELL_BACK
            };
            writer.note(kind, About::default(), facts)?;
            Ok(kept)
        })
        .await
}

/// Line, hash and text of a checkpoint.
fn parts(record: &Value) -> Option<(u64, String, String)> {
    let statement = record["checkpoint"]["statement"].as_str()?;
    if statement.len() > STATEMENT_BYTES_MAX {
        return None;
    }
    let field = |name: &str| {
        let line = statement.lines().find_map(|line| line.strip_prefix(name))?;
        line.strip_prefix(' ')
    };
    let seq = field("seq")?.parse().ok()?;
    let head = field("head")?;
    let hex = head.len() == 64 && head.bytes().all(|byte| byte.is_ascii_hexdigit());
    hex.then(|| (seq, head.to_owned(), statement.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(seq: u64, digit: &str) -> Value {
        let statement = format!(
            "Portcullis audit checkpoint, version 1\nseq {seq}\nhead {}\n",
            digit.repeat(64)
        );
        json!({ "kind": "checkpoint", "checkpoint": { "statement": statement, "closing": false } })
    }

    #[tokio::test]
    async fn each_checkpoint_is_anchored_once_and_a_log_that_falls_back_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("state.db")).unwrap();
        for (record, kept) in [
            (record(7, "a"), Kept::Anchored),
            (record(7, "a"), Kept::Known),
            (record(9, "b"), Kept::Anchored),
            (record(8, "c"), Kept::FellBack),
            (record(8, "c"), Kept::FellBack),
            (record(9, "d"), Kept::FellBack),
            (record(9, "b"), Kept::Known),
            (
                json!({ "checkpoint": { "statement": "seq 12" } }),
                Kept::Unreadable,
            ),
        ] {
            assert_eq!(anchor(&store, &record).await.unwrap(), kept, "{record}");
        }
        let anchors = store
            .read(|db| journal::of_kind(db, KIND, 100))
            .await
            .unwrap();
        let seqs: Vec<_> = anchors
            .iter()
            .map(|entry| entry.facts["seq"].clone())
            .collect();
        assert_eq!(seqs, [json!(7), json!(9)]);
        let told = store
            .read(|db| journal::of_kind(db, FELL_BACK, 100))
            .await
            .unwrap();
        assert_eq!(told.len(), 2, "once each");
    }
}
