//! Interactions: asking, listing, and what ends one without an answer.

mod resolve;

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

pub use resolve::{Answer, resolve, withdraw};

use super::journal::About;
use super::wakes::{self, Ask};
use super::{StoreError, Writer, agents, documents, new_id, tickets};
use crate::model::interaction::{
    Continuation, Interaction, InteractionStatus, Kind, Resolver, payload,
};
use crate::model::{Actor, Reason, Refusal, Ticket, text};

/// How many interactions of a ticket may wait, and how many one run may ask.
const PENDING: i64 = 50;
const PER_RUN: i64 = 50;

const INTERACTION: &str = "id, ticket, kind, status, title, summary, payload, result, continuation, \
    resolver, addressee, revision, created_by_agent, created_by_user, created_by_run, resolved_by, \
    created_at, resolved_at";

/// What a client gives to ask.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NewInteraction {
    /// What is asked.
    pub kind: Kind,
    /// One line.
    #[serde(default)]
    pub title: Option<String>,
    /// Markdown.
    #[serde(default)]
    pub summary: Option<String>,
    /// The question.
    #[serde(default)]
    pub payload: Value,
    /// `wake_assignee` when absent.
    #[serde(default)]
    pub continuation_policy: Option<Continuation>,
    /// `not_creator` when absent.
    #[serde(default)]
    pub resolver_policy: Option<String>,
    /// The agent that is asked.
    #[serde(default)]
    pub addressee_agent_id: Option<String>,
    /// The revision it is about; may stand in the payload as well.
    #[serde(default)]
    pub target: Option<Value>,
    /// The same key and question answer with the same interaction.
    #[serde(default)]
    pub idempotency_key: Option<String>,
}

/// Asks. `false` when it was asked before.
pub fn create(
    w: &mut Writer<'_>,
    reference: &str,
    new: NewInteraction,
) -> Result<(Interaction, bool), StoreError> {
    let ticket = tickets::get(w, reference, w.actor.company())?;
    w.actor.may_change(&ticket)?;
    let fingerprint = fingerprint(&new);
    let key = new
        .idempotency_key
        .as_deref()
        .map(|key| text::line("idempotencyKey", key, 255))
        .transpose()?
        .map(|key| w.actor.own_key(&key));
    if let Some(key) = &key
        && let Some((id, earlier)) = by_key(w, &ticket.id, key)?
    {
        if earlier == fingerprint {
            return Ok((get(w, &ticket.id, &id)?, false));
        }
        return Err(Refusal::conflict(
            "idempotency_conflict",
            "this idempotencyKey was used for another question",
        )
        .with(json!({ "interactionId": id }))
        .into());
    }
    payload::check(new.kind, &new.payload)?;
    if ticket.status.is_terminal() {
        let error = format!("the ticket is {}; reopen it first", ticket.status);
        return Err(Refusal::conflict("issue_closed", error).into());
    }
    within_limits(w, &ticket)?;
    let (document, revision) = target(w, &ticket, &new)?.unzip();
    let addressee = match &new.addressee_agent_id {
        Some(agent) => Some(agents::get(w, agent, Some(&ticket.company))?.id),
        None => None,
    };
    let id = new_id();
    let title = new
        .title
        .map(|t| text::line("title", &t, text::TITLE))
        .transpose()?;
    let summary = new.summary.map(|s| text::body("summary", &s)).transpose()?;
    let resolver = resolver(new.resolver_policy.as_deref())?;
    w.execute(
        "INSERT INTO interactions (id, ticket, kind, status, title, summary, payload, continuation,
             resolver, addressee, document, revision, idempotency_key, fingerprint,
             created_by_agent, created_by_user, created_by_run, created_at)
         VALUES (?, ?, ?, 'pending', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        params![
            id,
            ticket.id,
            new.kind,
            title,
            summary,
            new.payload.to_string(),
            new.continuation_policy.unwrap_or(Continuation::Assignee),
            resolver,
            addressee,
            document,
            revision,
            key,
            fingerprint,
            w.actor.agent(),
            w.actor.user(),
            w.actor.run(),
            w.now
        ],
    )?;
    let facts = json!({ "interaction": id, "kind": new.kind, "resolver": resolver,
                        "addressee": addressee, "revision": revision,
                        "bytes": new.payload.to_string().len() });
    w.note("interaction.created", About::of(&ticket), facts)?;
    if let Some(agent) = &addressee {
        let mut ask = Ask::about(agent, &ticket.id, Reason::InteractionPending);
        ask.payload = json!({ "interactionId": id, "interactionKind": new.kind });
        wakes::admit(w, ask)?;
    }
    Ok((get(w, &ticket.id, &id)?, true))
}

