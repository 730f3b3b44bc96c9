//! Whether a request for an agent's attention becomes a queued wake.

use crate::model::{AgentStatus, Reason, Status};

/// How many runs in a row may lead to a wake, each causing the next, before a person must ask.
pub const CHAIN: i64 = 12;
/// How many runs in a row may change nothing on a ticket before a person must ask again.
pub const IDLE: i64 = 4;
/// How many wakes of one agent in an hour other runs may cause.
pub const HOURLY: i64 = 60;

/// What the word of whoever asks is worth to the agent that would be woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// A person's, the board's, an invited agent's, or one that may wake others.
    Enough,
    /// Of an agent that may not wake others.
    Nothing,
    /// The woken agent's profile wants a person to approve it.
    Asks,
    /// The woken agent's profile takes none from agents.
    Shut,
}

/// What is known when somebody asks.
#[derive(Debug, Clone)]
pub struct Facts {
    /// Why it is asked.
    pub reason: Reason,
    /// The asking run belongs to the very agent that would be woken.
    pub by_target: bool,
    /// The agent's state.
    pub agent: AgentStatus,
    /// The ticket's status, if it is about one.
    pub ticket: Option<Status>,
    /// The wake that waits for the same agent and ticket.
    pub queued: Option<String>,
    /// The agent's live run.
    pub live_run: Option<String>,
    /// Wakes of this agent that wait.
    pub waiting: i64,
    /// How many may.
    pub cap: i64,
    /// How many runs in a row led to this; 0 when a person asks.
    pub depth: i64,
    /// Wakes of this agent in the last hour that other runs caused.
    pub lately: i64,
    /// How many runs in a row changed nothing on the ticket since a person last asked.
    pub idle: i64,
    /// What the asker's word is worth.
    pub word: Word,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// It waits for a run.
    Queue,
    /// It becomes part of the wake that waits.
    MergeInto(String),
    /// It becomes part of the run that is live.
    MergeIntoRun(String),
    /// A person is asked first.
    Ask,
    /// It leads to nothing, for this reason.
    Refuse {
        /// Stable name of the gate that is shut.
        gate: &'static str,
        /// The fact that shuts it.
        fact: String,
    },
}

/// Judges one request. Pure; the order of the checks is the order of their reasons' weight.
#[must_use]
pub fn judge(facts: Facts) -> Admission {
    if facts.by_target && facts.reason != Reason::Corrective {
        return refuse(
            "not_own_write",
            "an agent's own writes never wake it".into(),
        );
    }
    if facts.agent == AgentStatus::Terminated {
        return refuse("agent_exists", "the agent is terminated".into());
    }
    if let Some(status) = facts.ticket
        && status.is_terminal()
        && facts.reason != Reason::Mentioned
    {
        return refuse(
            "ticket_open",
            format!("the ticket is {status}; reopen it first"),
        );
    }
    if facts.ticket == Some(Status::Backlog) && facts.reason != Reason::Mentioned {
        return refuse(
            "ticket_ready",
            "the ticket is in the backlog; move it to todo".into(),
        );
    }
    match facts.word {
        Word::Enough | Word::Asks => {}
        Word::Nothing => {
            let fact = "the writing agent may not wake others (mayWake)";
            return refuse("may_wake", fact.into());
        }
        Word::Shut => {
            let fact = "the agent's profile takes no wakes from agents";
            return refuse("profile_wakes", fact.into());
        }
    }
    if facts.word == Word::Asks {
        return Admission::Ask;
    }
    if let Some(waiting) = facts.queued {
        return Admission::MergeInto(waiting);
    }
    // A run that goes on already would not hear the verdict.
    if facts.ticket.is_none()
        && !facts.reason.is_verdict()
        && let Some(run) = facts.live_run
    {
        return Admission::MergeIntoRun(run);
    }
    if facts.waiting >= facts.cap {
        return refuse(
            "queue_cap",
            format!("{} wakes of this agent wait already", facts.waiting),
        );
    }
    if facts.depth > 0 && facts.idle >= IDLE && facts.reason != Reason::Corrective {
        return refuse(
            "no_progress",
            format!(
                "the last {} runs changed nothing on this ticket; a person must ask",
                facts.idle
            ),
        );
    }
    if facts.depth > CHAIN {
        return refuse(
            "chain",
            format!("{CHAIN} runs in a row have caused each other; a person must ask"),
        );
    }
    if facts.depth > 0 && facts.lately >= HOURLY && facts.reason != Reason::Corrective {
        return refuse(
            "hourly",
            format!(
                "other runs have woken this agent {HOURLY} times in an hour; a person must ask"
            ),
        );
    }
    Admission::Queue
}

