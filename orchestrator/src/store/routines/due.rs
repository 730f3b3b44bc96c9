//! Slots that are due: each becomes a row, and some of them tickets.

use rusqlite::{Connection, OptionalExtension, params};
use serde_json::json;

use super::{Routine, get};
use crate::model::routine::{CatchUp, Overlap, RoutineStatus, Schedule, Slot, SlotState};
use crate::model::time::Millis;
use crate::model::{Actor, Status};
use crate::store::journal::About;
use crate::store::tickets::{self, NewTicket};
use crate::store::{StoreError, Writer, new_id};

/// A slot that is looked at later than this was missed.
const LATE_MS: i64 = 60_000;
/// How many missed slots start at most.
const CATCH_UP: usize = 25;
/// How many slots of a routine one transaction looks at.
const AT_ONCE: usize = 500;

/// When the next slot of any routine is due.
pub fn next(connection: &Connection) -> Result<Option<Millis>, StoreError> {
    Ok(connection
        .prepare_cached("SELECT min(next_due) FROM routines WHERE next_due IS NOT NULL")?
        .query_row([], |row| row.get(0))?)
}

/// Looks at every slot that is due. What is left over is due still, and looked at next time.
pub fn tick(w: &mut Writer<'_>) -> Result<(), StoreError> {
    let ids: Vec<String> = w
        .prepare_cached("SELECT id FROM routines WHERE next_due <= ? ORDER BY next_due LIMIT 50")?
        .query_map([w.now], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    for id in ids {
        let it = get(w, &id, None)?;
        let schedule = it
            .cron
            .as_deref()
            .map(|cron| Schedule::parse(cron, &it.zone));
        let Some(Ok(schedule)) = schedule else {
            // A zone that this machine no longer knows: nothing can be told about its slots.
            w.execute("UPDATE routines SET next_due = NULL WHERE id = ?", [&it.id])?;
            let facts = json!({ "routine": it.id, "why": "its time zone is unknown here" });
            w.note("routine.stopped", About::company(&it.company), facts)?;
            continue;
        };
        let mut due = it.next_due;
        for _ in 0..AT_ONCE {
            let Some(at) = due.filter(|at| *at <= w.now) else {
                break;
            };
            one(w, &it, &schedule, at)?;
            due = schedule.after(at);
        }
        w.execute(
            "UPDATE routines SET next_due = ? WHERE id = ?",
            params![due, it.id],
        )?;
    }
    Ok(())
}

/// Starts a routine because somebody asks.
pub fn start(w: &mut Writer<'_>, id: &str) -> Result<Slot, StoreError> {
    let it = get(w, id, None)?;
    let now = w.now;
    if it.status == RoutineStatus::Active {
        begin(w, &it, now, "api", None)
    } else {
        refused(w, &it, now, "api")
    }
}

/// A routine that is paused or archived starts nothing.
pub(super) fn refused(
    w: &mut Writer<'_>,
    it: &Routine,
    at: Millis,
    trigger: &str,
) -> Result<Slot, StoreError> {
    let reason = format!("the routine is {}", it.status);
    record(w, it, at, trigger, SlotState::Skipped, Some(&reason), None)
}

fn one(
    w: &mut Writer<'_>,
    it: &Routine,
    schedule: &Schedule,
    at: Millis,
) -> Result<(), StoreError> {
    if it.status != RoutineStatus::Active {
        refused(w, it, at, "schedule")?;
    } else if at + LATE_MS >= w.now || made_up_for(it.catch_up, schedule, at, w.now) {
        begin(w, it, at, "schedule", None)?;
    } else {
        let reason = "nobody looked when it was due";
        record(w, it, at, "schedule", SlotState::Missed, Some(reason), None)?;
    }
    Ok(())
}

/// Whether a late slot starts after all: by how many came after it until now.
fn made_up_for(catch_up: CatchUp, schedule: &Schedule, at: Millis, now: Millis) -> bool {
    let most = match catch_up {
        CatchUp::Skip => return false,
        CatchUp::Once => 1,
        CatchUp::All => CATCH_UP,
    };
    let mut later = at;
    for _ in 0..most {
        match schedule.after(later).filter(|next| *next <= now) {
            Some(next) => later = next,
            None => return true,
        }
    }
    false
}

/// Makes the ticket, or says why there is none. `more` ends its description.
pub(super) fn begin(
    w: &mut Writer<'_>,
    it: &Routine,
    at: Millis,
    trigger: &str,
    more: Option<&str>,
) -> Result<Slot, StoreError> {
    if it.overlap == Overlap::Skip
        && let Some(open) = open_ticket(w, &it.id)?
    {
        let reason = format!("{open} of the slot before is not finished");
        return record(w, it, at, trigger, SlotState::Skipped, Some(&reason), None);
    }
    let new = NewTicket {
        title: it.name.clone(),
        description: match (it.description.as_deref(), more) {
            (Some(own), Some(more)) => Some(format!("{own}\n\n{more}")),
            (own, more) => own.or(more).map(str::to_owned),
        },
        assignee_agent_id: Some(it.assignee.clone()),
        project_id: it.project.clone(),
        priority: Some(it.priority),
        allow_duplicate: true,
        ..NewTicket::default()
    };
    // A person made the routine; its tickets are the board's, and no run's consequence.
    let author = std::mem::replace(&mut w.actor, Actor::System);
    w.execute_batch("SAVEPOINT slot")?;
    let made = tickets::create(w, &it.company, new);
    if made.is_err() {
        w.execute_batch("ROLLBACK TO slot")?;
    }
    w.execute_batch("RELEASE slot")?;
    w.actor = author;
    match made {
        Ok(made) => {
            let ticket = made.ticket.id;
            record(w, it, at, trigger, SlotState::Started, None, Some(&ticket))
        }
        Err(StoreError::Refused(no)) => record(
            w,
            it,
            at,
            trigger,
            SlotState::Skipped,
            Some(&no.error),
            None,
        ),
        Err(error) => Err(error),
    }
}

/// The ticket of an earlier slot that somebody works on or waits with. One that was put into the
/// backlog does not hold the routine up for ever.
fn open_ticket(w: &Writer<'_>, routine: &str) -> Result<Option<String>, StoreError> {
    let shut = [Status::Done, Status::Cancelled, Status::Backlog];
    Ok(w.prepare_cached(
        "SELECT identifier FROM slots JOIN tickets ON tickets.id = slots.ticket
         WHERE routine = ?1 AND status NOT IN (?2, ?3, ?4) ORDER BY due_at DESC LIMIT 1",
    )?
    .query_row(params![routine, shut[0], shut[1], shut[2]], |row| {
        row.get(0)
    })
    .optional()?)
}

fn record(
    w: &mut Writer<'_>,
    it: &Routine,
    due_at: Millis,
    trigger: &str,
    state: SlotState,
    reason: Option<&str>,
    ticket: Option<&str>,
) -> Result<Slot, StoreError> {
    let slot = Slot {
        id: new_id(),
        due_at,
        trigger: trigger.to_owned(),
        state,
        reason: reason.map(str::to_owned),
        ticket: ticket.map(str::to_owned),
    };
    // The clock may have gone back: what a slot became it stays.
    w.execute(
        "INSERT INTO slots (id, routine, due_at, trigger, state, reason, ticket, created_at)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        params![
            slot.id, it.id, due_at, trigger, state, reason, ticket, w.now
        ],
    )?;
    let about = About {
        ticket,
        ..About::company(&it.company)
    };
    let facts = json!({ "routine": it.id, "dueAt": due_at, "trigger": trigger, "state": state,
                        "reason": reason });
    w.note("routine.slot", about, facts)?;
    Ok(slot)
}