/// One interaction of a ticket.
pub fn get(connection: &Connection, ticket: &str, id: &str) -> Result<Interaction, StoreError> {
    let found = connection
        .prepare_cached(&format!(
            "SELECT {INTERACTION} FROM interactions WHERE ticket = ? AND id = ?"
        ))?
        .query_row([ticket, id], interaction_row)
        .optional()?;
    found.ok_or_else(|| Refusal::missing("interaction").into())
}

/// The interactions of a ticket, oldest first.
pub fn list(connection: &Connection, ticket: &str) -> Result<Vec<Interaction>, StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {INTERACTION} FROM interactions WHERE ticket = ? ORDER BY seq DESC LIMIT 500"
    ))?;
    let rows = statement.query_map([ticket], interaction_row)?;
    let mut list = super::page(rows, |it| it.payload.to_string().len())?;
    list.reverse();
    Ok(list)
}

/// Whether somebody else than the actor will answer a question on the ticket, and the assignee will
/// hear of it.
pub(super) fn awaited(
    connection: &Connection,
    ticket: &str,
    actor: &Actor,
) -> Result<bool, StoreError> {
    Ok(connection
        .prepare_cached(
            "SELECT count(*) > 0 FROM interactions WHERE ticket = ?1 AND status = 'pending'
               AND continuation <> 'none'
               AND (resolver <> 'anyone' OR created_by_agent IS NOT ?2)",
        )?
        .query_row(params![ticket, actor.agent()], |row| row.get(0))?)
}

/// Ends what waits on a ticket that is closed.
pub(super) fn close(w: &mut Writer<'_>, ticket: &Ticket) -> Result<(), StoreError> {
    expire(w, ticket, "issue_closed", "ticket = ?", &ticket.id, false)
}

/// Ends what asked about an earlier revision of a document.
pub(super) fn outdate(
    w: &mut Writer<'_>,
    ticket: &Ticket,
    document: &str,
) -> Result<(), StoreError> {
    expire(w, ticket, "stale_target", "document = ?", document, true)
}

/// Ends what asked to be superseded by a person's comment.
pub(super) fn supersede(w: &mut Writer<'_>, ticket: &Ticket) -> Result<(), StoreError> {
    let which = "ticket = ? AND json_extract(payload, '$.supersedeOnUserComment') = 1";
    expire(w, ticket, "superseded_by_comment", which, &ticket.id, false)
}

