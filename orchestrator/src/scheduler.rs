//! Who works on what, when: a pure function from what is known to what happens next.
//!
//! [`decide`] looks at every queued wake and answers with a [`Decision`] for each. A *no* is data: it
//! lists every [`Gate`] with its fact, so that "why does nothing happen?" has an answer. Nothing
//! here does I/O; `store::snapshot` gathers the [`State`], `supervise` carries decisions out.

pub mod admission;

use std::collections::{BTreeMap, HashSet};

use serde::Serialize;

use crate::model::quiet::Quiet;
use crate::model::time::{Millis, iso};
use crate::model::{AgentStatus, Priority, Profile, Reason, Status};

/// Everything [`decide`] may look at.
#[derive(Debug, Clone, Default)]
pub struct State {
    /// The queued wakes.
    pub wakes: Vec<WakeFacts>,
    /// Free slices of host ids.
    pub slices_free: usize,
    /// Whether any run can start at the moment.
    pub readiness: Readiness,
    /// Live runs and their bound, by profile; [`Profile::EVERY`] stands for all of them.
    pub profiles: BTreeMap<String, Concurrency>,
}

/// Why no run can start at all, by the gate that is shut.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Readiness {
    /// Why the boundary is not proven, if it is not.
    pub boundary: Option<String>,
    /// Why the gate does not serve, if it does not.
    pub gate: Option<String>,
}

impl Readiness {
    /// Whether runs can start.
    #[must_use]
    pub fn ready(&self) -> bool {
        self.boundary.is_none() && self.gate.is_none()
    }
}

/// How many runs are live, and how many may be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Concurrency {
    /// Live.
    pub live: i64,
    /// Bound.
    pub most: Option<i64>,
}

/// What was spent this month and what may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    /// `the agent` or `the company`.
    pub whose: &'static str,
    /// Cents.
    pub spent: i64,
    /// Cents.
    pub limit: i64,
}

/// One queued wake and what it depends on.
#[derive(Debug, Clone)]
pub struct WakeFacts {
    /// The wake's id.
    pub wake: String,
    /// Order of arrival.
    pub seq: i64,
    /// Why.
    pub reason: Reason,
    /// Not before this time.
    pub not_before: Millis,
    /// The agent's id.
    pub agent: String,
    /// Its state.
    pub agent_status: AgentStatus,
    /// The agent's live run.
    pub agent_run: Option<String>,
    /// Its policy profile.
    pub profile: String,
    /// When no run of its profile starts; a sentence where that cannot be told.
    pub quiet: Option<Result<Quiet, String>>,
    /// Its bounds of the month.
    pub budgets: Vec<Budget>,
    /// The ticket, if it is about one.
    pub ticket: Option<TicketFacts>,
}

/// What a wake's ticket looks like.
#[derive(Debug, Clone)]
pub struct TicketFacts {
    /// Its id.
    pub id: String,
    /// Where it stands.
    pub status: Status,
    /// How urgent it is.
    pub priority: Priority,
    /// The agent it is assigned to.
    pub assignee: Option<String>,
    /// Identifiers of the blockers that are not done.
    pub blockers: Vec<String>,
    /// The run that works on it.
    pub run: Option<String>,
}

/// One condition of a run, and the fact that opens or shuts it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Gate {
    /// Stable name.
    pub gate: &'static str,
    /// Whether it is open.
    pub open: bool,
    /// What it looked at.
    pub fact: String,
}

/// What to do about one wake.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "decision", rename_all = "snake_case")]
pub enum Decision {
    /// Start a run.
    Start {
        /// The wake's id.
        wake: String,
    },
    /// Not now.
    Wait {
        /// The wake's id.
        wake: String,
        /// When to look again, if only time is missing.
        until: Option<Millis>,
        /// Every gate; at least one is shut.
        gates: Vec<Gate>,
    },
    /// Never: what it asked for is moot.
    Drop {
        /// The wake's id.
        wake: String,
        /// The gate that stays shut.
        gate: Gate,
    },
}

