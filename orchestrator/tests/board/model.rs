//! The scheduler as a machine, with the real database beneath: whatever happens in whatever order, the
//! promises hold after each step.
//!
//! Steps are requests for attention, claims, ends that come late or twice, crashes (what ran is lost
//! and proven gone later), clocks that jump, an agent that is paused, a boundary that is not proven, a
//! budget that is spent. A fraction of them in every run, fifty thousand for each round of a soak.

use std::collections::HashSet;
use std::sync::atomic::{AtomicI64, Ordering};

use orchestrator::container::Evidence;
use orchestrator::model::run::Outcome;
use orchestrator::model::{Actor, AgentStatus, Reason, RunStatus, Status};
use orchestrator::scheduler::{Decision, Readiness, decide};
use orchestrator::store::tickets::{NewTicket, Patch};
use orchestrator::store::wakes::Ask;
use orchestrator::store::{
    Store, StoreError, Writer, agents, costs, runs, snapshot, tickets, wakes,
};
use serde_json::json;

static CLOCK: AtomicI64 = AtomicI64::new(1_800_000_000_000);
const SLICES: [i64; 3] = [0, 1, 2];

fn clock() -> i64 {
    CLOCK.load(Ordering::Relaxed)
}

/// Small, fast, the same for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % sides as u64).unwrap()
    }
}

/// What the world outside the database is like.
struct Outside {
    dice: Dice,
    agents: Vec<String>,
    tickets: Vec<String>,
    /// Runs that were started here and whose end was not heard of yet.
    known: Vec<String>,
    boundary: bool,
}

fn outcome(dice: &mut Dice) -> Outcome {
    let all = [
        RunStatus::Succeeded,
        RunStatus::Succeeded,
        RunStatus::Failed,
        RunStatus::Cancelled,
        RunStatus::Lost,
    ];
    Outcome {
        status: all[dice.roll(all.len())],
        exit: None,
        reason: "the model says so".to_owned(),
        retry: dice.roll(8) == 0,
    }
}

/// A rule's no is an answer, and changes nothing; anything else is a mistake.
fn tried<T>(
    w: &mut Writer<'_>,
    change: impl FnOnce(&mut Writer<'_>) -> Result<T, StoreError>,
) -> Result<(), StoreError> {
    w.execute_batch("SAVEPOINT tried")?;
    match change(w) {
        Ok(_) => {}
        Err(StoreError::Refused(_)) => w.execute_batch("ROLLBACK TO tried")?,
        Err(error) => return Err(error),
    }
    w.execute_batch("RELEASE tried")?;
    Ok(())
}

fn step(w: &mut Writer<'_>, out: &mut Outside) -> Result<(), StoreError> {
    let (agents_many, tickets_many) = (out.agents.len(), out.tickets.len());
    let agent = out.agents[out.dice.roll(agents_many)].clone();
    let ticket = out.tickets[out.dice.roll(tickets_many)].clone();
    match out.dice.roll(14) {
        0 | 1 => {
            let reasons = [
                Reason::Commented,
                Reason::OnDemand,
                Reason::Mentioned,
                Reason::Assigned,
            ];
            let mut ask = Ask::about(&agent, &ticket, reasons[out.dice.roll(4)]);
            ask.not_before = clock() + 1000 * i64::try_from(out.dice.roll(3)).unwrap();
            wakes::admit(w, ask)?;
        }
        2 => {
            w.actor = Actor::User {
                name: "ann".to_owned(),
            };
            let statuses = [
                Status::Todo,
                Status::Done,
                Status::Backlog,
                Status::InReview,
            ];
            let patch = Patch {
                status: Some(statuses[out.dice.roll(4)]),
                assignee_agent_id: Some(Some(agent)),
                ..Patch::default()
            };
            tried(w, |w| tickets::update(w, &ticket, patch))?;
        }
        3 => {
            let status = [
                AgentStatus::Active,
                AgentStatus::Active,
                AgentStatus::Paused,
            ];
            agents::set_status(w, &agent, status[out.dice.roll(3)])?;
        }
        4 => out.boundary = out.dice.roll(3) > 0,
        5 => {
            let limit = out.dice.roll(2) == 0;
            costs::set_agent_budget(w, &agent, limit.then_some(0))?;
        }
        // An end, perhaps for the second time, perhaps of a run that a crash has ended already.
        6 | 7 if !out.known.is_empty() => {
            let many = out.known.len();
            let run = out.known[out.dice.roll(many)].clone();
            let how = outcome(&mut out.dice);
            runs::begin_end(w, &run, &how)?;
            if out.dice.roll(3) > 0 {
                runs::finish(w, &run)?;
                out.known.retain(|it| *it != run);
            }
        }
        8 if !out.known.is_empty() => {
            let many = out.known.len();
            let run = out.known[out.dice.roll(many)].clone();
            let evidence = Evidence {
                boot_id: run.clone(),
                monitor_pid: 1,
                start_time: 1,
                cgroups: Vec::new(),
            };
            tried(w, |w| runs::started(w, &run, &evidence))?;
            runs::extend(w, &run)?;
        }
        // A crash: the next orchestrator finds what holds something, and proves it gone.
        9 if out.dice.roll(4) == 0 => {
            out.known.clear();
            for run in runs::holding(w)? {
                let lost = Outcome {
                    status: RunStatus::Lost,
                    ..outcome(&mut out.dice)
                };
                runs::begin_end(w, &run.id, &lost)?;
                runs::finish(w, &run.id)?;
            }
        }
        _ => {
            let readiness = Readiness {
                boundary: (!out.boundary).then(|| "not proven".to_owned()),
                gate: None,
            };
            let state = snapshot::state(w, &SLICES, readiness, clock())?;
            for decision in decide(&state, clock()) {
                match decision {
                    Decision::Start { wake } => {
                        assert!(out.boundary, "a run without a proven boundary");
                        let facts = state.wakes.iter().find(|it| it.wake == wake).unwrap();
                        let spent = facts.budgets.iter().any(|it| it.spent >= it.limit);
                        assert!(!spent, "a run without budget");
                        let claimed = runs::claim(w, &wake, &SLICES)?;
                        out.known.push(claimed.run.id);
                    }
                    Decision::Wait { gates, .. } => {
                        assert!(gates.iter().any(|gate| !gate.open), "a no without its gate");
                    }
                    Decision::Drop { wake, gate } => {
                        let wake = wakes::get(w, &wake)?.unwrap();
                        wakes::drop_wake(w, &wake, &gate.fact)?;
                    }
                }
            }
        }
    }
    Ok(())
}

/// What must hold after every step.
fn judge(w: &Writer<'_>) -> Result<(), StoreError> {
    let (mut agents, mut tickets_held, mut slices) =
        (HashSet::new(), HashSet::new(), HashSet::new());
    for run in runs::holding(w)? {
        assert!(agents.insert(run.agent.clone()), "two runs of one agent");
        if let Some(ticket) = &run.ticket {
            assert!(
                tickets_held.insert(ticket.clone()),
                "two runs on one ticket"
            );
        }
        assert!(slices.insert(run.slice), "two runs with the same ids");
    }
    let mut queued = HashSet::new();
    for wake in wakes::all_queued(w)? {
        assert!(
            queued.insert((wake.agent, wake.ticket)),
            "two wakes wait for the same"
        );
    }
    // No run is over while its ticket is left as if it were not: a disposition, a wake, or parked.
    let left: i64 = w.query_row(
        "SELECT count(*) FROM tickets WHERE status = 'in_progress' AND assignee_agent IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.ticket = tickets.id
                           AND runs.status IN ('starting', 'running', 'ending'))
           AND NOT EXISTS (SELECT 1 FROM wakes WHERE wakes.ticket = tickets.id
                           AND wakes.agent = tickets.assignee_agent AND wakes.state = 'queued')",
        [],
        |row| row.get(0),
    )?;
    assert_eq!(left, 0, "a ticket is left in progress by nobody");
    let stray: i64 = w.query_row(
        "SELECT count(*) FROM leases JOIN runs ON runs.id = leases.run
         WHERE runs.status NOT IN ('starting', 'running')",
        [],
        |row| row.get(0),
    )?;
    assert_eq!(stray, 0, "a lease outlives its run");
    Ok(())
}

