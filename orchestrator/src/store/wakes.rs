//! Wakes: admission, merging, and what became of them.

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::{Value, json};

use super::journal::About;
use super::{StoreError, Writer, agents, approvals, new_id, profiles, runs, tickets};
use crate::model::profile::AgentWakes;
use crate::model::time::Millis;
use crate::model::{Agent, Reason, Wake, WakeState};
use crate::scheduler::admission::{self, Admission, Facts, Word};

const WAKE: &str = "id, seq, company, agent, ticket, reason, comments, payload, state, \
                    merged_into, run, corrective, actor, not_before, note, created_at, depth, by_run";

/// How many wakes of one agent may wait.
pub const QUEUE: i64 = 100;
const HOUR_MS: i64 = 3_600_000;

/// A request for an agent's attention.
#[derive(Debug, Clone)]
pub struct Ask {
    /// The agent's id.
    pub agent: String,
    /// The ticket's id.
    pub ticket: Option<String>,
    /// Why.
    pub reason: Reason,
    /// The comment that wakes.
    pub comment: Option<String>,
    /// What the caller adds.
    pub payload: Value,
    /// Not before this time.
    pub not_before: Millis,
    /// Whoever is woken asked for it: the answer to its question, the ticket it may be given.
    pub invited: bool,
}

impl Ask {
    /// A wake about a ticket, at once.
    #[must_use]
    pub fn about(agent: &str, ticket: &str, reason: Reason) -> Self {
        Self {
            agent: agent.to_owned(),
            ticket: Some(ticket.to_owned()),
            reason,
            comment: None,
            payload: Value::Null,
            not_before: 0,
            invited: false,
        }
    }
}

/// Judges and records a wake. Every answer, also a no, is in the journal.
pub fn admit(w: &mut Writer<'_>, ask: Ask) -> Result<Admission, StoreError> {
    let agent = agents::get(w, &ask.agent, None)?;
    let ticket = match &ask.ticket {
        Some(id) => Some(tickets::get(w, id, None)?),
        None => None,
    };
    let queued = queued(w, &agent.id, ask.ticket.as_deref())?;
    if let (Some(id), Some(_person)) = (&ask.ticket, w.actor.user()) {
        w.execute(
            "UPDATE tickets SET idle_runs = 0 WHERE id = ? AND idle_runs > 0",
            [id],
        )?;
    }
    let waiting: i64 = w
        .prepare_cached("SELECT count(*) FROM wakes WHERE agent = ? AND state = 'queued'")?
        .query_row([&agent.id], |row| row.get(0))?;
    let live = runs::live_of(w, &agent.id)?;
    let depth = depth(w, ask.reason)?;
    let facts = Facts {
        reason: ask.reason,
        by_target: w.actor.agent() == Some(agent.id.as_str()),
        agent: agent.status,
        ticket: ticket.as_ref().map(|t| t.status),
        queued: queued.as_ref().map(|wake| wake.id.clone()),
        live_run: live,
        waiting,
        cap: QUEUE,
        depth,
        lately: caused_lately(w, &agent.id)?,
        idle: match &ask.ticket {
            Some(id) => idle(w, id)?,
            None => 0,
        },
        word: word(w, &ask, &agent)?,
    };
    let admission = admission::judge(facts);
    let about = About {
        company: Some(&agent.company),
        ticket: ask.ticket.as_deref(),
        run: None,
    };
    match &admission {
        Admission::Queue => {
            let id = insert(
                w,
                &ask,
                &agent.company,
                depth,
                WakeState::Queued,
                None,
                None,
            )?;
            let facts = json!({ "wake": id, "agent": agent.id, "reason": ask.reason });
            w.note("wake.queued", about, facts)?;
            w.kick = true;
        }
        Admission::MergeInto(into) => {
            let id = insert(
                w,
                &ask,
                &agent.company,
                depth,
                WakeState::Merged,
                Some(into),
                None,
            )?;
            let corrective = ask.reason == Reason::Corrective;
            absorb(w, into, ask.comment.as_slice(), corrective, depth)?;
            if let (Some(waiting), false) = (queued, ask.payload.is_null()) {
                w.execute(
                    "UPDATE wakes SET payload = ? WHERE id = ?",
                    params![with(waiting.payload, &ask.payload).to_string(), into],
                )?;
            }
            let facts =
                json!({ "wake": id, "into": into, "agent": agent.id, "reason": ask.reason });
            w.note("wake.merged", about, facts)?;
        }
        Admission::MergeIntoRun(run) => {
            let id = insert(
                w,
                &ask,
                &agent.company,
                depth,
                WakeState::Merged,
                None,
                Some(run),
            )?;
            let facts = json!({ "wake": id, "run": run, "agent": agent.id, "reason": ask.reason });
            w.note(
                "wake.merged",
                About {
                    run: Some(run),
                    ..about
                },
                facts,
            )?;
        }
        Admission::Ask => {
            let (kind, facts) = match approvals::ask_to_wake(w, &ask, &agent, ticket.as_ref()) {
                Ok(approval) => ("wake.held", json!({ "approval": approval })),
                // What was written stands; only nobody is woken by it.
                Err(StoreError::Refused(no)) => {
                    ("wake.refused", json!({ "gate": no.code, "fact": no.error }))
                }
                Err(error) => return Err(error),
            };
            let mut facts = facts;
            facts["agent"] = json!(agent.id);
            facts["reason"] = json!(ask.reason);
            w.note(kind, about, facts)?;
        }
        Admission::Refuse { gate, fact } => {
            let facts =
                json!({ "agent": agent.id, "reason": ask.reason, "gate": gate, "fact": fact });
            w.note("wake.refused", about, facts)?;
        }
    }
    Ok(admission)
}

