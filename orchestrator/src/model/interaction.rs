//! Interactions: a question on a ticket, with the form of its answer, that somebody else answers.

pub mod payload;

use serde_json::Value;

use super::time::Millis;
use super::{Actor, Refusal, words};

words! {
    /// What is asked.
    Kind {
        /// Yes or no.
        Confirmation = "request_confirmation",
        /// Yes with a choice among options, or no.
        Checkbox = "request_checkbox_confirmation",
        /// A verdict on each item.
        Verdicts = "request_item_verdicts",
        /// Questions with or without options.
        Questions = "ask_user_questions",
        /// Tickets to be created if somebody accepts them.
        Tasks = "suggest_tasks",
    }
}

words! {
    /// Where an interaction stands.
    InteractionStatus {
        /// Waits for its answer.
        Pending = "pending",
        /// Yes.
        Accepted = "accepted",
        /// No.
        Rejected = "rejected",
        /// Answered with more than yes or no.
        Answered = "answered",
        /// Its creator or a person took it back.
        Cancelled = "cancelled",
        /// Nobody can answer it any more.
        Expired = "expired",
        /// Kept for clients.
        Failed = "failed",
    }
}

words! {
    /// Who is woken by the answer.
    Continuation {
        /// Nobody.
        Nobody = "none",
        /// The ticket's assignee.
        Assignee = "wake_assignee",
        /// The ticket's assignee, unless the answer is no.
        OnAccept = "wake_assignee_on_accept",
    }
}

words! {
    /// Who may answer.
    Resolver {
        /// Everybody, the creator included.
        Anyone = "anyone",
        /// Everybody but the creator: the default.
        NotCreator = "not_creator",
        /// People.
        HumanOnly = "human_only",
    }
}

/// One interaction.
#[derive(Debug, Clone, PartialEq)]
pub struct Interaction {
    /// UUID.
    pub id: String,
    /// The ticket's id.
    pub ticket: String,
    /// What is asked.
    pub kind: Kind,
    /// Where it stands.
    pub status: InteractionStatus,
    /// One line.
    pub title: Option<String>,
    /// Markdown.
    pub summary: Option<String>,
    /// The question, in the form of its kind.
    pub payload: Value,
    /// The answer, in the form of its kind.
    pub result: Option<Value>,
    /// Who is woken by the answer.
    pub continuation: Continuation,
    /// Who may answer.
    pub resolver: Resolver,
    /// The agent that is asked.
    pub addressee: Option<String>,
    /// The revision of a document that the question is about.
    pub revision: Option<String>,
    /// Who asked.
    pub created_by_agent: Option<String>,
    /// Who asked.
    pub created_by_user: Option<String>,
    /// The run that asked.
    pub created_by_run: Option<String>,
    /// Who answered: `user:NAME`, `agent:ID` or `system`.
    pub resolved_by: Option<String>,
    /// When it was asked.
    pub created_at: Millis,
    /// When it was answered.
    pub resolved_at: Option<Millis>,
}

impl Interaction {
    /// Whether the actor asked it.
    #[must_use]
    pub fn is_by(&self, actor: &Actor) -> bool {
        let agent = actor.agent().is_some() && self.created_by_agent.as_deref() == actor.agent();
        let user = actor.user().is_some() && self.created_by_user.as_deref() == actor.user();
        agent || user
    }

    /// Whether the actor may answer it.
    ///
    /// # Errors
    /// 403 with the rule that says no.
    pub fn may_resolve(&self, actor: &Actor) -> Result<(), Refusal> {
        let no = |code, error: &str| Err(Refusal::forbidden(code, error));
        if self.resolver == Resolver::NotCreator && self.is_by(actor) {
            return no(
                "interaction_self_resolution",
                "whoever asks does not answer: resolverPolicy is not_creator",
            );
        }
        let Some(agent) = actor.agent() else {
            return Ok(());
        };
        if self.resolver == Resolver::HumanOnly {
            return no("interaction_human_only", "only a person may answer this");
        }
        match &self.addressee {
            Some(other) if other != agent => no(
                "interaction_not_addressee",
                "another agent is asked; people may answer for it",
            ),
            Some(_) | None => Ok(()),
        }
    }
}
