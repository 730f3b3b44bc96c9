//! Approvals: asking, talking about them; deciding is in `decide`.

mod budget;
mod decide;
mod wakes;

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

pub(super) use budget::ask_for_budget;
pub use decide::{Verdict, decide, resubmit};
pub(super) use wakes::ask_to_wake;
use wakes::wake_as_asked;

use super::journal::About;
use super::{StoreError, Writer, new_id, tickets};
use crate::model::agent::{AgentPatch, NewAgent};
use crate::model::approval::{Approval, ApprovalKind, ApprovalStatus};
use crate::model::{Comment, Refusal, Ticket, text};

/// Bytes of what is asked for.
const SIZE: usize = 64 * 1024;
/// Approvals that one run may ask for, and tickets that one is about.
const PER_RUN: i64 = 20;
const TICKETS: usize = 20;

const APPROVAL: &str = "id, company, kind, status, payload, fingerprint, requested_by_agent, \
    requested_by_user, requested_by_run, note, decided_by, decided_at, made_agent, created_at, \
    updated_at";

/// What a client gives to ask. Who asks is known from the connection.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NewApproval {
    /// What is asked for.
    #[serde(rename = "type")]
    pub kind: ApprovalKind,
    /// The details.
    #[serde(default)]
    pub payload: Value,
    /// UUIDs or identifiers.
    #[serde(default)]
    pub issue_ids: Vec<String>,
}

/// Asks a person.
pub fn create(
    w: &mut Writer<'_>,
    company: &str,
    new: &NewApproval,
) -> Result<Approval, StoreError> {
    check(new.kind, &new.payload)?;
    if new.issue_ids.len() > TICKETS {
        return Err(Refusal::invalid(format!("issueIds holds at most {TICKETS} tickets")).into());
    }
    if let Some(run) = w.actor.run() {
        let asked: i64 = w.query_row(
            "SELECT count(*) FROM approvals WHERE requested_by_run = ?",
            [run],
            |row| row.get(0),
        )?;
        if asked >= PER_RUN {
            let error = format!("one run may ask for {PER_RUN} approvals");
            return Err(Refusal::forbidden("run_approval_limit", error).into());
        }
    }
    let id = new_id();
    w.execute(
        "INSERT INTO approvals (id, company, kind, status, payload, fingerprint,
             requested_by_agent, requested_by_user, requested_by_run, created_at, updated_at)
         VALUES (?, ?, ?, 'pending', ?, ?, ?, ?, ?, ?, ?)",
        params![
            id,
            company,
            new.kind,
            new.payload.to_string(),
            fingerprint(new.kind, &new.payload),
            w.actor.agent(),
            w.actor.user(),
            w.actor.run(),
            w.now,
            w.now
        ],
    )?;
    let mut linked = Vec::new();
    for reference in &new.issue_ids {
        let ticket = tickets::get(w, reference, Some(company))?;
        if !linked.contains(&ticket.id) {
            w.execute(
                "INSERT INTO approval_tickets (approval, ticket) VALUES (?, ?)",
                [&id, &ticket.id],
            )?;
            linked.push(ticket.id);
        }
    }
    let facts = json!({ "approval": id, "type": new.kind, "tickets": linked,
                        "bytes": new.payload.to_string().len() });
    let about = About {
        ticket: linked.first().map(String::as_str),
        ..About::company(company)
    };
    w.note("approval.requested", about, facts)?;
    get(w, &id, None)
}

/// The approval with this id; `within` limits an agent to its own company.
pub fn get(
    connection: &Connection,
    id: &str,
    within: Option<&str>,
) -> Result<Approval, StoreError> {
    connection
        .prepare_cached(&format!(
            "SELECT {APPROVAL} FROM approvals WHERE id = ?1 AND (?2 IS NULL OR company = ?2)"
        ))?
        .query_row(params![id, within], approval_row)
        .optional()?
        .ok_or_else(|| Refusal::missing("approval").into())
}

/// The approvals of a company, newest first.
pub fn list(
    connection: &Connection,
    company: &str,
    status: Option<ApprovalStatus>,
) -> Result<Vec<Approval>, StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {APPROVAL} FROM approvals WHERE company = ?1 AND (?2 IS NULL OR status = ?2)
         ORDER BY created_at DESC, id DESC LIMIT 500"
    ))?;
    let rows = statement.query_map(params![company, status], approval_row)?;
    super::page(rows, |it| it.payload.to_string().len())
}

/// The tickets an approval is about.
pub fn linked(connection: &Connection, id: &str) -> Result<Vec<Ticket>, StoreError> {
    let mut statement = connection
        .prepare_cached("SELECT ticket FROM approval_tickets WHERE approval = ? ORDER BY ticket")?;
    let ids = statement.query_map([id], |row| row.get(0))?;
    let ids: Vec<String> = ids.collect::<Result<_, _>>()?;
    ids.iter()
        .map(|id| tickets::get(connection, id, None))
        .collect()
}

