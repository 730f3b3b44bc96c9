//! What follows from a change of a ticket: who is woken, what goes on, which run stops.

use serde_json::json;

use super::row::{differences, save, stamp};
use super::{blocked_by_it, unresolved_blockers};
use crate::model::{Actor, Comment, Reason, Status, Ticket};
use crate::store::comments::{self, NewComment};
use crate::store::journal::About;
use crate::store::wakes::{self, Ask};
use crate::store::{StoreError, Writer, interactions, runs};

/// The orchestrator sets a ticket aside and says who must act.
pub fn park(w: &mut Writer<'_>, ticket: &Ticket, why: &str) -> Result<(), StoreError> {
    let owner = ticket
        .created_by_user
        .clone()
        .unwrap_or_else(|| "board".to_owned());
    let unblock = json!({ "owner": { "type": "user", "id": owner }, "action": why });
    let mut after = ticket.clone();
    after.status = Status::Blocked;
    after.checkout_run = None;
    stamp(ticket, &mut after, w.now, Some(&unblock));
    let changes = differences(ticket, &after);
    save(w, &after)?;
    let about = About::of(&after);
    w.note(
        "ticket.parked",
        about,
        json!({ "why": why, "owner": owner, "changes": changes }),
    )?;
    let body = format!(
        "{why}\n\nThis ticket is parked. {owner} must act: comment on it or assign it again to go on."
    );
    comments::write(w, &after, NewComment::of(&body), false)?;
    Ok(())
}

/// One wake at most for the assignee, then the tickets that waited for this one.
pub(super) fn wake(
    w: &mut Writer<'_>,
    before: &Ticket,
    after: &Ticket,
    comment: Option<&Comment>,
    again: bool,
) -> Result<(), StoreError> {
    let was_shut = before.status.is_terminal()
        || matches!(
            before.status,
            Status::Backlog | Status::Blocked | Status::InReview
        );
    let is_open = matches!(after.status, Status::Todo | Status::InProgress);
    if let Some(agent) = &after.assignee_agent {
        let reason = if after.assignee_agent != before.assignee_agent || again {
            Some(Reason::Assigned)
        } else if before.status.is_terminal() && is_open && comment.is_some() {
            Some(Reason::Reopened)
        } else if was_shut && is_open {
            Some(Reason::StatusChanged)
        } else {
            comment.map(|_| Reason::Commented)
        };
        if let Some(reason) = reason {
            let mut ask = Ask::about(agent, &after.id, reason);
            ask.comment = comment.map(|c| c.id.clone());
            wakes::admit(w, ask)?;
        }
    }
    if after.status.is_terminal() && !before.status.is_terminal() {
        interactions::close(w, after)?;
    }
    if after.status == Status::Done && before.status != Status::Done {
        free_waiting(w, after)?;
    }
    Ok(())
}

/// A ticket whose last blocker is done goes on. The cause is the board's, not the finisher's.
fn free_waiting(w: &mut Writer<'_>, done: &Ticket) -> Result<(), StoreError> {
    for waiting in blocked_by_it(w, &done.id)? {
        if waiting.status.is_terminal() || !unresolved_blockers(w, &waiting.id)?.is_empty() {
            continue;
        }
        w.because_of = w.actor.run().map(str::to_owned);
        let author = std::mem::replace(&mut w.actor, Actor::System);
        let mut after = waiting.clone();
        if waiting.status == Status::Blocked && waiting.unblock.is_none() {
            after.status = Status::Todo;
            stamp(&waiting, &mut after, w.now, None);
            save(w, &after)?;
            let about = About::of(&after);
            let facts = json!({ "changes": differences(&waiting, &after), "blocker": done.id });
            w.note("ticket.changed", about, facts)?;
        }
        let woken = match &after.assignee_agent {
            Some(agent) => {
                wakes::admit(w, Ask::about(agent, &after.id, Reason::BlockersResolved)).map(|_| ())
            }
            None => Ok(()),
        };
        w.actor = author;
        w.because_of = None;
        woken?;
    }
    Ok(())
}

/// A person who takes a ticket away from a run, or interrupts it, stops the run.
pub(super) fn stop_run(
    w: &mut Writer<'_>,
    before: &Ticket,
    after: &Ticket,
    run: &str,
    interrupt: bool,
) -> Result<(), StoreError> {
    if !matches!(w.actor, Actor::User { .. }) {
        return Ok(());
    }
    let taken = before.assignee_agent != after.assignee_agent;
    let closed = after.status.is_terminal() && !before.status.is_terminal();
    if taken || closed || interrupt {
        runs::ask_cancel(w, run)?;
    }
    Ok(())
}
