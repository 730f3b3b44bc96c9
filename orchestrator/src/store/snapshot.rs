//! What the scheduler looks at, gathered in one consistent read.

use std::collections::{BTreeMap, HashMap};

use rusqlite::Connection;

use super::{StoreError, agents, costs, profiles, runs, tickets, wakes};
use crate::model::quiet::Quiet;
use crate::model::time::Millis;
use crate::model::{Profile, Wake};
use crate::scheduler::{Concurrency, Readiness, State, TicketFacts, WakeFacts};

/// Every queued wake with its facts. `slices` are the slices of host ids that runs may have.
pub fn state(
    connection: &Connection,
    slices: &[i64],
    readiness: Readiness,
    now: Millis,
) -> Result<State, StoreError> {
    let mut state = around(connection, &wakes::all_queued(connection)?, now)?;
    state.slices_free = runs::free_slices(connection, slices)?.len();
    state.readiness = readiness;
    Ok(state)
}

/// The state as far as the database knows it, with these wakes alone and one free slice.
pub(super) fn around(
    connection: &Connection,
    wakes: &[Wake],
    now: Millis,
) -> Result<State, StoreError> {
    let mut profiles: BTreeMap<String, Concurrency> = BTreeMap::new();
    let mut live = connection.prepare_cached(
        "SELECT agents.profile, count(*) FROM runs JOIN agents ON agents.id = runs.agent
         WHERE runs.status IN ('starting', 'running', 'ending') GROUP BY agents.profile",
    )?;
    let rows = live.query_map([], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?))
    })?;
    for row in rows {
        let (profile, live) = row?;
        profiles.entry(profile).or_default().live = live;
        profiles.entry(Profile::EVERY.to_owned()).or_default().live += live;
    }
    let known = profiles::all(connection)?;
    for profile in &known {
        profiles.entry(profile.name.clone()).or_default().most = profile.concurrent;
    }
    let quiet: HashMap<&str, Result<Quiet, String>> = known
        .iter()
        .filter_map(|it| Some((it.name.as_str(), Quiet::parse(it.quiet.as_deref()?))))
        .collect();
    let facts = wakes.iter().map(|wake| {
        let mut facts = facts(connection, wake, now)?;
        facts.quiet = quiet.get(facts.profile.as_str()).cloned();
        Ok(facts)
    });
    Ok(State {
        wakes: facts.collect::<Result<_, StoreError>>()?,
        slices_free: 1,
        readiness: Readiness::default(),
        profiles,
    })
}

/// The facts of one wake; its profile's hours are added by who knows them.
fn facts(connection: &Connection, wake: &Wake, now: Millis) -> Result<WakeFacts, StoreError> {
    let agent = agents::get(connection, &wake.agent, None)?;
    let agent_run = runs::live_of(connection, &wake.agent)?;
    let ticket = match &wake.ticket {
        Some(id) => {
            let ticket = tickets::get(connection, id, None)?;
            let blockers = tickets::unresolved_blockers(connection, id)?;
            Some(TicketFacts {
                run: tickets::live_run(connection, id)?,
                id: ticket.id,
                status: ticket.status,
                priority: ticket.priority,
                assignee: ticket.assignee_agent,
                blockers: blockers.into_iter().map(|b| b.identifier).collect(),
            })
        }
        None => None,
    };
    Ok(WakeFacts {
        wake: wake.id.clone(),
        seq: wake.seq,
        reason: wake.reason,
        not_before: wake.not_before,
        agent: agent.id,
        agent_status: agent.status,
        agent_run,
        budgets: costs::budgets(connection, &wake.company, &wake.agent, now)?,
        profile: agent.profile,
        quiet: None,
        ticket,
    })
}
