//! Runs: claiming, the lease, the end. What ends a run also frees its ticket, in one transaction.

mod end;

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::json;
use sha2::{Digest, Sha256};

pub use end::{begin_end, finish};

use super::journal::About;
use super::{StoreError, Writer, agents, new_id, snapshot, tickets, wakes};
use crate::container::Evidence;
use crate::model::{Actor, Agent, Refusal, Run, RunStatus, Status, Ticket, Wake};
use crate::scheduler;

/// How long a lease lasts unless it is extended.
pub const LEASE_MS: i64 = 60_000;

/// How many changes one run may write to the board, and how many bytes.
const WRITES: i64 = 5_000;
const WRITTEN: i64 = 64 << 20;

const RUN: &str = "id, company, agent, ticket, wake, status, corrective, epoch, slice, slice_held, \
                   cancel, evidence, outcome, created_at, started_at, ended_at";

/// A run that was claimed and may now be started.
pub struct Claimed {
    /// The run.
    pub run: Run,
    /// Whose.
    pub agent: Agent,
    /// For which ticket, after its checkout.
    pub ticket: Option<Ticket>,
    /// Whether the claim checked the ticket out.
    pub checked_out: bool,
    /// The wake it answers.
    pub wake: Wake,
    /// The run's token, 64 hex digits. Kept nowhere else; the database has its hash.
    pub token: String,
}

impl std::fmt::Debug for Claimed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Claimed")
            .field("run", &self.run.id)
            .finish_non_exhaustive()
    }
}

/// Turns a queued wake into a run, if nothing has changed since it was decided: the run row, its
/// lease, the ticket's checkout and the wake's end are one transaction.
pub fn claim(w: &mut Writer<'_>, wake: &str, slices: &[i64]) -> Result<Claimed, StoreError> {
    let wake = wakes::get(w, wake)?.ok_or_else(|| Refusal::missing("wake"))?;
    let state = snapshot::around(w, std::slice::from_ref(&wake), w.now)?;
    let verdict = scheduler::decide(&state, w.now);
    let start = matches!(verdict.first(), Some(scheduler::Decision::Start { .. }));
    if !start || wake.state != crate::model::WakeState::Queued {
        return Err(Refusal::conflict("wake_not_startable", "the wake is no longer due").into());
    }
    let slice = free_slices(w, slices)?
        .first()
        .copied()
        .ok_or_else(|| Refusal::conflict("no_free_slice", "every slice of host ids is in use"))?;
    let agent = agents::get(w, &wake.agent, None)?;
    let token = new_token()?;
    let id = new_id();
    let inserted = w
        .prepare_cached(
            "INSERT INTO runs (id, company, agent, ticket, wake, status, corrective, token_hash,
                               epoch, slice, created_at)
             VALUES (?, ?, ?, ?, ?, 'starting', ?, ?, 1, ?, ?)",
        )?
        .execute(params![
            id,
            agent.company,
            agent.id,
            wake.ticket,
            wake.id,
            wake.corrective,
            token_hash(&token),
            slice,
            w.now
        ]);
    if let Err(rusqlite::Error::SqliteFailure(error, _)) = &inserted
        && error.code == rusqlite::ErrorCode::ConstraintViolation
    {
        return Err(
            Refusal::conflict("run_exists", "a live run holds the ticket or the agent").into(),
        );
    }
    inserted?;
    w.execute(
        "INSERT INTO leases (run, epoch, expires_at) VALUES (?, 1, ?)",
        params![id, w.now + LEASE_MS],
    )?;
    w.execute(
        "UPDATE wakes SET state = 'started', run = ? WHERE id = ?",
        params![id, wake.id],
    )?;
    let about = About {
        company: Some(&agent.company),
        ticket: wake.ticket.as_deref(),
        run: Some(&id),
    };
    let facts = json!({ "agent": agent.id, "wake": wake.id, "reason": wake.reason,
                        "slice": slice, "corrective": wake.corrective });
    w.note("run.claimed", about, facts)?;
    let checked_out = check_out_for(w, &id, &agent, wake.ticket.as_deref())?;
    let ticket = wake
        .ticket
        .as_deref()
        .map(|t| tickets::get(w, t, None))
        .transpose()?;
    Ok(Claimed {
        run: get(w, &id)?,
        agent,
        ticket,
        checked_out,
        wake,
        token,
    })
}