/// A person's wake without a ticket goes to the agent's most urgent open ticket, if it has one.
pub fn on_demand(
    w: &mut Writer<'_>,
    agent: &str,
    ticket: Option<String>,
    payload: Value,
) -> Result<Admission, StoreError> {
    let live = runs::live_of(w, agent)?;
    let ticket = match ticket {
        None if live.is_none() => tickets::most_urgent(w, agent)?,
        given => given,
    };
    let ask = Ask {
        agent: agent.to_owned(),
        ticket,
        reason: Reason::OnDemand,
        comment: None,
        payload,
        not_before: 0,
        invited: false,
    };
    admit(w, ask)
}

/// Records that a queued wake leads to no run.
pub fn drop_wake(w: &mut Writer<'_>, wake: &Wake, note: &str) -> Result<bool, StoreError> {
    let changed = w.execute(
        "UPDATE wakes SET state = 'dropped', note = ? WHERE id = ? AND state = 'queued'",
        params![note, wake.id],
    )?;
    if changed == 0 {
        return Ok(false);
    }
    let about = About {
        company: Some(&wake.company),
        ticket: wake.ticket.as_deref(),
        run: None,
    };
    w.note(
        "wake.dropped",
        about,
        json!({ "wake": wake.id, "agent": wake.agent, "why": note }),
    )?;
    Ok(true)
}

/// Puts a started wake back, because nothing of its run ever began.
pub(super) fn requeue(w: &mut Writer<'_>, id: &str, not_before: Millis) -> Result<(), StoreError> {
    let Some(wake) = get(w, id)? else {
        return Ok(());
    };
    let other = queued(w, &wake.agent, wake.ticket.as_deref())?;
    match &other {
        Some(other) => {
            absorb(w, &other.id, &wake.comments, wake.corrective, wake.depth)?;
            w.execute(
                "UPDATE wakes SET not_before = ? WHERE id = ?",
                params![not_before, other.id],
            )?;
            w.execute(
                "UPDATE wakes SET state = 'merged', merged_into = ? WHERE id = ?",
                params![other.id, wake.id],
            )?;
        }
        None => {
            w.execute(
                "UPDATE wakes SET state = 'queued', run = NULL, not_before = ? WHERE id = ?",
                params![not_before, wake.id],
            )?;
        }
    }
    let about = About {
        company: Some(&wake.company),
        ticket: wake.ticket.as_deref(),
        run: wake.run.as_deref(),
    };
    let facts = json!({ "wake": wake.id, "agent": wake.agent, "reason": wake.reason,
                        "into": other.map(|other| other.id), "notBefore": not_before });
    w.note("wake.requeued", about, facts)?;
    w.kick = true;
    Ok(())
}

