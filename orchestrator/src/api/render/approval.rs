//! Approvals as JSON.

use serde_json::{Value, json};

use crate::model::Comment;
use crate::model::approval::Approval;
use crate::model::time::iso;

/// An approval.
pub(in crate::api) fn approval(it: &Approval) -> Value {
    let person = it
        .decided_by
        .as_deref()
        .and_then(|label| label.strip_prefix("user:"));
    json!({
        "id": it.id,
        "companyId": it.company,
        "type": it.kind,
        "status": it.status,
        "payload": it.payload,
        "fingerprint": it.fingerprint,
        "requestedByAgentId": it.requested_by_agent,
        "requestedByUserId": it.requested_by_user,
        "decisionNote": it.note,
        "decidedByUserId": person,
        "decidedAt": it.decided_at.map(iso),
        "agentId": it.made_agent,
        "createdAt": iso(it.created_at),
        "updatedAt": iso(it.updated_at),
    })
}

/// A remark on an approval.
pub(in crate::api) fn remark(comment: &Comment) -> Value {
    json!({
        "id": comment.id,
        "approvalId": comment.ticket,
        "authorAgentId": comment.author_agent,
        "authorUserId": comment.author_user,
        "body": comment.body,
        "createdAt": iso(comment.created_at),
    })
}
