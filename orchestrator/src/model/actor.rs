//! Who does something: a person, a run of an agent, or the orchestrator itself.

use super::{Refusal, Ticket};

/// The author of a change. Comes from the connection (a person's uid) or from a run token, never
/// from anything a request says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Actor {
    /// A person on the operator socket.
    User {
        /// The account's name.
        name: String,
    },
    /// A live run.
    Agent {
        /// The agent's id.
        agent: String,
        /// Its company's id.
        company: String,
        /// The run's id.
        run: String,
        /// The ticket the run was started for.
        ticket: Option<String>,
    },
    /// The orchestrator.
    System,
}

impl Actor {
    /// `user`, `agent` or `system`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::User { .. } => "user",
            Self::Agent { .. } => "agent",
            Self::System => "system",
        }
    }

    /// The agent's id, if an agent acts.
    #[must_use]
    pub fn agent(&self) -> Option<&str> {
        match self {
            Self::Agent { agent, .. } => Some(agent),
            Self::User { .. } | Self::System => None,
        }
    }

    /// The person's name, if a person acts.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        match self {
            Self::User { name } => Some(name),
            Self::Agent { .. } | Self::System => None,
        }
    }

    /// The run's id, if a run acts.
    #[must_use]
    pub fn run(&self) -> Option<&str> {
        match self {
            Self::Agent { run, .. } => Some(run),
            Self::User { .. } | Self::System => None,
        }
    }

    /// The only company the actor may see, or `None` for people and the system.
    #[must_use]
    pub fn company(&self) -> Option<&str> {
        match self {
            Self::Agent { company, .. } => Some(company),
            Self::User { .. } | Self::System => None,
        }
    }

    /// One word for journals: `user:NAME`, `agent:ID` or `system`.
    #[must_use]
    pub fn label(&self) -> String {
        match self {
            Self::User { name } => format!("user:{name}"),
            Self::Agent { agent, .. } => format!("agent:{agent}"),
            Self::System => "system".to_owned(),
        }
    }

    /// A key against repeats, as it is kept: nobody's key answers for another's.
    #[must_use]
    pub fn own_key(&self, key: &str) -> String {
        format!("{} {key}", self.label())
    }

    /// Whether the actor may change the ticket: people may; an agent may change what it is
    /// assigned, what it created, and what nobody is assigned.
    ///
    /// # Errors
    /// 403 for another agent's ticket.
    pub fn may_change(&self, ticket: &Ticket) -> Result<(), Refusal> {
        let Self::Agent { agent, .. } = self else {
            return Ok(());
        };
        let assignee = ticket.assignee_agent.as_deref();
        let created = ticket.created_by_agent.as_deref() == Some(agent);
        let unassigned = assignee.is_none() && ticket.assignee_user.is_none();
        if assignee == Some(agent) || created || unassigned {
            return Ok(());
        }
        Err(Refusal::forbidden(
            "not_your_ticket",
            "this ticket is assigned to somebody else; comment on it instead",
        ))
    }
}