/// What another agent's word is worth here. The board's own consequences and people's words are not
/// an agent's.
fn word(w: &Writer<'_>, ask: &Ask, agent: &Agent) -> Result<Word, StoreError> {
    let Some(writer) = w.actor.agent().filter(|writer| *writer != agent.id) else {
        return Ok(Word::Enough);
    };
    if ask.invited {
        return Ok(Word::Enough);
    }
    let may = agents::get(w, writer, None)?.may();
    // To give work to somebody is to wake them for it.
    if !(may.wake || may.assign && ask.reason == Reason::Assigned) {
        return Ok(Word::Nothing);
    }
    Ok(match profiles::of(w, &agent.profile)?.agent_wakes {
        AgentWakes::Allow => Word::Enough,
        AgentWakes::Approve => Word::Asks,
        AgentWakes::Refuse => Word::Shut,
    })
}

/// How many runs in a row led to what is being asked now. The one corrective run counts as part of
/// the run it corrects.
fn depth(w: &Writer<'_>, reason: Reason) -> Result<i64, StoreError> {
    let Some(run) = w.because_of.as_deref().or(w.actor.run()) else {
        return Ok(0);
    };
    let depth: i64 = w
        .prepare_cached(
            "SELECT wakes.depth FROM runs JOIN wakes ON wakes.id = runs.wake WHERE runs.id = ?",
        )?
        .query_row([run], |row| row.get(0))?;
    Ok(if reason == Reason::Corrective {
        depth
    } else {
        depth + 1
    })
}

/// How many runs in a row changed nothing on a ticket.
fn idle(w: &Writer<'_>, ticket: &str) -> Result<i64, StoreError> {
    Ok(
        w.prepare_cached("SELECT idle_runs FROM tickets WHERE id = ?")?
            .query_row([ticket], |row| row.get(0))?,
    )
}

/// Wakes of an agent in the last hour that other runs caused and that led or may lead to a run.
fn caused_lately(w: &Writer<'_>, agent: &str) -> Result<i64, StoreError> {
    Ok(w.prepare_cached(
        "SELECT count(*) FROM wakes WHERE agent = ? AND depth > 0 AND created_at > ?
           AND state IN ('queued', 'started')",
    )?
    .query_row(params![agent, w.now - HOUR_MS], |row| row.get(0))?)
}

/// The wake with this id.
pub fn get(connection: &Connection, id: &str) -> Result<Option<Wake>, StoreError> {
    let mut statement =
        connection.prepare_cached(&format!("SELECT {WAKE} FROM wakes WHERE id = ?"))?;
    Ok(statement.query_row([id], wake_row).optional()?)
}

/// The queued wake of an agent for a ticket; there is at most one.
pub fn queued(
    connection: &Connection,
    agent: &str,
    ticket: Option<&str>,
) -> Result<Option<Wake>, StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {WAKE} FROM wakes
         WHERE agent = ? AND ifnull(ticket, '') = ifnull(?, '') AND state = 'queued'"
    ))?;
    Ok(statement
        .query_row(params![agent, ticket], wake_row)
        .optional()?)
}

/// Who caused a wake, or one that merged into it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// `user:NAME`, `agent:ID` or `system`.
    pub actor: String,
    /// The agent's name, if it is one.
    pub agent_name: Option<String>,
    /// The run that wrote it, if one did.
    pub run: Option<String>,
    /// Why.
    pub reason: Reason,
    /// How many runs in a row led to it.
    pub depth: i64,
}

