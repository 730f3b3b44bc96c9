//! Tickets (`issue` in API paths), their comments and documents.

use super::time::Millis;
use super::words;

words! {
    /// Where a ticket stands.
    Status {
        /// Not to be worked on yet: assigning it wakes nobody.
        Backlog = "backlog",
        /// Ready.
        Todo = "todo",
        /// Being worked on.
        InProgress = "in_progress",
        /// Waiting for the verdict of somebody named.
        InReview = "in_review",
        /// Finished.
        Done = "done",
        /// Waiting for somebody or something named.
        Blocked = "blocked",
        /// Given up.
        Cancelled = "cancelled",
    }
}

impl Status {
    /// Done or cancelled: nothing wakes for it any more.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Done | Self::Cancelled)
    }

    /// A status in which a run may leave its ticket.
    #[must_use]
    pub fn is_disposition(self) -> bool {
        matches!(
            self,
            Self::Done | Self::Cancelled | Self::InReview | Self::Blocked
        )
    }
}

words! {
    /// How urgent a ticket is.
    Priority {
        /// First.
        Critical = "critical",
        /// Before the rest.
        High = "high",
        /// The default.
        Medium = "medium",
        /// Last.
        Low = "low",
    }
}

/// One piece of work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket {
    /// UUID.
    pub id: String,
    /// Its company.
    pub company: String,
    /// Counts from 1 in the company.
    pub number: i64,
    /// `ABC-12`.
    pub identifier: String,
    /// One line.
    pub title: String,
    /// Markdown.
    pub description: Option<String>,
    /// Where it stands.
    pub status: Status,
    /// How urgent it is.
    pub priority: Priority,
    /// The agent that works on it.
    pub assignee_agent: Option<String>,
    /// The person that works on it. Never together with an agent.
    pub assignee_user: Option<String>,
    /// The ticket it is part of.
    pub parent: Option<String>,
    /// The project it belongs to.
    pub project: Option<String>,
    /// The goal it serves.
    pub goal: Option<String>,
    /// Kept for clients.
    pub billing_code: Option<String>,
    /// Who must act on a blocked ticket, as JSON `{owner, action}`.
    pub unblock: Option<String>,
    /// The run that has checked it out. One lock, cleared in the transaction that ends the run.
    pub checkout_run: Option<String>,
    /// Who created it.
    pub created_by_agent: Option<String>,
    /// Who created it.
    pub created_by_user: Option<String>,
    /// The run that created it.
    pub created_by_run: Option<String>,
    /// When work began.
    pub started_at: Option<Millis>,
    /// When it was done.
    pub completed_at: Option<Millis>,
    /// When it was cancelled.
    pub cancelled_at: Option<Millis>,
    /// When it was created.
    pub created_at: Millis,
    /// When it was last changed.
    pub updated_at: Millis,
}

/// A remark on a ticket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comment {
    /// UUID.
    pub id: String,
    /// Order of writing, over all tickets.
    pub seq: i64,
    /// The ticket's id.
    pub ticket: String,
    /// `user`, `agent` or `system`.
    pub author_type: String,
    /// The agent that wrote it.
    pub author_agent: Option<String>,
    /// The person that wrote it.
    pub author_user: Option<String>,
    /// The run that wrote it.
    pub run: Option<String>,
    /// Markdown.
    pub body: String,
    /// When.
    pub created_at: Millis,
}

/// A named text that belongs to a ticket, such as its plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// UUID.
    pub id: String,
    /// The ticket's id.
    pub ticket: String,
    /// Its name within the ticket.
    pub key: String,
    /// The newest revision.
    pub latest: Revision,
    /// When the first revision was written.
    pub created_at: Millis,
}

/// One version of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision {
    /// UUID.
    pub id: String,
    /// Counts from 1.
    pub number: i64,
    /// One line.
    pub title: Option<String>,
    /// `markdown`.
    pub format: String,
    /// The text.
    pub body: String,
    /// What changed.
    pub summary: Option<String>,
    /// `user`, `agent` or `system`.
    pub author_type: String,
    /// The agent that wrote it.
    pub author_agent: Option<String>,
    /// The person that wrote it.
    pub author_user: Option<String>,
    /// The run that wrote it.
    pub run: Option<String>,
    /// When.
    pub created_at: Millis,
}
