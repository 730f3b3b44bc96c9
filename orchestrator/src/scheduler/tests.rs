//! `decide` against its promises, for any state.

use proptest::prelude::*;

use super::*;

fn wake(seq: i64, agent: &str, ticket: Option<&str>) -> WakeFacts {
    WakeFacts {
        wake: format!("w{seq}"),
        seq,
        reason: Reason::Assigned,
        not_before: 0,
        agent: agent.to_owned(),
        agent_status: AgentStatus::Active,
        agent_run: None,
        profile: "default".to_owned(),
        quiet: None,
        budgets: Vec::new(),
        ticket: ticket.map(|id| TicketFacts {
            id: id.to_owned(),
            status: Status::Todo,
            priority: Priority::Medium,
            assignee: Some(agent.to_owned()),
            blockers: Vec::new(),
            run: None,
        }),
    }
}

fn state(wakes: Vec<WakeFacts>) -> State {
    State {
        wakes,
        slices_free: 64,
        ..State::default()
    }
}

fn started(decisions: &[Decision]) -> Vec<&str> {
    decisions
        .iter()
        .filter_map(|decision| match decision {
            Decision::Start { wake } => Some(wake.as_str()),
            Decision::Wait { .. } | Decision::Drop { .. } => None,
        })
        .collect()
}

