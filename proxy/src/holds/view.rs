//! A hold as people see it.

use policy::Held;
use policy::record::redact_target;
use serde::Serialize;

use super::Asking;
use crate::digest::sha256;

/// So much of a body is kept to be shown.
const SHOWN_BYTES: usize = 16 * 1024;

/// One hold, for people.
#[derive(Debug, Clone, Serialize)]
pub struct View {
    pub id: String,
    /// SHA-256 of what is decided about, in hex.
    pub digest: String,
    /// `waiting` or `approved`.
    pub state: &'static str,
    /// Who approved it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decider: Option<String>,
    pub seconds_left: u64,
    /// Requests that wait for it at this moment.
    pub requests: usize,
    pub method: String,
    pub target: String,
    pub authority: String,
    /// What is decided about, line by line.
    pub subject: Vec<String>,
    /// The rule that has it wait, and why that is there.
    pub rule: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Who may decide; empty for whoever administers the gate.
    pub by: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ticket: Option<String>,
    /// The beginning of the body, where it is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
}

impl View {
    /// Of what has just begun to wait.
    pub(super) fn of(id: &str, held: &Held, asking: &Asking<'_>) -> Self {
        let begin = asking
            .body
            .map(|body| body.get(..SHOWN_BYTES).unwrap_or(body));
        let text = begin.and_then(|bytes| std::str::from_utf8(bytes).ok());
        Self {
            id: id.to_owned(),
            digest: sha256(held.subject()),
            state: "waiting",
            decider: None,
            seconds_left: held.seconds(),
            requests: 0,
            method: asking.method.to_owned(),
            target: asking.target.to_owned(),
            authority: held.would().authority().to_string(),
            subject: held.subject().lines().map(str::to_owned).collect(),
            rule: held.rule().to_string(),
            why: held.why().map(str::to_owned),
            by: held.by().to_vec(),
            run: asking.record.run.as_ref().map(ToString::to_string),
            agent: asking.record.agent.clone(),
            ticket: asking.record.ticket.clone(),
            body: text.filter(|text| !text.is_empty()).map(str::to_owned),
        }
    }

    /// One line for the log, which keeps no values of a query.
    #[must_use]
    pub fn summary(&self) -> String {
        format!(
            "hold {}: {} {} {} waits, as rule {} says",
            self.id,
            self.method,
            self.authority,
            redact_target(&self.target),
            self.rule
        )
    }
}
