//! Routines and their slots.

mod due;
mod hook;

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::Deserialize;
use serde_json::json;

pub use due::{next, start, tick};
pub use hook::{deliver, key, open, shut};

use super::journal::About;
use super::{StoreError, Writer, agents, new_id, projects};
use crate::model::routine::{CatchUp, Overlap, Routine, RoutineStatus, Schedule, Slot};
use crate::model::{Priority, Refusal, given, text};

const ROUTINE: &str = "id, company, name, description, assignee, project, priority, status, cron, \
                       zone, catch_up, overlap, next_due, created_at, updated_at";

const HOOK: &str = "(SELECT kind FROM hooks WHERE routine = routines.id)";
const SLOT: &str = "id, due_at, trigger, state, reason, ticket";

/// What a person gives to make or change one; absent fields stay, `null` clears.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RoutinePatch {
    /// One line.
    pub name: Option<String>,
    /// Markdown.
    #[serde(deserialize_with = "given")]
    pub description: Option<Option<String>>,
    /// An agent's id or name.
    pub assignee_agent_id: Option<String>,
    /// A project of the company.
    #[serde(deserialize_with = "given")]
    pub project_id: Option<Option<String>>,
    /// `medium` when absent.
    pub priority: Option<Priority>,
    /// `active` when absent.
    pub status: Option<RoutineStatus>,
    /// Five fields.
    #[serde(deserialize_with = "given")]
    pub cron: Option<Option<String>>,
    /// IANA name; `UTC` when absent.
    pub timezone: Option<String>,
    /// `skip_missed` when absent.
    pub catch_up: Option<CatchUp>,
    /// `skip_if_active` when absent.
    pub overlap: Option<Overlap>,
}

/// Makes a routine.
pub fn create(w: &mut Writer<'_>, company: &str, new: RoutinePatch) -> Result<Routine, StoreError> {
    let (Some(_), Some(_)) = (&new.name, &new.assignee_agent_id) else {
        return Err(Refusal::invalid("name and assigneeAgentId are needed").into());
    };
    let blank = Routine {
        id: new_id(),
        company: company.to_owned(),
        name: String::new(),
        description: None,
        assignee: String::new(),
        project: None,
        priority: Priority::Medium,
        status: RoutineStatus::Active,
        cron: None,
        zone: "UTC".to_owned(),
        catch_up: CatchUp::Skip,
        overlap: Overlap::Skip,
        hook: None,
        next_due: None,
        created_at: w.now,
        updated_at: w.now,
    };
    let it = edited(w, blank, new)?;
    keep(w, &it, "routine.created")
}

/// Changes a routine. What was due before the change stays as it was.
pub fn change(w: &mut Writer<'_>, id: &str, patch: RoutinePatch) -> Result<Routine, StoreError> {
    let it = edited(w, get(w, id, None)?, patch)?;
    keep(w, &it, "routine.changed")
}

/// The routine with this id; `within` limits an agent to its own company.
pub fn get(connection: &Connection, id: &str, within: Option<&str>) -> Result<Routine, StoreError> {
    connection
        .prepare_cached(&format!(
            "SELECT {ROUTINE}, {HOOK} FROM routines WHERE id = ?1 AND (?2 IS NULL OR company = ?2)"
        ))?
        .query_row(params![id, within], routine_row)
        .optional()?
        .ok_or_else(|| Refusal::missing("routine").into())
}

/// The routines of a company, by name.
pub fn list(connection: &Connection, company: &str) -> Result<Vec<Routine>, StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {ROUTINE}, {HOOK} FROM routines WHERE company = ? ORDER BY name LIMIT 500"
    ))?;
    let rows = statement.query_map([company], routine_row)?;
    super::page(rows, |it| it.description.as_ref().map_or(0, String::len))
}

/// The newest slots of a routine.
pub fn slots(connection: &Connection, routine: &str, limit: u32) -> Result<Vec<Slot>, StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {SLOT} FROM slots WHERE routine = ? ORDER BY due_at DESC, id DESC LIMIT ?"
    ))?;
    let rows = statement.query_map(params![routine, limit], slot_row)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn slot(connection: &Connection, id: &str) -> Result<Slot, StoreError> {
    connection
        .prepare_cached(&format!("SELECT {SLOT} FROM slots WHERE id = ?"))?
        .query_row([id], slot_row)
        .optional()?
        .ok_or_else(|| Refusal::missing("slot").into())
}