#[tokio::test]
async fn the_promises_hold_whatever_happens_in_whatever_order() {
    let rounds = std::env::var("PORTCULLIS_SOAK_ROUNDS").ok();
    let steps = rounds.map_or(1_500, |rounds| 50_000 * rounds.parse::<usize>().unwrap());
    let seed = u64::from_le_bytes(uuid::Uuid::new_v4().as_bytes()[..8].try_into().unwrap()) | 1;
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let store = Store::open_with_clock(&dir.path().join("state.db"), clock).unwrap();
    let ann = Actor::User {
        name: "ann".to_owned(),
    };
    let mut out = store
        .write(ann, move |w| {
            let company = agents::create_company(w, "Acme", None)?.id;
            let mut out = Outside {
                dice: Dice(seed),
                agents: Vec::new(),
                tickets: Vec::new(),
                known: Vec::new(),
                boundary: true,
            };
            for number in 0..5 {
                let new = json!({ "name": format!("a{number}"),
                                  "adapter": { "adapter": "process", "command": ["x"] } });
                out.agents
                    .push(agents::create(w, &company, serde_json::from_value(new)?)?.id);
            }
            for number in 0..8 {
                let new = NewTicket {
                    title: format!("t{number}"),
                    assignee_agent_id: Some(out.agents[number % 5].clone()),
                    ..NewTicket::default()
                };
                out.tickets
                    .push(tickets::create(w, &company, new)?.ticket.id);
            }
            Ok(out)
        })
        .await
        .unwrap();
    let mut started = 0;
    for number in 0..steps {
        // Clocks go on, jump ahead, and go back.
        let jump = match out.dice.roll(50) {
            0 => 86_400_000,
            1 => -3_600_000,
            _ => 500,
        };
        CLOCK.fetch_add(jump, Ordering::Relaxed);
        let before = out.known.len();
        out = store
            .write(Actor::System, move |w| {
                step(w, &mut out)?;
                judge(w)?;
                Ok(out)
            })
            .await
            .unwrap_or_else(|error| panic!("step {number}, seed {seed}: {error:?}"));
        started += out.known.len().saturating_sub(before);
    }
    assert!(
        started > steps / 50,
        "only {started} runs in {steps} steps: the model sleeps"
    );
    let broken = store
        .read(orchestrator::store::journal::verify)
        .await
        .unwrap();
    assert!(broken.is_ok(), "seed {seed}: {broken:?}");
}