/// Whether a person will decide something that an agent asked for about the ticket.
pub(super) fn awaited(connection: &Connection, ticket: &str) -> Result<bool, StoreError> {
    Ok(connection
        .prepare_cached(
            "SELECT count(*) > 0 FROM approval_tickets JOIN approvals ON approvals.id = approval
             WHERE ticket = ? AND status = 'pending' AND requested_by_agent IS NOT NULL",
        )?
        .query_row([ticket], |row| row.get(0))?)
}

/// Writes a remark on an approval.
pub fn comment(w: &mut Writer<'_>, id: &str, body: &str) -> Result<Comment, StoreError> {
    let approval = get(w, id, w.actor.company())?;
    let body = text::body("body", body)?;
    if body.trim().is_empty() {
        return Err(Refusal::invalid("body must not be empty").into());
    }
    let comment = new_id();
    w.execute(
        "INSERT INTO approval_comments (id, approval, author_agent, author_user, body, created_at)
         VALUES (?, ?, ?, ?, ?, ?)",
        params![
            comment,
            approval.id,
            w.actor.agent(),
            w.actor.user(),
            body,
            w.now
        ],
    )?;
    let facts = json!({ "approval": approval.id, "comment": comment, "bytes": body.len() });
    w.note(
        "approval.commented",
        About::company(&approval.company),
        facts,
    )?;
    let mut all = comments(w, &approval.id)?;
    all.pop().ok_or_else(|| Refusal::missing("comment").into())
}

/// The newest remarks on an approval, oldest first. `ticket` is the approval's id.
pub fn comments(connection: &Connection, id: &str) -> Result<Vec<Comment>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT id, seq, approval, author_agent, author_user, body, created_at
         FROM approval_comments WHERE approval = ? ORDER BY seq DESC LIMIT 500",
    )?;
    let rows = statement.query_map([id], |row| {
        let agent: Option<String> = row.get(3)?;
        Ok(Comment {
            id: row.get(0)?,
            seq: row.get(1)?,
            ticket: row.get(2)?,
            author_type: if agent.is_some() { "agent" } else { "user" }.to_owned(),
            author_agent: agent,
            author_user: row.get(4)?,
            run: None,
            body: row.get(5)?,
            created_at: row.get(6)?,
        })
    })?;
    let mut list = super::page(rows, |comment| comment.body.len())?;
    list.reverse();
    Ok(list)
}

/// What is asked for must be something that could be done.
fn check(kind: ApprovalKind, payload: &Value) -> Result<(), Refusal> {
    if !payload.is_object() {
        return Err(Refusal::invalid("payload must be an object"));
    }
    if payload.to_string().len() > SIZE {
        return Err(Refusal::invalid(format!(
            "payload is longer than {SIZE} bytes"
        )));
    }
    match kind {
        ApprovalKind::Hire => hire(payload)?.adapter.check(),
        ApprovalKind::Change => changed(payload)?
            .changes
            .adapter
            .map_or(Ok(()), |it| it.check()),
        ApprovalKind::Wake => wakes::asked(payload).map(|_wake| ()),
        ApprovalKind::Strategy | ApprovalKind::Budget | ApprovalKind::Board => Ok(()),
    }
}

/// Other settings for an agent.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Changed {
    agent_id: String,
    changes: AgentPatch,
}

fn changed(payload: &Value) -> Result<Changed, Refusal> {
    serde_json::from_value(payload.clone()).map_err(|error| {
        Refusal::invalid(format!(
            "payload must be {{\"agentId\", \"changes\"}}: {error}"
        ))
    })
}

fn hire(payload: &Value) -> Result<NewAgent, Refusal> {
    serde_json::from_value(payload.clone())
        .map_err(|error| Refusal::invalid(format!("payload is no agent: {error}")))
}

fn fingerprint(kind: ApprovalKind, payload: &Value) -> String {
    let digest = Sha256::digest(json!([kind, payload]).to_string().as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn approval_row(row: &Row<'_>) -> rusqlite::Result<Approval> {
    let payload: String = row.get(4)?;
    Ok(Approval {
        id: row.get(0)?,
        company: row.get(1)?,
        kind: row.get(2)?,
        status: row.get(3)?,
        payload: serde_json::from_str(&payload).unwrap_or(Value::Null),
        fingerprint: row.get(5)?,
        requested_by_agent: row.get(6)?,
        requested_by_user: row.get(7)?,
        requested_by_run: row.get(8)?,
        note: row.get(9)?,
        decided_by: row.get(10)?,
        decided_at: row.get(11)?,
        made_agent: row.get(12)?,
        created_at: row.get(13)?,
        updated_at: row.get(14)?,
    })
}