fn slot_row(row: &Row<'_>) -> rusqlite::Result<Slot> {
    Ok(Slot {
        id: row.get(0)?,
        due_at: row.get(1)?,
        trigger: row.get(2)?,
        state: row.get(3)?,
        reason: row.get(4)?,
        ticket: row.get(5)?,
    })
}

fn edited(w: &Writer<'_>, mut it: Routine, patch: RoutinePatch) -> Result<Routine, StoreError> {
    if let Some(name) = patch.name {
        it.name = text::title(&name)?;
    }
    if let Some(body) = patch.description {
        it.description = body
            .map(|text| text::body("description", &text))
            .transpose()?;
    }
    if let Some(agent) = patch.assignee_agent_id {
        it.assignee = agents::get(w, &agent, Some(&it.company))?.id;
    }
    if let Some(project) = patch.project_id {
        it.project = match project {
            Some(id) => Some(projects::get(w, &id, Some(&it.company))?.id),
            None => None,
        };
    }
    it.priority = patch.priority.unwrap_or(it.priority);
    it.status = patch.status.unwrap_or(it.status);
    it.catch_up = patch.catch_up.unwrap_or(it.catch_up);
    it.overlap = patch.overlap.unwrap_or(it.overlap);
    let when = patch.cron.is_some() || patch.timezone.is_some() || patch.status.is_some();
    if let Some(cron) = patch.cron {
        it.cron = cron
            .map(|text| text::line("cron", &text, text::NAME))
            .transpose()?;
    }
    if let Some(zone) = patch.timezone {
        it.zone = text::line("timezone", &zone, text::NAME)?;
    }
    if when {
        it.next_due = match &it.cron {
            Some(cron) => {
                let next = Schedule::parse(cron, &it.zone)?.after(w.now);
                if next.is_none() {
                    return Err(Refusal::invalid("cron names a date that never comes").into());
                }
                next.filter(|_| it.status != RoutineStatus::Archived)
            }
            None => None,
        };
    }
    it.updated_at = w.now;
    Ok(it)
}

fn keep(w: &mut Writer<'_>, it: &Routine, kind: &str) -> Result<Routine, StoreError> {
    let taken: bool = w.query_row(
        "SELECT count(*) > 0 FROM routines WHERE company = ? AND name = ? AND id <> ?",
        [&it.company, &it.name, &it.id],
        |row| row.get(0),
    )?;
    if taken {
        let error = format!("there is a routine `{}` already", it.name);
        return Err(Refusal::conflict("routine_exists", error).into());
    }
    w.execute(
        &format!(
            "INSERT INTO routines ({ROUTINE}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
             ON CONFLICT (id) DO UPDATE SET name = excluded.name, description = excluded.description,
                 assignee = excluded.assignee, project = excluded.project,
                 priority = excluded.priority, status = excluded.status, cron = excluded.cron,
                 zone = excluded.zone, catch_up = excluded.catch_up, overlap = excluded.overlap,
                 next_due = excluded.next_due, updated_at = excluded.updated_at"
        ),
        params![
            it.id,
            it.company,
            it.name,
            it.description,
            it.assignee,
            it.project,
            it.priority,
            it.status,
            it.cron,
            it.zone,
            it.catch_up,
            it.overlap,
            it.next_due,
            it.created_at,
            it.updated_at
        ],
    )?;
    let facts = json!({ "routine": it.id, "name": it.name, "status": it.status, "cron": it.cron,
                        "timezone": it.zone, "agent": it.assignee });
    w.note(kind, About::company(&it.company), facts)?;
    get(w, &it.id, None)
}

fn routine_row(row: &Row<'_>) -> rusqlite::Result<Routine> {
    Ok(Routine {
        id: row.get(0)?,
        company: row.get(1)?,
        name: row.get(2)?,
        description: row.get(3)?,
        assignee: row.get(4)?,
        project: row.get(5)?,
        priority: row.get(6)?,
        status: row.get(7)?,
        cron: row.get(8)?,
        zone: row.get(9)?,
        catch_up: row.get(10)?,
        overlap: row.get(11)?,
        hook: row.get(15)?,
        next_due: row.get(12)?,
        created_at: row.get(13)?,
        updated_at: row.get(14)?,
    })
}
