//! Where work belongs and what it is for: projects, goals, labels.

use super::time::Millis;
use super::words;

words! {
    /// Where a project stands.
    ProjectStatus {
        /// Thought of.
        Backlog = "backlog",
        /// Decided.
        Planned = "planned",
        /// The default.
        InProgress = "in_progress",
        /// Finished.
        Completed = "completed",
        /// Given up.
        Cancelled = "cancelled",
    }
}

words! {
    /// Whose goal it is.
    GoalLevel {
        /// Everybody's.
        Company = "company",
        /// A team's.
        Team = "team",
        /// One agent's.
        Agent = "agent",
        /// The default: of a piece of work.
        Task = "task",
    }
}

words! {
    /// Where a goal stands.
    GoalStatus {
        /// Decided.
        Planned = "planned",
        /// The default.
        Active = "active",
        /// Reached.
        Achieved = "achieved",
        /// Given up.
        Cancelled = "cancelled",
    }
}

/// Tickets that belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    /// UUID.
    pub id: String,
    /// Its company.
    pub company: String,
    /// Unique in the company.
    pub name: String,
    /// Markdown.
    pub description: Option<String>,
    /// Where it stands.
    pub status: ProjectStatus,
    /// The goal it serves.
    pub goal: Option<String>,
    /// The agent that leads it.
    pub lead: Option<String>,
    /// When it was created.
    pub created_at: Millis,
    /// When it was last changed.
    pub updated_at: Millis,
}

/// What work is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Goal {
    /// UUID.
    pub id: String,
    /// Its company.
    pub company: String,
    /// One line.
    pub title: String,
    /// Markdown.
    pub description: Option<String>,
    /// Whose.
    pub level: GoalLevel,
    /// Where it stands.
    pub status: GoalStatus,
    /// The goal it is part of.
    pub parent: Option<String>,
    /// The agent that answers for it.
    pub owner: Option<String>,
    /// When it was created.
    pub created_at: Millis,
    /// When it was last changed.
    pub updated_at: Millis,
}

/// A word on tickets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// UUID.
    pub id: String,
    /// Its company.
    pub company: String,
    /// Unique in the company.
    pub name: String,
    /// `#rrggbb`.
    pub color: Option<String>,
    /// When it was created.
    pub created_at: Millis,
}