/// The assignee's ready ticket is checked out for its run, so that the agent need not.
fn check_out_for(
    w: &mut Writer<'_>,
    run: &str,
    agent: &Agent,
    ticket: Option<&str>,
) -> Result<bool, StoreError> {
    let Some(id) = ticket else { return Ok(false) };
    let ticket = tickets::get(w, id, None)?;
    let ready = matches!(ticket.status, Status::Todo | Status::InProgress);
    let blocked = !tickets::unresolved_blockers(w, id)?.is_empty();
    if !ready || blocked || ticket.assignee_agent.as_ref() != Some(&agent.id) {
        return Ok(false);
    }
    w.execute(
        "UPDATE tickets SET status = 'in_progress', checkout_run = ?, updated_at = ?,
             started_at = ifnull(started_at, ?) WHERE id = ?",
        params![run, w.now, w.now, id],
    )?;
    let about = About {
        company: Some(&agent.company),
        ticket: Some(id),
        run: Some(run),
    };
    w.note(
        "ticket.checked_out",
        about,
        json!({ "agent": agent.id, "from": ticket.status }),
    )?;
    Ok(true)
}

/// Records that the container exists. Refused when the run is no longer starting.
pub fn started(w: &mut Writer<'_>, id: &str, evidence: &Evidence) -> Result<(), StoreError> {
    let run = get(w, id)?;
    let changed = w.execute(
        "UPDATE runs SET status = 'running', evidence = ?, started_at = ?
         WHERE id = ? AND status = 'starting'",
        params![serde_json::to_string(evidence)?, w.now, id],
    )?;
    if changed == 0 {
        return Err(Refusal::conflict("run_not_starting", "the run has ended meanwhile").into());
    }
    let about = About {
        company: Some(&run.company),
        ticket: run.ticket.as_deref(),
        run: Some(id),
    };
    w.note(
        "run.started",
        about,
        json!({ "monitor_pid": evidence.monitor_pid }),
    )?;
    Ok(())
}

/// Extends the lease of a live run. `false`: the run has ended.
pub fn extend(w: &mut Writer<'_>, id: &str) -> Result<bool, StoreError> {
    let until = w.now + LEASE_MS;
    let changed = w.without_entry(
        "UPDATE leases SET expires_at = ? WHERE run = ?
           AND run IN (SELECT id FROM runs WHERE status IN ('starting', 'running'))",
        params![until, id],
    )?;
    Ok(changed == 1)
}

/// Asks the supervisor to stop a run. Nothing happens to a run that has ended.
pub fn ask_cancel(w: &mut Writer<'_>, id: &str) -> Result<Run, StoreError> {
    let run = get(w, id)?;
    if !run.cancel && matches!(run.status, RunStatus::Starting | RunStatus::Running) {
        w.execute("UPDATE runs SET cancel = 1 WHERE id = ?", [id])?;
        let about = About {
            company: Some(&run.company),
            ticket: run.ticket.as_deref(),
            run: Some(id),
        };
        w.note("run.cancel_asked", about, json!({}))?;
        w.kick = true;
    }
    get(w, id)
}

/// Whom a token speaks for: a run that is starting or running and whose lease has not ended.
pub fn by_token(connection: &Connection, token: &str, now: i64) -> Result<Actor, StoreError> {
    let found = connection
        .prepare_cached(
            "SELECT runs.agent, runs.company, runs.id, runs.ticket FROM runs
             JOIN leases ON leases.run = runs.id AND leases.epoch = runs.epoch
             JOIN agents ON agents.id = runs.agent AND agents.status <> 'terminated'
             WHERE token_hash = ? AND runs.status IN ('starting', 'running') AND expires_at > ?",
        )?
        .query_row(params![token_hash(token), now], |row| {
            Ok(Actor::Agent {
                agent: row.get(0)?,
                company: row.get(1)?,
                run: row.get(2)?,
                ticket: row.get(3)?,
            })
        })
        .optional()?;
    found.ok_or_else(|| Refusal::unauthorised("no live run has this token").into())
}

/// A run that has ended writes nothing, however late its request arrives.
pub(super) fn fence(w: &Writer<'_>) -> Result<(), StoreError> {
    let Some(run) = w.actor.run() else {
        return Ok(());
    };
    match get(w, run)?.status {
        RunStatus::Starting | RunStatus::Running => Ok(()),
        RunStatus::Ending
        | RunStatus::Succeeded
        | RunStatus::Failed
        | RunStatus::Cancelled
        | RunStatus::Lost => Err(Refusal::unauthorised("the run has ended").into()),
    }
}

