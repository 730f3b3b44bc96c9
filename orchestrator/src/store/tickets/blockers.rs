//! Which tickets wait for which.

use rusqlite::Connection;

use super::{blockers, get};
use crate::model::Refusal;
use crate::store::{StoreError, Writer};

/// The ids of the blockers before and after a replacement.
type Replaced = (Vec<String>, Vec<String>);

/// Replaces the blockers of a ticket. `None` when nothing changed.
pub(super) fn replace(
    w: &mut Writer<'_>,
    company: &str,
    ticket: &str,
    references: &[String],
) -> Result<Option<Replaced>, StoreError> {
    if references.len() > 100 {
        return Err(Refusal::invalid("blockedByIssueIds holds at most 100 tickets").into());
    }
    let from: Vec<String> = blockers(w, ticket)?.into_iter().map(|b| b.id).collect();
    let mut to: Vec<String> = Vec::new();
    for reference in references {
        let blocker = get(w, reference, Some(company))?;
        if blocker.id == ticket || closes_circle(w, ticket, &blocker.id)? {
            return Err(Refusal::unprocessable(
                "blocker_cycle",
                format!("{} waits for this ticket itself", blocker.identifier),
            )
            .into());
        }
        if !to.contains(&blocker.id) {
            to.push(blocker.id);
        }
    }
    if from.len() == to.len() && from.iter().all(|id| to.contains(id)) {
        return Ok(None);
    }
    w.execute("DELETE FROM blockers WHERE ticket = ?", [ticket])?;
    for blocker in &to {
        w.execute(
            "INSERT INTO blockers (ticket, blocker) VALUES (?, ?)",
            [ticket, blocker],
        )?;
    }
    Ok(Some((from, to)))
}

/// Whether `ticket` waiting for `blocker` closes a circle.
fn closes_circle(connection: &Connection, ticket: &str, blocker: &str) -> Result<bool, StoreError> {
    Ok(connection
        .prepare_cached(
            "WITH RECURSIVE waits(id) AS (
                 SELECT ?1 UNION
                 SELECT blockers.blocker FROM blockers JOIN waits ON blockers.ticket = waits.id)
             SELECT count(*) > 0 FROM waits WHERE id = ?2",
        )?
        .query_row([blocker, ticket], |row| row.get(0))?)
}
