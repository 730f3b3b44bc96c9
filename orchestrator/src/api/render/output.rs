//! Attachments and work products as JSON.

use serde_json::{Value, json};

use crate::model::output::{Attachment, WorkProduct};
use crate::model::time::iso;

/// An attachment. `contentType` is its author's claim.
pub(in crate::api) fn attachment(it: &Attachment) -> Value {
    json!({
        "id": it.id,
        "issueId": it.ticket,
        "originalFilename": it.name,
        "contentType": it.claimed_type,
        "byteSize": it.size,
        "sha256": it.sha256,
        "contentPath": format!("/api/attachments/{}/content", it.id),
        "createdByAgentId": it.created_by_agent,
        "createdByUserId": it.created_by_user,
        "createdByRunId": it.created_by_run,
        "createdAt": iso(it.created_at),
    })
}

/// A work product.
pub(in crate::api) fn work_product(it: &WorkProduct) -> Value {
    json!({
        "id": it.id,
        "issueId": it.ticket,
        "type": it.kind,
        "provider": it.provider,
        "title": it.title,
        "url": it.url,
        "status": it.status,
        "isPrimary": it.primary,
        "metadata": it.metadata,
        "createdByAgentId": it.created_by_agent,
        "createdByUserId": it.created_by_user,
        "createdAt": iso(it.created_at),
        "updatedAt": iso(it.updated_at),
    })
}
