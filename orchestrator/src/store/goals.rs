//! Goals of a company.

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::Deserialize;
use serde_json::json;

use super::journal::About;
use super::{StoreError, Writer, agents, new_id};
use crate::model::project::{GoalLevel, GoalStatus};
use crate::model::{Goal, Refusal, given, text};

/// How many goals a company may have.
const PER_COMPANY: i64 = 1000;

const GOAL: &str =
    "id, company, title, description, level, status, parent, owner, created_at, updated_at";

/// What a person gives to create or change a goal; absent fields stay as they are, `null` clears.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct GoalPatch {
    /// One line.
    pub title: Option<String>,
    /// Markdown.
    #[serde(deserialize_with = "given")]
    pub description: Option<Option<String>>,
    /// Whose.
    pub level: Option<GoalLevel>,
    /// Where it stands.
    pub status: Option<GoalStatus>,
    /// The goal it is part of.
    #[serde(deserialize_with = "given")]
    pub parent_id: Option<Option<String>>,
    /// An agent's id or name.
    #[serde(deserialize_with = "given")]
    pub owner_agent_id: Option<Option<String>>,
}

/// Creates a goal.
pub fn create(w: &mut Writer<'_>, company: &str, new: &GoalPatch) -> Result<Goal, StoreError> {
    let there: i64 = w.query_row(
        "SELECT count(*) FROM goals WHERE company = ?",
        [company],
        |row| row.get(0),
    )?;
    if there >= PER_COMPANY {
        let error = format!("a company has at most {PER_COMPANY} goals");
        return Err(Refusal::unprocessable("goal_limit", error).into());
    }
    let blank = Goal {
        id: new_id(),
        company: company.to_owned(),
        title: String::new(),
        description: None,
        level: GoalLevel::Task,
        status: GoalStatus::Active,
        parent: None,
        owner: None,
        created_at: w.now,
        updated_at: w.now,
    };
    let goal = edited(w, blank, new)?;
    if goal.title.is_empty() {
        return Err(Refusal::invalid("title must not be empty").into());
    }
    w.execute(
        &format!("INSERT INTO goals ({GOAL}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"),
        params![
            goal.id,
            goal.company,
            goal.title,
            goal.description,
            goal.level,
            goal.status,
            goal.parent,
            goal.owner,
            goal.created_at,
            goal.updated_at
        ],
    )?;
    note(w, "goal.created", &goal)?;
    Ok(goal)
}

/// Changes a goal.
pub fn change(w: &mut Writer<'_>, id: &str, patch: &GoalPatch) -> Result<Goal, StoreError> {
    let before = get(w, id, w.actor.company())?;
    let mut after = edited(w, before, patch)?;
    after.updated_at = w.now;
    w.execute(
        "UPDATE goals SET title = ?, description = ?, level = ?, status = ?, parent = ?, owner = ?,
             updated_at = ? WHERE id = ?",
        params![
            after.title,
            after.description,
            after.level,
            after.status,
            after.parent,
            after.owner,
            after.updated_at,
            after.id
        ],
    )?;
    note(w, "goal.changed", &after)?;
    Ok(after)
}

/// The goal with this id; `within` limits an agent to its own company.
pub fn get(connection: &Connection, id: &str, within: Option<&str>) -> Result<Goal, StoreError> {
    connection
        .prepare_cached(&format!(
            "SELECT {GOAL} FROM goals WHERE id = ?1 AND (?2 IS NULL OR company = ?2)"
        ))?
        .query_row(params![id, within], goal_row)
        .optional()?
        .ok_or_else(|| Refusal::missing("goal").into())
}

/// The goals of a company, oldest first.
pub fn list(connection: &Connection, company: &str) -> Result<Vec<Goal>, StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {GOAL} FROM goals WHERE company = ? ORDER BY created_at, id"
    ))?;
    let rows = statement.query_map([company], goal_row)?;
    super::page(rows, |it| it.description.as_ref().map_or(0, String::len))
}

fn edited(w: &Writer<'_>, mut goal: Goal, patch: &GoalPatch) -> Result<Goal, StoreError> {
    if let Some(title) = &patch.title {
        goal.title = text::title(title)?;
    }
    if let Some(description) = &patch.description {
        goal.description = description
            .as_deref()
            .map(|d| text::body("description", d))
            .transpose()?;
    }
    goal.level = patch.level.unwrap_or(goal.level);
    goal.status = patch.status.unwrap_or(goal.status);
    if let Some(parent) = &patch.parent_id {
        goal.parent = match parent {
            Some(id) => Some(new_parent(w, &goal, id)?),
            None => None,
        };
    }
    if let Some(owner) = &patch.owner_agent_id {
        goal.owner = match owner {
            Some(agent) => Some(agents::get(w, agent, Some(&goal.company))?.id),
            None => None,
        };
    }
    Ok(goal)
}

fn new_parent(w: &Writer<'_>, goal: &Goal, id: &str) -> Result<String, StoreError> {
    let parent = get(w, id, Some(&goal.company))?;
    let circle: bool = w
        .prepare_cached(
            "WITH RECURSIVE above(id) AS (
                 SELECT ?1 UNION
                 SELECT goals.parent FROM goals JOIN above ON goals.id = above.id)
             SELECT count(*) > 0 FROM above WHERE id = ?2",
        )?
        .query_row([&parent.id, &goal.id], |row| row.get(0))?;
    if circle {
        let error = "the goal would be part of itself";
        return Err(Refusal::unprocessable("goal_cycle", error).into());
    }
    Ok(parent.id)
}

fn note(w: &mut Writer<'_>, kind: &str, goal: &Goal) -> Result<(), StoreError> {
    let facts = json!({ "goal": goal.id, "title": goal.title, "status": goal.status,
                        "level": goal.level, "parent": goal.parent, "owner": goal.owner,
                        "bytes": goal.description.as_ref().map(String::len) });
    w.note(kind, About::company(&goal.company), facts)?;
    Ok(())
}

fn goal_row(row: &Row<'_>) -> rusqlite::Result<Goal> {
    Ok(Goal {
        id: row.get(0)?,
        company: row.get(1)?,
        title: row.get(2)?,
        description: row.get(3)?,
        level: row.get(4)?,
        status: row.get(5)?,
        parent: row.get(6)?,
        owner: row.get(7)?,
        created_at: row.get(8)?,
        updated_at: row.get(9)?,
    })
}
