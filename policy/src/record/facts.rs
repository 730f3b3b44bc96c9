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
