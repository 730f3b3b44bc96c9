//! Interactions as JSON.

use serde_json::{Value, json};

use crate::model::Ticket;
use crate::model::interaction::Interaction;
use crate::model::time::iso;

/// An interaction of a ticket.
pub(in crate::api) fn interaction(it: &Interaction, ticket: &Ticket) -> Value {
    let by = |kind: &str| {
        let label = it.resolved_by.as_deref()?;
        label.strip_prefix(kind).map(str::to_owned)
    };
    json!({
        "id": it.id,
        "companyId": ticket.company,
        "issueId": it.ticket,
        "kind": it.kind,
        "status": it.status,
        "title": it.title,
        "summary": it.summary,
        "payload": it.payload,
        "result": it.result,
        "continuationPolicy": it.continuation,
        "resolverPolicy": it.resolver,
        "addresseeAgentId": it.addressee,
        "targetRevisionId": it.revision,
        "createdByAgentId": it.created_by_agent,
        "createdByUserId": it.created_by_user,
        "sourceRunId": it.created_by_run,
        "resolvedByAgentId": by("agent:"),
        "resolvedByUserId": by("user:"),
        "createdAt": iso(it.created_at),
        "resolvedAt": it.resolved_at.map(iso),
        "updatedAt": iso(it.resolved_at.unwrap_or(it.created_at)),
    })
}
