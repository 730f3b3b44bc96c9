//! Tickets beneath tickets: not in circles, not too deep.

use rusqlite::Connection;

use super::{ancestors, get};
use crate::model::{Refusal, Ticket};
use crate::store::{StoreError, Writer};

/// How deep tickets may nest.
const DEPTH: usize = 8;

/// The parent that a ticket asks for, with whatever is beneath the ticket.
pub(super) fn new_parent(
    w: &Writer<'_>,
    ticket: &Ticket,
    reference: &str,
) -> Result<String, StoreError> {
    let parent = get(w, reference, Some(&ticket.company))?;
    let circle = parent.id == ticket.id
        || ancestors(w, &parent)?
            .iter()
            .any(|ancestor| ancestor.id == ticket.id);
    if circle {
        let error = format!("{} is part of this ticket itself", parent.identifier);
        return Err(Refusal::unprocessable("parent_cycle", error).into());
    }
    within_depth(w, &parent, height(w, &ticket.id)?)?;
    Ok(parent.id)
}

/// Whether a ticket with `height` levels beneath it fits under this parent.
pub(super) fn within_depth(
    connection: &Connection,
    parent: &Ticket,
    height: usize,
) -> Result<(), StoreError> {
    if ancestors(connection, parent)?.len() + 1 + height < DEPTH {
        return Ok(());
    }
    let error = format!("tickets nest at most {DEPTH} deep");
    Err(Refusal::unprocessable("nesting_too_deep", error).into())
}

/// How many levels of tickets are beneath a ticket.
fn height(connection: &Connection, ticket: &str) -> Result<usize, StoreError> {
    let levels: i64 = connection
        .prepare_cached(
            "WITH RECURSIVE beneath(id, level) AS (
                 SELECT ?1, 0 UNION
                 SELECT tickets.id, level + 1 FROM tickets JOIN beneath ON parent = beneath.id
                 WHERE level < ?2)
             SELECT max(level) FROM beneath",
        )?
        .query_row(rusqlite::params![ticket, DEPTH as i64], |row| row.get(0))?;
    Ok(usize::try_from(levels).unwrap_or(DEPTH))
}
