//! Tickets: reading them, and the rows behind them. Changes are in the modules beneath.

mod blockers;
mod change;
mod checkout;
mod create;
mod follow;
mod guard;
mod nesting;
mod patch;
mod row;
mod search;

use std::collections::HashMap;

use rusqlite::types::Value as Sql;
use rusqlite::{Connection, OptionalExtension, Row, params};

pub use change::{Update, update};
pub use checkout::{checkout, release};
pub use create::{Created, NewTicket, create};
pub use follow::park;
pub(super) use guard::still_waits;
pub use patch::Patch;

use super::{StoreError, page};
use crate::model::{Refusal, Status, Ticket};

const TICKET: &str = "id, company, number, identifier, title, description, status, priority, \
     assignee_agent, assignee_user, parent, project, goal, billing_code, unblock, checkout_run, \
     created_by_agent, created_by_user, created_by_run, started_at, completed_at, cancelled_at, \
     created_at, updated_at";

/// What a list of tickets may be narrowed to.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Any of these; all when empty.
    pub statuses: Vec<Status>,
    /// Assigned to this agent.
    pub assignee_agent: Option<String>,
    /// Assigned to this person.
    pub assignee_user: Option<String>,
    /// In this project.
    pub project: Option<String>,
    /// For this goal.
    pub goal: Option<String>,
    /// With this label.
    pub label: Option<String>,
    /// Beneath this ticket.
    pub parent: Option<String>,
    /// It is this identifier, or it or its comments have these words.
    pub text: Option<String>,
    /// At most this many; 1 to 500.
    pub limit: u32,
    /// Skip this many.
    pub offset: u32,
}

/// A ticket by UUID or identifier; `within` limits an agent to its own company, whose other
/// tickets do not exist for it.
pub fn get(
    connection: &Connection,
    reference: &str,
    within: Option<&str>,
) -> Result<Ticket, StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {TICKET} FROM tickets WHERE id = ?1
         UNION ALL SELECT {TICKET} FROM tickets WHERE identifier = upper(?1) LIMIT 1"
    ))?;
    match statement.query_row([reference], ticket_row).optional()? {
        Some(ticket) if within.is_none_or(|own| own == ticket.company) => Ok(ticket),
        Some(_) | None => Err(Refusal::missing("issue").into()),
    }
}

/// The tickets of a company, last changed first.
pub fn list(
    connection: &Connection,
    company: &str,
    filter: &Filter,
) -> Result<Vec<Ticket>, StoreError> {
    let mut sql = format!("SELECT {TICKET} FROM tickets WHERE company = ?");
    let mut values: Vec<Sql> = vec![company.to_owned().into()];
    if !filter.statuses.is_empty() {
        let marks = vec!["?"; filter.statuses.len()].join(", ");
        sql.push_str(&format!(" AND status IN ({marks})"));
        values.extend(filter.statuses.iter().map(|s| s.as_str().to_owned().into()));
    }
    let equal = [
        ("assignee_agent", &filter.assignee_agent),
        ("assignee_user", &filter.assignee_user),
        ("project", &filter.project),
        ("goal", &filter.goal),
        ("parent", &filter.parent),
    ];
    for (column, value) in equal {
        if let Some(value) = value {
            sql.push_str(&format!(" AND {column} = ?"));
            values.push(value.clone().into());
        }
    }
    if let Some(label) = &filter.label {
        sql.push_str(" AND id IN (SELECT ticket FROM ticket_labels WHERE label = ?)");
        values.push(label.clone().into());
    }
    // What is named by its identifier comes first.
    let mut order = "";
    if let Some(text) = &filter.text {
        let mut found = search::condition(text);
        sql.push_str(found.sql);
        values.append(&mut found.values);
        order = "identifier = ? DESC, ";
        values.push(text.trim().to_ascii_uppercase().into());
    }
    sql.push_str(&format!(
        " ORDER BY {order}updated_at DESC, id DESC LIMIT ? OFFSET ?"
    ));
    values.push(i64::from(filter.limit.clamp(1, 500)).into());
    values.push(i64::from(filter.offset).into());
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map(rusqlite::params_from_iter(values), ticket_row)?;
    page(rows, |ticket| {
        ticket.description.as_ref().map_or(0, String::len)
    })
}

