//! What inspection found, as the log keeps it.

use serde::{Deserialize, Serialize};

/// What inspection found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordFacts {
    /// The commands of a push.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub push: Vec<PushFact>,
    /// The top-level fields of a GraphQL document, as `mutation createIssue`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub graphql: Vec<String>,
    /// The model that was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// One command of a push.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushFact {
    /// The full ref name.
    #[serde(rename = "ref")]
    pub name: String,
    /// What happens to it.
    pub op: RefOp,
}

/// What a push command does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefOp {
    /// The ref did not exist.
    Create,
    /// The ref moves; whether forward or not, the command list does not say.
    Update,
    /// The ref goes away.
    Delete,
}
