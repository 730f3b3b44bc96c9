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
    /// It stands before the last anchor, or differs from it in the same line: it is in the journal as the
    /// first anchor of another log, and so is the last one of the former log.
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
    let mut facts = json!({
        "seq": seq, "head": head, "statement": statement, "key": record["checkpoint"]["key"],
        "signature": record["checkpoint"]["signature"],
    });
    store
        .write(Actor::System, move |writer| {
            let Some(entry) = journal::last_of_kind(writer, KIND)? else {
                facts["log"] = json!(1);
                writer.note(KIND, About::default(), facts)?;
                return Ok(Kept::Anchored);
            };
            let (anchored, last) = (entry.at, entry.facts);
            let (before, log) = (last["seq"].as_u64().unwrap_or(0), log_of(&last));
            if seq == before && last["head"] == facts["head"] {
                return Ok(Kept::Known);
            }
            let kept = if seq > before {
                facts["log"] = json!(log);
                Kept::Anchored
            } else {
                facts["log"] = json!(log + 1);
                let both = json!({ "formerAt": anchored, "former": last, "present": facts });
                writer.note(FELL_BACK, About::default(), both)?;
                Kept::FellBack
            };
            writer.note(KIND, About::default(), facts)?;
            Ok(kept)
        })
        .await
}

/// Which log an anchor is of; of those without a number, the first.
#[must_use]
pub fn log_of(facts: &Value) -> u64 {
    facts["log"].as_u64().unwrap_or(1)
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
    async fn each_checkpoint_is_anchored_once_and_a_log_that_falls_back_is_told_and_counted_anew() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("state.db")).unwrap();
        for (record, kept) in [
            (record(7, "a"), Kept::Anchored),
            (record(7, "a"), Kept::Known),
            (record(9, "b"), Kept::Anchored),
            (record(8, "c"), Kept::FellBack),
            (record(8, "c"), Kept::Known),
            (record(11, "e"), Kept::Anchored),
            (record(11, "f"), Kept::FellBack),
            (
                json!({ "checkpoint": { "statement": "seq 12" } }),
                Kept::Unreadable,
            ),
        ] {
            assert_eq!(anchor(&store, &record).await.unwrap(), kept, "{record}");
        }
        let kept = |kind| store.read(move |db| journal::of_kind(db, kind, 100));
        let anchors = kept(KIND).await.unwrap();
        let anchors: Vec<_> = anchors
            .iter()
            .map(|entry| (log_of(&entry.facts), entry.facts["seq"].clone()))
            .collect();
        let wanted = [(1, 7), (1, 9), (2, 8), (2, 11), (3, 11)];
        assert_eq!(anchors, wanted.map(|(log, seq)| (log, json!(seq))));
        let told = kept(FELL_BACK).await.unwrap();
        let former: Vec<_> = told
            .iter()
            .map(|entry| entry.facts["former"]["seq"].clone())
            .collect();
        assert_eq!(former, [json!(9), json!(11)], "once each");
    }
}