/// Decides about every queued wake, most urgent first. At most one start per ticket, per agent and
/// per free slice comes out, whatever the state says.
#[must_use]
pub fn decide(state: &State, now: Millis) -> Vec<Decision> {
    let mut order: Vec<&WakeFacts> = state.wakes.iter().collect();
    order.sort_by_key(|wake| urgency(wake));
    let mut agents: HashSet<&str> = HashSet::new();
    let mut tickets: HashSet<&str> = HashSet::new();
    let mut free = state.slices_free;
    let mut profiles = state.profiles.clone();
    let mut decisions = Vec::with_capacity(order.len());
    for wake in order {
        if let Some(gate) = moot(wake) {
            decisions.push(Decision::Drop {
                wake: wake.wake.clone(),
                gate,
            });
            continue;
        }
        let mut gates = gates(wake, now);
        let ticket = wake.ticket.as_ref().map(|t| t.id.as_str());
        if agents.contains(wake.agent.as_str()) {
            shut(
                &mut gates,
                "agent_free",
                "another wake of this agent goes first",
            );
        }
        if ticket.is_some_and(|id| tickets.contains(id)) {
            shut(
                &mut gates,
                "ticket_free",
                "another wake of this ticket goes first",
            );
        }
        gates.push(concurrency(&profiles, &wake.profile));
        gates.push(gate(
            "engine_ready",
            free > 0,
            format!("{free} slices of host ids are free"),
        ));
        let ready = |name, problem: &Option<String>, fine: &str| {
            let fact = problem.clone().unwrap_or_else(|| fine.to_owned());
            gate(name, problem.is_none(), fact)
        };
        gates.push(ready(
            "boundary_proven",
            &state.readiness.boundary,
            "proven",
        ));
        gates.push(ready("gate_ready", &state.readiness.gate, "it serves"));
        if gates.iter().all(|gate| gate.open) {
            agents.insert(&wake.agent);
            tickets.extend(ticket);
            free -= 1;
            for name in [Profile::EVERY, &wake.profile] {
                profiles.entry(name.to_owned()).or_default().live += 1;
            }
            decisions.push(Decision::Start {
                wake: wake.wake.clone(),
            });
        } else {
            let only_time = gates
                .iter()
                .all(|gate| gate.open || matches!(gate.gate, "not_before" | "quiet_hours"));
            let until = wake.not_before.max(quiet_until(wake, now).unwrap_or(now));
            let until = only_time.then_some(until);
            decisions.push(Decision::Wait {
                wake: wake.wake.clone(),
                until,
                gates,
            });
        }
    }
    decisions
}

/// The conditions that concern one wake alone, in the order people would ask them.
#[must_use]
pub fn gates(wake: &WakeFacts, now: Millis) -> Vec<Gate> {
    let mut gates = Vec::with_capacity(8);
    let active = wake.agent_status == AgentStatus::Active;
    gates.push(gate(
        "agent_active",
        active,
        format!("the agent is {}", wake.agent_status),
    ));
    if let Some(ticket) = &wake.ticket {
        let fact = match &ticket.assignee {
            Some(agent) if *agent == wake.agent => "the ticket is this agent's".to_owned(),
            Some(_) | None => format!("it is not, and need not be for {}", wake.reason),
        };
        gates.push(gate("assigned", true, fact));
        gates.push(gate(
            "ticket_open",
            true,
            format!("the ticket is {}", ticket.status),
        ));
        let blocked = !ticket.blockers.is_empty() && !talks(wake.reason);
        let fact = if ticket.blockers.is_empty() {
            "nothing blocks it".to_owned()
        } else {
            format!("waits for {}", ticket.blockers.join(", "))
        };
        gates.push(gate("blockers_done", !blocked, fact));
        let fact = match &ticket.run {
            Some(run) => format!("run {run} works on it"),
            None => "no run works on it".to_owned(),
        };
        gates.push(gate("ticket_free", ticket.run.is_none(), fact));
    }
    let fact = match &wake.agent_run {
        Some(run) => format!("the agent is busy with run {run}"),
        None => "the agent has no run".to_owned(),
    };
    gates.push(gate("agent_free", wake.agent_run.is_none(), fact));
    let wait = wake.not_before.saturating_sub(now);
    let fact = if wait > 0 {
        format!("waits {wait} ms more")
    } else {
        "it is time".to_owned()
    };
    gates.push(gate("not_before", wait <= 0, fact));
    let fact = match &wake.quiet {
        None => "its profile has no quiet hours".to_owned(),
        Some(Err(problem)) => format!("its profile's quiet hours cannot be told: {problem}"),
        Some(Ok(_)) => match quiet_until(wake, now) {
            Some(end) => format!("its profile is quiet until {}", iso(end)),
            None => "its profile is not quiet now".to_owned(),
        },
    };
    let told = !matches!(wake.quiet, Some(Err(_)));
    let open = told && quiet_until(wake, now).is_none();
    gates.push(gate("quiet_hours", open, fact));
    gates.push(budget(&wake.budgets));
    gates
}