fn refuse(gate: &'static str, fact: String) -> Admission {
    Admission::Refuse { gate, fact }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        Facts {
            reason: Reason::Commented,
            by_target: false,
            agent: AgentStatus::Active,
            ticket: Some(Status::Todo),
            queued: None,
            live_run: None,
            waiting: 0,
            cap: 10,
            depth: 0,
            lately: 0,
            idle: 0,
            word: Word::Enough,
        }
    }

    #[test]
    fn another_persons_comment_queues_and_the_second_merges() {
        assert_eq!(judge(facts()), Admission::Queue);
        let second = Facts {
            queued: Some("w".into()),
            ..facts()
        };
        assert_eq!(judge(second), Admission::MergeInto("w".into()));
    }

    #[test]
    fn own_writes_wake_nobody() {
        let own = Facts {
            by_target: true,
            ..facts()
        };
        assert!(matches!(
            judge(own),
            Admission::Refuse {
                gate: "not_own_write",
                ..
            }
        ));
    }

    #[test]
    fn a_wake_during_a_run_waits_but_a_bare_one_joins_the_run() {
        let during = Facts {
            live_run: Some("r".into()),
            ..facts()
        };
        assert_eq!(judge(during.clone()), Admission::Queue);
        let bare = Facts {
            ticket: None,
            reason: Reason::OnDemand,
            ..during
        };
        assert_eq!(judge(bare.clone()), Admission::MergeIntoRun("r".into()));
        for reason in [
            Reason::Approved,
            Reason::Rejected,
            Reason::RevisionRequested,
        ] {
            let verdict = Facts {
                reason,
                ..bare.clone()
            };
            assert_eq!(judge(verdict), Admission::Queue, "{reason}");
        }
    }

    #[test]
    fn finished_and_parked_tickets_wake_nobody() {
        for status in [Status::Done, Status::Cancelled, Status::Backlog] {
            let shut = Facts {
                ticket: Some(status),
                ..facts()
            };
            assert!(matches!(judge(shut), Admission::Refuse { .. }), "{status}");
        }
        for status in [Status::InReview, Status::Blocked, Status::InProgress] {
            assert_eq!(
                judge(Facts {
                    ticket: Some(status),
                    ..facts()
                }),
                Admission::Queue
            );
        }
    }

    #[test]
    fn agents_wake_each_other_within_bounds_and_a_person_always_may() {
        let asked = |depth, lately| {
            judge(Facts {
                depth,
                lately,
                ..facts()
            })
        };
        for (depth, lately) in [(0, HOURLY), (CHAIN, HOURLY - 1), (1, 0)] {
            assert_eq!(asked(depth, lately), Admission::Queue, "{depth} {lately}");
        }
        for (depth, lately) in [(CHAIN + 1, 0), (1, HOURLY)] {
            assert!(matches!(asked(depth, lately), Admission::Refuse { .. }));
        }
    }

    #[test]
    fn runs_that_change_nothing_stop_until_a_person_asks() {
        let asked = |idle, depth, reason| {
            judge(Facts {
                idle,
                depth,
                reason,
                ..facts()
            })
        };
        let no = asked(IDLE, 1, Reason::Commented);
        let shut = "no_progress";
        assert!(matches!(no, Admission::Refuse { gate, .. } if gate == shut));
        for (idle, depth, reason) in [
            (IDLE - 1, 1, Reason::Commented),
            (IDLE, 0, Reason::Commented),
            (IDLE, 1, Reason::Corrective),
        ] {
            assert_eq!(
                asked(idle, depth, reason),
                Admission::Queue,
                "{idle} {depth}"
            );
        }
    }

    #[test]
    fn the_queue_is_capped() {
        let full = Facts {
            waiting: 10,
            ..facts()
        };
        assert!(matches!(
            judge(full),
            Admission::Refuse {
                gate: "queue_cap",
                ..
            }
        ));
    }
}