/// How many tickets of a company have each status.
pub fn counts(connection: &Connection, company: &str) -> Result<HashMap<Status, i64>, StoreError> {
    let mut statement = connection
        .prepare_cached("SELECT status, count(*) FROM tickets WHERE company = ? GROUP BY status")?;
    let rows = statement.query_map([company], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// What an agent may work on, most urgent first.
pub fn inbox(connection: &Connection, agent: &str) -> Result<Vec<Ticket>, StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {TICKET} FROM tickets
         WHERE assignee_agent = ? AND status IN ('todo', 'in_progress', 'in_review', 'blocked')
         ORDER BY {URGENCY} LIMIT 200"
    ))?;
    let rows = statement.query_map([agent], ticket_row)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The most urgent ticket an agent could go on with.
pub fn most_urgent(connection: &Connection, agent: &str) -> Result<Option<String>, StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT id FROM tickets WHERE assignee_agent = ? AND status IN ('todo', 'in_progress')
         ORDER BY {URGENCY} LIMIT 1"
    ))?;
    Ok(statement.query_row([agent], |row| row.get(0)).optional()?)
}

const URGENCY: &str = "CASE status WHEN 'in_progress' THEN 0 WHEN 'in_review' THEN 1
        WHEN 'todo' THEN 2 ELSE 3 END,
    CASE priority WHEN 'critical' THEN 0 WHEN 'high' THEN 1 WHEN 'medium' THEN 2 ELSE 3 END,
    created_at, id";

/// The tickets that block this one.
pub fn blockers(connection: &Connection, ticket: &str) -> Result<Vec<Ticket>, StoreError> {
    related(
        connection,
        "SELECT blocker FROM blockers WHERE ticket = ?",
        ticket,
    )
}

/// The tickets that this one blocks.
pub fn blocked_by_it(connection: &Connection, ticket: &str) -> Result<Vec<Ticket>, StoreError> {
    related(
        connection,
        "SELECT ticket FROM blockers WHERE blocker = ?",
        ticket,
    )
}

/// The blockers that are not done. A cancelled blocker stays one until somebody removes it.
pub fn unresolved_blockers(
    connection: &Connection,
    ticket: &str,
) -> Result<Vec<Ticket>, StoreError> {
    let mut all = blockers(connection, ticket)?;
    all.retain(|blocker| blocker.status != Status::Done);
    Ok(all)
}

/// Parent, grandparent and so on, nearest first.
pub fn ancestors(connection: &Connection, ticket: &Ticket) -> Result<Vec<Ticket>, StoreError> {
    let mut found: Vec<Ticket> = Vec::new();
    let mut next = ticket.parent.clone();
    while let Some(id) = next {
        if found.len() == 32 || found.iter().any(|t| t.id == id) {
            break;
        }
        let parent = get(connection, &id, None)?;
        next = parent.parent.clone();
        found.push(parent);
    }
    Ok(found)
}

/// The live run that works on the ticket: the one started for it, or the one that checked it out.
pub fn live_run(connection: &Connection, ticket: &str) -> Result<Option<String>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT id FROM runs WHERE status IN ('starting', 'running', 'ending')
           AND (ticket = ?1 OR id = (SELECT checkout_run FROM tickets WHERE id = ?1))
         ORDER BY ticket IS ?1 DESC LIMIT 1",
    )?;
    Ok(statement.query_row([ticket], |row| row.get(0)).optional()?)
}

fn related(connection: &Connection, ids: &str, ticket: &str) -> Result<Vec<Ticket>, StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {TICKET} FROM tickets WHERE id IN ({ids}) ORDER BY created_at, id"
    ))?;
    let rows = statement.query_map(params![ticket], ticket_row)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn ticket_row(row: &Row<'_>) -> rusqlite::Result<Ticket> {
    Ok(Ticket {
        id: row.get(0)?,
        company: row.get(1)?,
        number: row.get(2)?,
        identifier: row.get(3)?,
        title: row.get(4)?,
        description: row.get(5)?,
        status: row.get(6)?,
        priority: row.get(7)?,
        assignee_agent: row.get(8)?,
        assignee_user: row.get(9)?,
        parent: row.get(10)?,
        project: row.get(11)?,
        goal: row.get(12)?,
        billing_code: row.get(13)?,
        unblock: row.get(14)?,
        checkout_run: row.get(15)?,
        created_by_agent: row.get(16)?,
        created_by_user: row.get(17)?,
        created_by_run: row.get(18)?,
        started_at: row.get(19)?,
        completed_at: row.get(20)?,
        cancelled_at: row.get(21)?,
        created_at: row.get(22)?,
        updated_at: row.get(23)?,
    })
}