fn quiet_until(wake: &WakeFacts, now: Millis) -> Option<Millis> {
    wake.quiet.as_ref()?.as_ref().ok()?.until(now)
}

fn budget(budgets: &[Budget]) -> Gate {
    let spent = |it: &&Budget| it.spent >= it.limit;
    match budgets.iter().find(spent).or(budgets.first()) {
        Some(it) => gate(
            "budget",
            it.spent < it.limit,
            format!(
                "{} has spent {} of {} cents this month",
                it.whose, it.spent, it.limit
            ),
        ),
        None => gate("budget", true, "no budget is set".to_owned()),
    }
}

fn concurrency(profiles: &BTreeMap<String, Concurrency>, profile: &str) -> Gate {
    for name in [profile, Profile::EVERY] {
        if let Some(Concurrency {
            live,
            most: Some(most),
        }) = profiles.get(name)
            && live >= most
        {
            let whose = if name == Profile::EVERY {
                "all profiles"
            } else {
                name
            };
            let fact = format!("{live} of {most} runs of {whose} are live");
            return gate("concurrency", false, fact);
        }
    }
    let live = profiles.get(profile).map_or(0, |it| it.live);
    gate(
        "concurrency",
        true,
        format!("{live} runs of {profile} are live"),
    )
}

/// A comment, mention or question may be answered although the work itself is blocked.
fn talks(reason: Reason) -> bool {
    reason.is_verdict()
        || matches!(
            reason,
            Reason::Commented | Reason::Mentioned | Reason::Reopened | Reason::InteractionPending
        )
}

/// The gate that will not open again for this wake.
fn moot(wake: &WakeFacts) -> Option<Gate> {
    if wake.agent_status == AgentStatus::Terminated {
        return Some(gate(
            "agent_active",
            false,
            "the agent is terminated".into(),
        ));
    }
    let ticket = wake.ticket.as_ref()?;
    let mention = wake.reason == Reason::Mentioned;
    if !mention && (ticket.status.is_terminal() || ticket.status == Status::Backlog) {
        return Some(gate(
            "ticket_open",
            false,
            format!("the ticket is {}", ticket.status),
        ));
    }
    let asked = matches!(wake.reason, Reason::OnDemand | Reason::InteractionPending);
    let invited = mention || asked || wake.reason.is_verdict();
    if !invited && ticket.assignee.as_deref() != Some(&wake.agent) {
        let fact = "the ticket is no longer assigned to this agent".to_owned();
        return Some(gate("assigned", false, fact));
    }
    None
}

fn urgency(wake: &WakeFacts) -> (u8, u8, i64) {
    let (status, priority) = match &wake.ticket {
        Some(ticket) => {
            let status = match ticket.status {
                Status::InProgress => 0,
                Status::Todo | Status::InReview => 1,
                Status::Blocked | Status::Backlog => 3,
                Status::Done | Status::Cancelled => 4,
            };
            let priority = match ticket.priority {
                Priority::Critical => 0,
                Priority::High => 1,
                Priority::Medium => 2,
                Priority::Low => 3,
            };
            (status, priority)
        }
        None => (2, 2),
    };
    (status, priority, wake.seq)
}

fn gate(gate: &'static str, open: bool, fact: String) -> Gate {
    Gate { gate, open, fact }
}

fn shut(gates: &mut [Gate], name: &str, fact: &str) {
    for gate in gates
        .iter_mut()
        .filter(|gate| gate.gate == name && gate.open)
    {
        gate.open = false;
        fact.clone_into(&mut gate.fact);
    }
}

#[cfg(test)]
mod tests;
