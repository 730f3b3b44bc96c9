//! What inspection found, as the log keeps it.

use serde::{Deserialize, Serialize};

use crate::push;
use crate::request::{Content, Facts, Reading};

/// What inspection found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordFacts {
    /// The commands of a push.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub push: Vec<PushFact>,
    /// The top-level fields of a GraphQL document, as `mutation createIssue`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub graphql: Vec<String>,
    /// A body that was read whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<BodyFact>,
    /// The model that was asked; in the line of the end, the one that says it answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How many entries of the lists above were left out, since they would not fit into a line.
    #[serde(default, skip_serializing_if = "is_none")]
    pub left_out: u64,
}

/// All facts of a record together take no more bytes than this as JSON.
const FACTS_BYTES_MAX: usize = 256 * 1024;

fn is_none(count: &u64) -> bool {
    *count == 0
}

impl RecordFacts {
    /// At most so much that it fits into a line of the log; `left_out` counts the rest.
    #[must_use]
    pub fn bounded(self) -> Self {
        self.within(FACTS_BYTES_MAX)
    }

    /// The same with no more than `most` bytes of JSON.
    pub(super) fn within(mut self, most: usize) -> Self {
        // Names and braces of an entry take less than this.
        const FRAME: usize = 32;
        let mut left = most;
        let mut fits = |text: &str| {
            let size = super::clip::json_bytes(text) + FRAME;
            let fits = size <= left;
            left = if fits { left - size } else { 0 };
            fits
        };
        if let Some(model) = self.model.take() {
            let model = super::clip::clipped(model, MODEL_BYTES_MAX);
            self.model = fits(&model).then_some(model);
        }
        let pushes = self.push.iter().take_while(|fact| fits(&fact.name)).count();
        let fields = self.graphql.iter().take_while(|field| fits(field)).count();
        let gone = (self.push.len() - pushes) + (self.graphql.len() - fields);
        self.push.truncate(pushes);
        self.graphql.truncate(fields);
        let gone = u64::try_from(gone).unwrap_or(u64::MAX);
        self.left_out = self.left_out.saturating_add(gone);
        self
    }
}

impl Facts {
    /// What of the facts is recorded, whatever is decided by them; nothing of what stood in fields or
    /// in a body but which operations a GraphQL request names.
    #[must_use]
    pub fn summary(&self) -> Option<RecordFacts> {
        let facts = match self {
            Self::None | Self::Unreadable(_) => return None,
            Self::Push(updates) => RecordFacts {
                push: push::readable(updates),
                ..RecordFacts::default()
            },
            Self::Content(content) => of_content(content)?,
        };
        Some(facts.bounded())
    }
}

fn of_content(content: &Content) -> Option<RecordFacts> {
    let body = content.body.as_ref()?;
    let operations = match &body.graphql {
        Reading::Read(operations) => operations.as_slice(),
        Reading::NotAsked | Reading::Unreadable(_) => &[],
    };
    let graphql = operations.iter().flat_map(|operation| {
        let kind = operation.kind.as_str();
        operation
            .fields
            .iter()
            .map(move |field| format!("{kind} {field}"))
    });
    Some(RecordFacts {
        graphql: graphql.collect(),
        body: body.bytes.map(|bytes| BodyFact {
            bytes,
            sha256: body.sha256.clone(),
        }),
        ..RecordFacts::default()
    })
}

/// A body that was read whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BodyFact {
    /// Its bytes as sent, or as unpacked if those are more.
    pub bytes: u64,
    /// The SHA-256 of the bytes as sent, in hex.
    pub sha256: String,
}

/// The name of a model takes no more bytes than this.
const MODEL_BYTES_MAX: usize = 1024;

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
