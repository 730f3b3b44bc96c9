//! What work leaves behind on a ticket.

use serde_json::Value;

use super::time::Millis;

/// A file. Its bytes lie in the state directory under their hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// UUID.
    pub id: String,
    /// The ticket's id.
    pub ticket: String,
    /// One line, without directories.
    pub name: String,
    /// What its author says it is. Never believed.
    pub claimed_type: Option<String>,
    /// Bytes.
    pub size: i64,
    /// 64 hex digits.
    pub sha256: String,
    /// Who attached it.
    pub created_by_agent: Option<String>,
    /// Who attached it.
    pub created_by_user: Option<String>,
    /// The run that attached it.
    pub created_by_run: Option<String>,
    /// When.
    pub created_at: Millis,
}

/// Something that work made elsewhere: a pull request, a deployment, a page.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkProduct {
    /// UUID.
    pub id: String,
    /// The ticket's id.
    pub ticket: String,
    /// A word such as `pull_request`.
    pub kind: String,
    /// A word such as `github`.
    pub provider: Option<String>,
    /// One line.
    pub title: String,
    /// Where it is; `http` or `https`.
    pub url: Option<String>,
    /// A word such as `open`.
    pub status: Option<String>,
    /// The one that counts; at most one of a ticket.
    pub primary: bool,
    /// What clients keep with it, a JSON object.
    pub metadata: Option<Value>,
    /// Who registered it.
    pub created_by_agent: Option<String>,
    /// Who registered it.
    pub created_by_user: Option<String>,
    /// When.
    pub created_at: Millis,
    /// When it was last changed.
    pub updated_at: Millis,
}