/// Counts what a run writes; a run that writes without end is a loop, whatever it means to do.
pub(super) fn charge(w: &Writer<'_>) -> Result<(), StoreError> {
    let Some(run) = w.actor.run() else {
        return Ok(());
    };
    let (writes, written): (i64, i64) = w
        .prepare_cached(
            "UPDATE runs SET writes = writes + ?, written = written + ? WHERE id = ?
             RETURNING writes, written",
        )?
        .query_row(params![w.entries, w.bytes, run], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
    if writes > WRITES || written > WRITTEN {
        let error = format!(
            "one run may write {WRITES} times and {} MiB; end it with a disposition",
            WRITTEN >> 20
        );
        return Err(Refusal::forbidden("run_write_limit", error).into());
    }
    Ok(())
}

/// How many runs were claimed for a wake.
pub(super) fn attempts(connection: &Connection, wake: &str) -> Result<u32, StoreError> {
    Ok(connection
        .prepare_cached("SELECT count(*) FROM runs WHERE wake = ?")?
        .query_row([wake], |row| row.get(0))?)
}

/// The run with this id.
pub fn get(connection: &Connection, id: &str) -> Result<Run, StoreError> {
    let mut statement =
        connection.prepare_cached(&format!("SELECT {RUN} FROM runs WHERE id = ?"))?;
    statement
        .query_row([id], run_row)
        .optional()?
        .ok_or_else(|| Refusal::missing("run").into())
}

/// The live run of an agent.
pub(super) fn live_of(connection: &Connection, agent: &str) -> Result<Option<String>, StoreError> {
    Ok(connection
        .prepare_cached(
            "SELECT id FROM runs
             WHERE agent = ? AND status IN ('starting', 'running', 'ending')",
        )?
        .query_row([agent], |row| row.get(0))
        .optional()?)
}

/// Runs, newest first, of a ticket or a company or all.
pub fn list(
    connection: &Connection,
    company: Option<&str>,
    ticket: Option<&str>,
    limit: u32,
) -> Result<Vec<Run>, StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {RUN} FROM runs WHERE (?1 IS NULL OR company = ?1) AND (?2 IS NULL OR ticket = ?2)
         ORDER BY created_at DESC, id DESC LIMIT ?3"
    ))?;
    let rows = statement.query_map(params![company, ticket, limit.clamp(1, 500)], run_row)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Runs that hold something: live ones, and ended ones whose container is not proven gone.
pub fn holding(connection: &Connection) -> Result<Vec<Run>, StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {RUN} FROM runs
         WHERE status IN ('starting', 'running', 'ending') OR slice_held = 1 ORDER BY created_at"
    ))?;
    let rows = statement.query_map([], run_row)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// What the database keeps of a token.
#[must_use]
pub fn token_hash(token: &str) -> Vec<u8> {
    Sha256::digest(token.as_bytes()).to_vec()
}

pub(super) fn new_token() -> Result<String, StoreError> {
    use std::fmt::Write as _;
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).map_err(|_error| {
        Refusal::new(
            503,
            "no_randomness",
            "the kernel gives no random bytes for a token",
        )
    })?;
    let mut token = String::with_capacity(64);
    for byte in bytes {
        // Writing to a String cannot fail.
        let _infallible = write!(token, "{byte:02x}");
    }
    Ok(token)
}

/// Which of these slices of host ids no run holds.
pub(super) fn free_slices(connection: &Connection, all: &[i64]) -> Result<Vec<i64>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT slice FROM runs WHERE slice_held = 1")?;
    let held = statement.query_map([], |row| row.get(0))?;
    let held: Vec<i64> = held.collect::<Result<_, _>>()?;
    let free = all.iter().filter(|slice| !held.contains(slice));
    Ok(free.copied().collect())
}

fn run_row(row: &Row<'_>) -> rusqlite::Result<Run> {
    let evidence: Option<String> = row.get(11)?;
    let outcome: Option<String> = row.get(12)?;
    Ok(Run {
        id: row.get(0)?,
        company: row.get(1)?,
        agent: row.get(2)?,
        ticket: row.get(3)?,
        wake: row.get(4)?,
        status: row.get(5)?,
        corrective: row.get(6)?,
        epoch: row.get(7)?,
        slice: row.get(8)?,
        slice_held: row.get(9)?,
        cancel: row.get(10)?,
        evidence: evidence.and_then(|text| serde_json::from_str(&text).ok()),
        outcome: outcome.and_then(|text| serde_json::from_str(&text).ok()),
        created_at: row.get(13)?,
        started_at: row.get(14)?,
        ended_at: row.get(15)?,
    })
}
