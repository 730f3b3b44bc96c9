//! Labels of a company, and which tickets have them.

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::Deserialize;
use serde_json::json;

use super::journal::About;
use super::{StoreError, Writer, new_id};
use crate::model::{Label, Refusal, text};

/// How many labels a company may have, and a ticket.
const PER_COMPANY: i64 = 1000;
const PER_TICKET: usize = 20;

const LABEL: &str = "labels.id, labels.company, labels.name, labels.color, labels.created_at";

/// The names of a ticket's labels before and after a replacement.
type Replaced = (Vec<String>, Vec<String>);

/// What a person gives to create a label.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct NewLabel {
    /// Unique in the company.
    pub name: String,
    /// `#rrggbb`.
    pub color: Option<String>,
}

/// Creates a label.
pub fn create(w: &mut Writer<'_>, company: &str, new: &NewLabel) -> Result<Label, StoreError> {
    let name = text::line("name", &new.name, text::NAME)?;
    if let Some(color) = &new.color {
        let digits = color.strip_prefix('#').unwrap_or_default();
        if digits.len() != 6 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(Refusal::invalid("color must be `#` and six hex digits").into());
        }
    }
    let (there, taken): (i64, bool) = w.query_row(
        "SELECT count(*), ifnull(max(name = ?2), 0) FROM labels WHERE company = ?1",
        params![company, name],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    if taken {
        let error = format!("there is a label `{name}` already");
        return Err(Refusal::conflict("label_exists", error).into());
    }
    if there >= PER_COMPANY {
        let error = format!("a company has at most {PER_COMPANY} labels");
        return Err(Refusal::unprocessable("label_limit", error).into());
    }
    let label = Label {
        id: new_id(),
        company: company.to_owned(),
        name,
        color: new.color.clone(),
        created_at: w.now,
    };
    w.execute(
        "INSERT INTO labels (id, company, name, color, created_at) VALUES (?, ?, ?, ?, ?)",
        params![
            label.id,
            label.company,
            label.name,
            label.color,
            label.created_at
        ],
    )?;
    let facts = json!({ "label": label.id, "name": label.name });
    w.note("label.created", About::company(company), facts)?;
    Ok(label)
}

/// Removes a label, from the tickets that have it, too.
pub fn remove(w: &mut Writer<'_>, id: &str) -> Result<Label, StoreError> {
    let label = get(w, id, w.actor.company())?;
    let tickets = w.execute("DELETE FROM ticket_labels WHERE label = ?", [&label.id])?;
    w.execute("DELETE FROM labels WHERE id = ?", [&label.id])?;
    let facts = json!({ "label": label.id, "name": label.name, "tickets": tickets });
    w.note("label.removed", About::company(&label.company), facts)?;
    Ok(label)
}

/// A label by id or name.
pub fn get(
    connection: &Connection,
    reference: &str,
    within: Option<&str>,
) -> Result<Label, StoreError> {
    connection
        .prepare_cached(&format!(
            "SELECT {LABEL} FROM labels WHERE (?2 IS NULL OR company = ?2)
               AND (id = ?1 OR (name = ?1 AND ?2 IS NOT NULL)) ORDER BY id = ?1 DESC LIMIT 1"
        ))?
        .query_row(params![reference, within], label_row)
        .optional()?
        .ok_or_else(|| Refusal::missing("label").into())
}

/// The labels of a company, by name.
pub fn list(connection: &Connection, company: &str) -> Result<Vec<Label>, StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {LABEL} FROM labels WHERE company = ? ORDER BY name"
    ))?;
    let rows = statement.query_map([company], label_row)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The labels of a ticket, by name.
pub fn of_ticket(connection: &Connection, ticket: &str) -> Result<Vec<Label>, StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {LABEL} FROM ticket_labels JOIN labels ON labels.id = label
         WHERE ticket = ? ORDER BY name"
    ))?;
    let rows = statement.query_map([ticket], label_row)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Replaces the labels of a ticket. `None` when nothing changed.
pub(super) fn replace(
    w: &Writer<'_>,
    company: &str,
    ticket: &str,
    references: &[String],
) -> Result<Option<Replaced>, StoreError> {
    if references.len() > PER_TICKET {
        return Err(Refusal::invalid(format!("a ticket has at most {PER_TICKET} labels")).into());
    }
    let before = of_ticket(w, ticket)?;
    let mut after: Vec<Label> = Vec::new();
    for reference in references {
        let label = get(w, reference, Some(company))?;
        if !after.contains(&label) {
            after.push(label);
        }
    }
    if before.len() == after.len() && before.iter().all(|label| after.contains(label)) {
        return Ok(None);
    }
    w.execute("DELETE FROM ticket_labels WHERE ticket = ?", [ticket])?;
    for label in &after {
        w.execute(
            "INSERT INTO ticket_labels (ticket, label) VALUES (?, ?)",
            [ticket, &label.id],
        )?;
    }
    let names = |list: Vec<Label>| list.into_iter().map(|label| label.name).collect();
    Ok(Some((names(before), names(after))))
}

fn label_row(row: &Row<'_>) -> rusqlite::Result<Label> {
    Ok(Label {
        id: row.get(0)?,
        company: row.get(1)?,
        name: row.get(2)?,
        color: row.get(3)?,
        created_at: row.get(4)?,
    })
}