fn expire(
    w: &mut Writer<'_>,
    ticket: &Ticket,
    outcome: &str,
    which: &str,
    value: &str,
    wake: bool,
) -> Result<(), StoreError> {
    let ids: Vec<String> = w
        .prepare_cached(&format!(
            "SELECT id FROM interactions WHERE {which} AND status = 'pending' ORDER BY seq"
        ))?
        .query_map([value], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    for id in ids {
        let mut ended = get(w, &ticket.id, &id)?;
        ended.status = InteractionStatus::Expired;
        ended.result = Some(json!({ "version": 1, "outcome": outcome, "reason": null }));
        resolve::keep(w, ticket, &ended, "interaction.expired")?;
        if wake {
            resolve::wake(w, ticket, &ended)?;
        }
    }
    Ok(())
}

/// The document and revision a question is about. It must be the newest.
fn target(
    w: &Writer<'_>,
    ticket: &Ticket,
    new: &NewInteraction,
) -> Result<Option<(String, String)>, StoreError> {
    let target = new.target.as_ref().unwrap_or(&new.payload["target"]);
    if target.is_null()
        || target["type"]
            .as_str()
            .is_some_and(|kind| kind != "issue_document")
    {
        return Ok(None);
    }
    let issue = target["issueId"].as_str();
    let (Some(key), Some(revision)) = (target["key"].as_str(), target["revisionId"].as_str())
    else {
        return Err(Refusal::invalid("target needs `key` and `revisionId` of a document").into());
    };
    if issue.is_some_and(|id| id != ticket.id && id != ticket.identifier) {
        return Err(Refusal::invalid("target.issueId is another ticket").into());
    }
    let document = documents::get(w, &ticket.id, key)?;
    if document.latest.id != revision {
        return Err(Refusal::conflict(
            "stale_target",
            "the document has changed since that revision",
        )
        .with(json!({ "currentRevisionId": document.latest.id }))
        .into());
    }
    Ok(Some((document.id, document.latest.id)))
}

fn resolver(word: Option<&str>) -> Result<Resolver, Refusal> {
    match word {
        None => Ok(Resolver::NotCreator),
        Some("board_only") => Ok(Resolver::HumanOnly),
        Some("board_or_agents") => Ok(Resolver::Anyone),
        Some(word) => Resolver::parse(word).ok_or_else(|| {
            Refusal::invalid("resolverPolicy must be anyone, not_creator or human_only")
        }),
    }
}

fn within_limits(w: &Writer<'_>, ticket: &Ticket) -> Result<(), StoreError> {
    let (pending, asked): (i64, i64) = w.query_row(
        "SELECT (SELECT count(*) FROM interactions WHERE ticket = ?1 AND status = 'pending'),
                (SELECT count(*) FROM interactions WHERE created_by_run = ?2)",
        params![ticket.id, w.actor.run()],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    if pending >= PENDING {
        let error = format!("{PENDING} interactions of this ticket wait already");
        return Err(Refusal::unprocessable("interaction_limit", error).into());
    }
    if asked >= PER_RUN {
        let error = format!("one run may ask {PER_RUN} interactions");
        return Err(Refusal::forbidden("run_interaction_limit", error).into());
    }
    Ok(())
}

/// What makes two questions the same.
fn fingerprint(new: &NewInteraction) -> Vec<u8> {
    let all = json!([
        new.kind,
        new.title,
        new.summary,
        new.payload,
        new.continuation_policy,
        new.resolver_policy,
        new.addressee_agent_id,
        new.target
    ]);
    Sha256::digest(all.to_string().as_bytes()).to_vec()
}

fn by_key(
    connection: &Connection,
    ticket: &str,
    key: &str,
) -> Result<Option<(String, Vec<u8>)>, StoreError> {
    Ok(connection
        .prepare_cached(
            "SELECT id, fingerprint FROM interactions WHERE ticket = ? AND idempotency_key = ?",
        )?
        .query_row([ticket, key], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?)
}

fn interaction_row(row: &Row<'_>) -> rusqlite::Result<Interaction> {
    let payload: String = row.get(6)?;
    let result: Option<String> = row.get(7)?;
    Ok(Interaction {
        id: row.get(0)?,
        ticket: row.get(1)?,
        kind: row.get(2)?,
        status: row.get(3)?,
        title: row.get(4)?,
        summary: row.get(5)?,
        payload: serde_json::from_str(&payload).unwrap_or(Value::Null),
        result: result.and_then(|text| serde_json::from_str(&text).ok()),
        continuation: row.get(8)?,
        resolver: row.get(9)?,
        addressee: row.get(10)?,
        revision: row.get(11)?,
        created_by_agent: row.get(12)?,
        created_by_user: row.get(13)?,
        created_by_run: row.get(14)?,
        resolved_by: row.get(15)?,
        created_at: row.get(16)?,
        resolved_at: row.get(17)?,
    })
}
