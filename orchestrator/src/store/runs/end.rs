//! The end of a run, in two steps.
//!
//! [`begin_end`] kills the token; the run still holds its ticket and agent, so nothing new starts.
//! [`finish`], called once the container is proven gone, frees both and judges what became of the
//! ticket: a disposition, one corrective run, or parked with a reason.

use rusqlite::params;
use serde_json::json;

use super::{get, tickets, wakes};
use crate::model::run::Outcome;
use crate::model::{Reason, Run, RunStatus, Status, Ticket};
use crate::scheduler::admission::Admission;
use crate::store::journal::About;
use crate::store::wakes::Ask;
use crate::store::{StoreError, Writer};

/// Wait this long before a run that could not begin is tried again.
const RETRY_MS: i64 = 5_000;
/// Every further try waits twice as long, so many times.
const DOUBLINGS: u32 = 6;

/// Ends the run's authority: from the commit on its token answers 401. The first outcome stays.
pub fn begin_end(w: &mut Writer<'_>, id: &str, outcome: &Outcome) -> Result<Run, StoreError> {
    let changed = w.execute(
        "UPDATE runs SET status = 'ending', outcome = ?
         WHERE id = ? AND status IN ('starting', 'running')",
        params![serde_json::to_string(outcome)?, id],
    )?;
    if changed == 1 {
        w.execute("DELETE FROM leases WHERE run = ?", [id])?;
        let run = get(w, id)?;
        let about = About {
            company: Some(&run.company),
            ticket: run.ticket.as_deref(),
            run: Some(id),
        };
        w.note("run.ending", about, json!({ "outcome": outcome }))?;
    }
    get(w, id)
}

/// Closes the run: its container is proven gone. Idempotent.
pub fn finish(w: &mut Writer<'_>, id: &str) -> Result<Run, StoreError> {
    let run = get(w, id)?;
    if run.status != RunStatus::Ending {
        return Ok(run);
    }
    let outcome = run.outcome.clone().unwrap_or_else(|| Outcome {
        status: RunStatus::Lost,
        exit: None,
        reason: "how the run ended is not known".to_owned(),
        retry: false,
    });
    let held = held_tickets(w, &run)?;
    w.execute(
        "UPDATE tickets SET checkout_run = NULL WHERE checkout_run = ?",
        [id],
    )?;
    w.execute(
        "UPDATE runs SET status = ?, ended_at = ?, slice_held = 0 WHERE id = ?",
        params![outcome.status, w.now, id],
    )?;
    let about = About {
        company: Some(&run.company),
        ticket: run.ticket.as_deref(),
        run: Some(id),
    };
    w.note(
        "run.ended",
        about,
        json!({ "status": outcome.status, "exit": outcome.exit,
                                       "reason": outcome.reason }),
    )?;
    if let (Some(ticket), false) = (&run.ticket, outcome.retry) {
        count_idle(w, ticket, id)?;
    }
    if outcome.retry {
        put_back(w, &run, &held)?;
    } else {
        for ticket in held {
            settle(w, &run, &outcome, &ticket)?;
        }
    }
    w.kick = true;
    get(w, id)
}

/// What counts as progress of a ticket. Comments do not: a loop writes them, too.
const PROGRESS: &str = "'ticket.changed', 'document.written', 'interaction.created', \
    'interaction.resolved', 'approval.requested', 'attachment.added', 'work_product.created', \
    'work_product.changed'";

/// A run that changed something begins the count anew.
fn count_idle(w: &Writer<'_>, ticket: &str, run: &str) -> Result<(), StoreError> {
    w.execute(
        &format!(
            "UPDATE tickets SET idle_runs = CASE WHEN EXISTS (SELECT 1 FROM journal
                 WHERE run = ?2 AND ticket = ?1 AND kind IN ({PROGRESS}))
             THEN 0 ELSE idle_runs + 1 END WHERE id = ?1"
        ),
        [ticket, run],
    )?;
    Ok(())
}

/// The tickets this run answers for: its own, and what it checked out.
fn held_tickets(w: &Writer<'_>, run: &Run) -> Result<Vec<Ticket>, StoreError> {
    let mut statement =
        w.prepare("SELECT id FROM tickets WHERE checkout_run = ?1 OR id = ?2 ORDER BY id")?;
    let ids = statement.query_map(params![run.id, run.ticket], |row| row.get(0))?;
    let ids: Vec<String> = ids.collect::<Result<_, _>>()?;
    ids.iter().map(|id| tickets::get(w, id, None)).collect()
}

/// Nothing of the run ever began: the wake waits again, the ticket is as before.
fn put_back(w: &mut Writer<'_>, run: &Run, held: &[Ticket]) -> Result<(), StoreError> {
    for ticket in held.iter().filter(|t| t.status == Status::InProgress) {
        w.execute(
            "UPDATE tickets SET status = 'todo', updated_at = ? WHERE id = ?",
            params![w.now, ticket.id],
        )?;
        let about = About {
            company: Some(&run.company),
            ticket: Some(&ticket.id),
            run: Some(&run.id),
        };
        let changes = json!({ "status": { "from": ticket.status, "to": Status::Todo } });
        w.note("ticket.changed", about, json!({ "changes": changes }))?;
    }
    let before = super::attempts(w, &run.wake)?;
    let not_before = w.now + (RETRY_MS << before.saturating_sub(1).min(DOUBLINGS));
    wakes::requeue(w, &run.wake, not_before)
}

fn settle(
    w: &mut Writer<'_>,
    run: &Run,
    outcome: &Outcome,
    ticket: &Ticket,
) -> Result<(), StoreError> {
    let open = matches!(ticket.status, Status::Todo | Status::InProgress);
    let mine = ticket.assignee_agent.as_ref() == Some(&run.agent);
    if !open || !mine {
        return Ok(());
    }
    let mut refused = None;
    if outcome.status == RunStatus::Succeeded && !run.corrective {
        w.because_of = Some(run.id.clone());
        let ask = Ask::about(&run.agent, &ticket.id, Reason::Corrective);
        match wakes::admit(w, ask)? {
            Admission::Refuse { fact, .. } => refused = Some(fact),
            Admission::Queue
            | Admission::MergeInto(_)
            | Admission::MergeIntoRun(_)
            | Admission::Ask => {
                return Ok(());
            }
        }
    }
    let why = match (outcome.status, refused) {
        (RunStatus::Succeeded, Some(fact)) => format!(
            "The run ended without a disposition (done, in_review or blocked), and there is no \
             corrective run: {fact}."
        ),
        (RunStatus::Succeeded, None) => {
            "The run and its one corrective run both ended without a disposition \
             (done, in_review or blocked)."
                .to_owned()
        }
        _ => format!("The run ended as {}: {}.", outcome.status, outcome.reason),
    };
    let ticket = tickets::get(w, &ticket.id, None)?;
    tickets::park(w, &ticket, &why)
}
