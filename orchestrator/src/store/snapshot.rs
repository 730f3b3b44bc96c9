//! What the scheduler looks at, gathered in one consistent read.

use rusqlite::Connection;

use super::{StoreError, agents, runs, tickets, wakes};
use crate::model::Wake;
use crate::scheduler::{State, TicketFacts, WakeFacts};

/// Every queued wake with its facts. `slices` are the slices of host ids that runs may have.
pub fn state(
    connection: &Connection,
    slices: &[i64],
    hindrance: Option<String>,
) -> Result<State, StoreError> {
    let free = runs::free_slices(connection, slices)?.len();
    let queued = wakes::all_queued(connection)?;
    let facts = queued
        .iter()
        .map(|wake| facts(connection, wake))
        .collect::<Result<_, _>>()?;
    Ok(State {
        wakes: facts,
        slices_free: free,
        hindrance,
    })
}

/// The facts of one wake.
pub fn facts(connection: &Connection, wake: &Wake) -> Result<WakeFacts, StoreError> {
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
        ticket,
    })
}