/// The origins of a wake, oldest first; at most 32.
pub fn origins(connection: &Connection, wake: &str) -> Result<Vec<Origin>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT actor, (SELECT name FROM agents WHERE 'agent:' || agents.id = actor), by_run,
                reason, depth
         FROM wakes WHERE id = ?1 OR merged_into = ?1 ORDER BY seq LIMIT 32",
    )?;
    let rows = statement.query_map([wake], |row| {
        Ok(Origin {
            actor: row.get(0)?,
            agent_name: row.get(1)?,
            run: row.get(2)?,
            reason: row.get(3)?,
            depth: row.get(4)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// All queued wakes, oldest first.
pub fn all_queued(connection: &Connection) -> Result<Vec<Wake>, StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {WAKE} FROM wakes WHERE state = 'queued' ORDER BY seq"
    ))?;
    let rows = statement.query_map([], wake_row)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// All wakes of a ticket, oldest first.
pub fn of_ticket(connection: &Connection, ticket: &str) -> Result<Vec<Wake>, StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {WAKE} FROM wakes WHERE ticket = ? ORDER BY seq"
    ))?;
    let rows = statement.query_map([ticket], wake_row)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn insert(
    w: &Writer<'_>,
    ask: &Ask,
    company: &str,
    depth: i64,
    state: WakeState,
    into: Option<&str>,
    run: Option<&str>,
) -> Result<String, StoreError> {
    let id = new_id();
    let comments: Vec<&String> = ask.comment.iter().collect();
    w.prepare_cached(
        "INSERT INTO wakes (id, company, agent, ticket, reason, comments, payload, state,
                            merged_into, run, corrective, actor, not_before, created_at, depth, by_run)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )?
    .execute(params![
        id,
        company,
        ask.agent,
        ask.ticket,
        ask.reason,
        serde_json::to_string(&comments)?,
        ask.payload.to_string(),
        state,
        into,
        run,
        ask.reason == Reason::Corrective,
        w.actor.label(),
        ask.not_before,
        w.now,
        depth,
        w.actor.run()
    ])?;
    Ok(id)
}

/// How many payloads a wake carries beside its own.
const ALSO: usize = 32;

/// A payload with that of a wake that merges into it: in its place, or in its list `also`.
fn with(mut payload: Value, more: &Value) -> Value {
    if payload.is_null() {
        return more.clone();
    }
    let Some(map) = payload.as_object_mut() else {
        return payload;
    };
    let also = map.entry("also").or_insert_with(|| json!([]));
    if let Some(list) = also.as_array_mut()
        && list.len() < ALSO
    {
        list.push(more.clone());
    }
    payload
}

/// What a merged wake adds to the one that waits: its comments, the corrective mark, and that a
/// person asked.
fn absorb(
    w: &Writer<'_>,
    into: &str,
    more: &[String],
    corrective: bool,
    depth: i64,
) -> Result<(), StoreError> {
    let Some(waiting) = get(w, into)? else {
        return Ok(());
    };
    let mut comments = waiting.comments;
    comments.extend_from_slice(more);
    // Their ids sort by time.
    comments.sort_unstable();
    comments.dedup();
    let excess = comments.len().saturating_sub(64);
    comments.drain(..excess);
    w.prepare_cached(
        "UPDATE wakes SET comments = ?, corrective = max(corrective, ?), depth = min(depth, ?)
         WHERE id = ?",
    )?
    .execute(params![
        serde_json::to_string(&comments)?,
        corrective,
        depth,
        into
    ])?;
    Ok(())
}

fn wake_row(row: &Row<'_>) -> rusqlite::Result<Wake> {
    let comments: String = row.get(6)?;
    let payload: String = row.get(7)?;
    Ok(Wake {
        id: row.get(0)?,
        seq: row.get(1)?,
        company: row.get(2)?,
        agent: row.get(3)?,
        ticket: row.get(4)?,
        reason: row.get(5)?,
        comments: serde_json::from_str(&comments).unwrap_or_default(),
        payload: serde_json::from_str(&payload).unwrap_or(Value::Null),
        state: row.get(8)?,
        merged_into: row.get(9)?,
        run: row.get(10)?,
        corrective: row.get(11)?,
        actor: row.get(12)?,
        not_before: row.get(13)?,
        note: row.get(14)?,
        created_at: row.get(15)?,
        depth: row.get(16)?,
        by_run: row.get(17)?,
    })
}