#[test]
fn an_assigned_ticket_starts_and_each_shut_gate_holds_it_with_its_fact() {
    assert_eq!(
        started(&decide(&state(vec![wake(1, "a", Some("t"))]), 0)),
        ["w1"]
    );
    type Spoil = fn(&mut WakeFacts);
    let cases: [(&str, Spoil); 7] = [
        ("quiet_hours", |w| {
            w.quiet = Some(Quiet::parse("00:00-01:00"));
        }),
        ("budget", |w| {
            let whose = "the agent";
            w.budgets = vec![Budget {
                whose,
                spent: 5,
                limit: 5,
            }];
        }),
        ("agent_active", |w| w.agent_status = AgentStatus::Paused),
        ("agent_free", |w| w.agent_run = Some("r".into())),
        ("not_before", |w| w.not_before = 10),
        ("ticket_free", |w| {
            w.ticket.as_mut().unwrap().run = Some("r".into())
        }),
        ("blockers_done", |w| {
            w.ticket.as_mut().unwrap().blockers = vec!["ABC-1".into()]
        }),
    ];
    for (name, spoil) in cases {
        let mut spoiled = wake(1, "a", Some("t"));
        spoil(&mut spoiled);
        match decide(&state(vec![spoiled]), 0).remove(0) {
            Decision::Wait { gates, .. } => {
                let shut: Vec<&str> = gates.iter().filter(|g| !g.open).map(|g| g.gate).collect();
                assert_eq!(shut, [name]);
            }
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn a_reassigned_or_finished_ticket_drops_its_wakes_but_a_mention_still_answers() {
    let mut reassigned = wake(1, "a", Some("t"));
    reassigned.ticket.as_mut().unwrap().assignee = Some("b".into());
    assert!(matches!(
        decide(&state(vec![reassigned.clone()]), 0)[0],
        Decision::Drop { .. }
    ));
    reassigned.reason = Reason::Mentioned;
    assert_eq!(started(&decide(&state(vec![reassigned]), 0)), ["w1"]);
    let mut done = wake(1, "a", Some("t"));
    done.ticket.as_mut().unwrap().status = Status::Done;
    assert!(matches!(
        decide(&state(vec![done]), 0)[0],
        Decision::Drop { .. }
    ));
}

#[test]
fn priority_then_age_decides_who_goes_first() {
    let mut urgent = wake(2, "a", Some("t2"));
    urgent.ticket.as_mut().unwrap().priority = Priority::Critical;
    let all = state(vec![
        wake(1, "a", Some("t1")),
        urgent,
        wake(3, "a", Some("t3")),
    ]);
    assert_eq!(started(&decide(&all, 0)), ["w2"]);
}

#[test]
fn nothing_starts_while_the_gate_is_away() {
    let away = State {
        readiness: Readiness {
            boundary: Some("stale".into()),
            gate: None,
        },
        ..state(vec![wake(1, "a", Some("t"))])
    };
    assert!(started(&decide(&away, 0)).is_empty());
}

fn any_wake() -> impl Strategy<Value = WakeFacts> {
    let ticket = proptest::option::of((
        0..6_u8,
        0..Status::ALL.len(),
        0..Priority::ALL.len(),
        proptest::option::of(0..4_u8),
        any::<bool>(),
        any::<bool>(),
    ));
    (
        0..50_i64,
        0..4_u8,
        0..3_usize,
        0..Reason::ALL.len(),
        any::<bool>(),
        0..20_i64,
        ticket,
    )
        .prop_map(
            |(seq, agent, status, reason, busy, not_before, ticket)| WakeFacts {
                wake: format!("w{seq}"),
                seq,
                reason: Reason::ALL[reason],
                not_before,
                agent: format!("a{agent}"),
                agent_status: AgentStatus::ALL[status],
                agent_run: busy.then(|| "r".to_owned()),
                profile: format!("p{}", agent % 2),
                quiet: None,
                budgets: Vec::new(),
                ticket: ticket.map(
                    |(id, status, priority, assignee, blocked, held)| TicketFacts {
                        id: format!("t{id}"),
                        status: Status::ALL[status],
                        priority: Priority::ALL[priority],
                        assignee: assignee.map(|a| format!("a{a}")),
                        blockers: if blocked {
                            vec!["ABC-9".into()]
                        } else {
                            Vec::new()
                        },
                        run: held.then(|| "r".to_owned()),
                    },
                ),
            },
        )
}

proptest! {
    #[test]
    fn one_decision_per_wake_and_never_two_starts_for_one_agent_or_ticket(
        wakes in proptest::collection::vec(any_wake(), 0..24),
        slices_free in 0..4_usize,
        away in any::<bool>(),
        now in 0..20_i64,
    ) {
        let mut wakes = wakes;
        for (i, wake) in wakes.iter_mut().enumerate() {
            wake.seq = i64::try_from(i).unwrap();
            wake.wake = format!("w{i}");
        }
        let readiness = Readiness { boundary: None, gate: away.then(|| "away".to_owned()) };
        let bound = Concurrency { live: 1, most: Some(2) };
        let profiles = BTreeMap::from([("p0".to_owned(), bound)]);
        let all = State { wakes, slices_free, readiness, profiles };
        let decisions = decide(&all, now);
        prop_assert_eq!(decisions.len(), all.wakes.len());
        prop_assert_eq!(&decisions, &decide(&all, now));
        let starts = started(&decisions);
        prop_assert!(starts.len() <= slices_free);
        prop_assert!(!away || starts.is_empty());
        let mut agents = HashSet::new();
        let mut tickets = HashSet::new();
        let of_p0 = |id: &&&str| all.wakes.iter().any(|w| w.wake == **id && w.profile == "p0");
        prop_assert!(starts.iter().filter(of_p0).count() <= 1);
        for id in starts {
            let wake = all.wakes.iter().find(|w| w.wake == id).unwrap();
            prop_assert!(wake.agent_status == AgentStatus::Active);
            prop_assert!(wake.agent_run.is_none() && wake.not_before <= now);
            prop_assert!(agents.insert(wake.agent.clone()));
            if let Some(ticket) = &wake.ticket {
                prop_assert!(ticket.run.is_none());
                prop_assert!(tickets.insert(ticket.id.clone()));
            }
        }
        for decision in &decisions {
            if let Decision::Wait { gates, .. } = decision {
                prop_assert!(gates.iter().any(|gate| !gate.open && !gate.fact.is_empty()));
            }
        }
    }
}
