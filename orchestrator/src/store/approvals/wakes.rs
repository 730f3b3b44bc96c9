//! A wake that one agent writes for another and a person is asked about first.

use rusqlite::{OptionalExtension, params};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{NewApproval, create};
use crate::model::approval::{Approval, ApprovalKind};
use crate::model::{Agent, Reason, Refusal, Ticket};
use crate::store::wakes::{self, Ask};
use crate::store::{StoreError, Writer, agents, comments, tickets};

/// Characters of the words a person is shown.
const SHOWN: usize = 2_000;

/// What is asked for. A person sees the very words that would wake.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct AskedWake {
    agent_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    issue_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    comment_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
    /// What the agent wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    words: Option<String>,
}

pub(super) fn asked(payload: &Value) -> Result<AskedWake, Refusal> {
    serde_json::from_value(payload.clone())
        .map_err(|error| Refusal::invalid(format!("payload is no wake: {error}")))
}

/// Asks a person about a wake; the same question is asked once. Answers with the approval's id.
pub(in crate::store) fn ask_to_wake(
    w: &mut Writer<'_>,
    ask: &Ask,
    agent: &Agent,
    ticket: Option<&Ticket>,
) -> Result<String, StoreError> {
    let waiting: Option<String> = w
        .query_row(
            "SELECT id FROM approvals WHERE kind = 'wake_agent' AND status = 'pending'
               AND requested_by_agent IS ?1 AND json_extract(payload, '$.agentId') = ?2
               AND json_extract(payload, '$.issueId') IS ?3",
            params![w.actor.agent(), agent.id, ask.ticket],
            |row| row.get(0),
        )
        .optional()?;
    if let Some(waiting) = waiting {
        return Ok(waiting);
    }
    let words = match (&ask.ticket, &ask.comment) {
        (Some(ticket), Some(comment)) => {
            let body = comments::get(w, ticket, comment)?.body;
            Some(body.chars().take(SHOWN).collect())
        }
        _ => None,
    };
    let wanted = AskedWake {
        agent_id: agent.id.clone(),
        issue_id: ask.ticket.clone(),
        comment_id: ask.comment.clone(),
        reason: Some(ask.reason),
        words,
    };
    let new = NewApproval {
        kind: ApprovalKind::Wake,
        payload: serde_json::to_value(wanted)?,
        issue_ids: ticket.map(|ticket| ticket.id.clone()).into_iter().collect(),
    };
    Ok(create(w, &agent.company, &new)?.id)
}

/// The wake as it was asked for, now by the word of the person who acts.
pub(super) fn wake_as_asked(w: &mut Writer<'_>, approval: &Approval) -> Result<(), StoreError> {
    let wanted = asked(&approval.payload)?;
    let agent = agents::get(w, &wanted.agent_id, Some(&approval.company))?;
    let ticket = match &wanted.issue_id {
        Some(id) => Some(tickets::get(w, id, Some(&approval.company))?.id),
        None => None,
    };
    let ask = Ask {
        agent: agent.id,
        ticket,
        reason: wanted.reason.unwrap_or(Reason::OnDemand),
        comment: wanted.comment_id,
        payload: json!({ "approvalId": approval.id, "approvedBy": w.actor.user(),
                         "writtenByAgentId": approval.requested_by_agent,
                         "writtenByRunId": approval.requested_by_run }),
        not_before: 0,
        invited: true,
    };
    wakes::admit(w, ask)?;
    Ok(())
}
