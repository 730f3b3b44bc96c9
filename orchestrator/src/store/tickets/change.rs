//! Changing tickets: who may, what must hold; what follows is in `follow`.

use serde_json::{Map, Value, json};

use super::patch::{self, Patch};
use super::row::{differences, save, stamp};
use super::{blockers, follow, get, guard, live_run};
use crate::model::{Comment, Refusal, Ticket};
use crate::store::comments::{self, NewComment};
use crate::store::journal::About;
use crate::store::{StoreError, Writer, labels};

/// What a change did.
#[derive(Debug, Clone)]
pub struct Update {
    /// The ticket after it.
    pub ticket: Ticket,
    /// `{field: {from, to}}` of what differs.
    pub changes: Map<String, Value>,
    /// The comment that came with it.
    pub comment: Option<Comment>,
}

/// Applies a change.
pub fn update(w: &mut Writer<'_>, id: &str, patch: Patch) -> Result<Update, StoreError> {
    let before = get(w, id, w.actor.company())?;
    w.actor.clone().may_change(&before)?;
    let live = live_run(w, &before.id)?;
    if let (Some(mine), Some(holder)) = (w.actor.run(), &live)
        && mine != holder
    {
        return Err(
            Refusal::conflict("issue_locked", "Another agent's run owns this task")
                .with(json!({ "issueId": before.id, "executionRunId": holder }))
                .into(),
        );
    }
    let mut after = patch::edited(w, &before, &patch)?;
    let replaced = match &patch.blocked_by_issue_ids {
        Some(ids) => blockers::replace(w, &before.company, &before.id, ids)?,
        None => None,
    };
    after.status = patch::next_status(w, &before, &after, &patch)?;
    let unblock = patch.unblock_descriptor.as_ref();
    guard::judge(w, Some(&before), &after, replaced.is_some(), unblock)?;
    stamp(&before, &mut after, w.now, unblock);
    let mut changes = differences(&before, &after);
    if let Some((from, to)) = replaced {
        changes.insert(
            "blockedByIssueIds".into(),
            json!({ "from": from, "to": to }),
        );
    }
    let labelled = match &patch.label_ids {
        Some(ids) => labels::replace(w, &before.company, &before.id, ids)?,
        None => None,
    };
    if let Some((from, to)) = labelled {
        changes.insert("labels".into(), json!({ "from": from, "to": to }));
    }
    if !changes.is_empty() {
        save(w, &after)?;
        let about = About::of(&after);
        w.note("ticket.changed", about, json!({ "changes": changes }))?;
    }
    let comment = match &patch.comment {
        Some(body) => Some(comments::write(w, &after, NewComment::of(body), false)?),
        None => None,
    };
    let again = live.is_none() && patch::asked_again(w, &after, &patch);
    follow::wake(w, &before, &after, comment.as_ref(), again)?;
    if let Some(run) = live {
        follow::stop_run(w, &before, &after, &run, patch.interrupt)?;
    }
    Ok(Update {
        ticket: get(w, &after.id, None)?,
        changes,
        comment,
    })
}
