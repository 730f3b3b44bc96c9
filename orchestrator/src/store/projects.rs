//! Projects of a company.

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::Deserialize;
use serde_json::json;

use super::journal::About;
use super::{StoreError, Writer, agents, goals, new_id};
use crate::model::project::ProjectStatus;
use crate::model::{Project, Refusal, given, text};

/// How many projects a company may have.
const PER_COMPANY: i64 = 1000;

const PROJECT: &str = "id, company, name, description, status, goal, lead, created_at, updated_at";

/// What a person gives to create or change a project; absent fields stay as they are, `null`
/// clears.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ProjectPatch {
    /// Unique in the company.
    pub name: Option<String>,
    /// Markdown.
    #[serde(deserialize_with = "given")]
    pub description: Option<Option<String>>,
    /// Where it stands.
    pub status: Option<ProjectStatus>,
    /// The goal it serves.
    #[serde(deserialize_with = "given")]
    pub goal_id: Option<Option<String>>,
    /// An agent's id or name.
    #[serde(deserialize_with = "given")]
    pub lead_agent_id: Option<Option<String>>,
}

/// Creates a project.
pub fn create(
    w: &mut Writer<'_>,
    company: &str,
    new: &ProjectPatch,
) -> Result<Project, StoreError> {
    let there: i64 = w.query_row(
        "SELECT count(*) FROM projects WHERE company = ?",
        [company],
        |row| row.get(0),
    )?;
    if there >= PER_COMPANY {
        let error = format!("a company has at most {PER_COMPANY} projects");
        return Err(Refusal::unprocessable("project_limit", error).into());
    }
    let blank = Project {
        id: new_id(),
        company: company.to_owned(),
        name: String::new(),
        description: None,
        status: ProjectStatus::InProgress,
        goal: None,
        lead: None,
        created_at: w.now,
        updated_at: w.now,
    };
    let project = edited(w, blank, new)?;
    if project.name.is_empty() {
        return Err(Refusal::invalid("name must not be empty").into());
    }
    w.execute(
        &format!("INSERT INTO projects ({PROJECT}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"),
        params![
            project.id,
            project.company,
            project.name,
            project.description,
            project.status,
            project.goal,
            project.lead,
            project.created_at,
            project.updated_at
        ],
    )?;
    note(w, "project.created", &project)?;
    Ok(project)
}

/// Changes a project.
pub fn change(w: &mut Writer<'_>, id: &str, patch: &ProjectPatch) -> Result<Project, StoreError> {
    let before = get(w, id, w.actor.company())?;
    let mut after = edited(w, before, patch)?;
    after.updated_at = w.now;
    w.execute(
        "UPDATE projects SET name = ?, description = ?, status = ?, goal = ?, lead = ?,
             updated_at = ? WHERE id = ?",
        params![
            after.name,
            after.description,
            after.status,
            after.goal,
            after.lead,
            after.updated_at,
            after.id
        ],
    )?;
    note(w, "project.changed", &after)?;
    Ok(after)
}

/// The project with this id; `within` limits an agent to its own company.
pub fn get(connection: &Connection, id: &str, within: Option<&str>) -> Result<Project, StoreError> {
    connection
        .prepare_cached(&format!(
            "SELECT {PROJECT} FROM projects WHERE id = ?1 AND (?2 IS NULL OR company = ?2)"
        ))?
        .query_row(params![id, within], project_row)
        .optional()?
        .ok_or_else(|| Refusal::missing("project").into())
}

/// The projects of a company, oldest first.
pub fn list(connection: &Connection, company: &str) -> Result<Vec<Project>, StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {PROJECT} FROM projects WHERE company = ? ORDER BY created_at, id"
    ))?;
    let rows = statement.query_map([company], project_row)?;
    super::page(rows, |it| it.description.as_ref().map_or(0, String::len))
}

fn edited(
    w: &Writer<'_>,
    mut project: Project,
    patch: &ProjectPatch,
) -> Result<Project, StoreError> {
    if let Some(name) = &patch.name {
        project.name = text::line("name", name, text::NAME)?;
        let taken: Option<i64> = w
            .query_row(
                "SELECT 1 FROM projects WHERE company = ? AND name = ? AND id <> ?",
                params![project.company, project.name, project.id],
                |row| row.get(0),
            )
            .optional()?;
        if taken.is_some() {
            let error = format!("there is a project `{}` already", project.name);
            return Err(Refusal::conflict("project_exists", error).into());
        }
    }
    if let Some(description) = &patch.description {
        project.description = description
            .as_deref()
            .map(|d| text::body("description", d))
            .transpose()?;
    }
    if let Some(status) = patch.status {
        project.status = status;
    }
    if let Some(goal) = &patch.goal_id {
        project.goal = match goal {
            Some(id) => Some(goals::get(w, id, Some(&project.company))?.id),
            None => None,
        };
    }
    if let Some(lead) = &patch.lead_agent_id {
        project.lead = match lead {
            Some(agent) => Some(agents::get(w, agent, Some(&project.company))?.id),
            None => None,
        };
    }
    Ok(project)
}

fn note(w: &mut Writer<'_>, kind: &str, project: &Project) -> Result<(), StoreError> {
    let facts = json!({ "project": project.id, "name": project.name, "status": project.status,
                        "goal": project.goal, "lead": project.lead,
                        "bytes": project.description.as_ref().map(String::len) });
    w.note(kind, About::company(&project.company), facts)?;
    Ok(())
}

fn project_row(row: &Row<'_>) -> rusqlite::Result<Project> {
    Ok(Project {
        id: row.get(0)?,
        company: row.get(1)?,
        name: row.get(2)?,
        description: row.get(3)?,
        status: row.get(4)?,
        goal: row.get(5)?,
        lead: row.get(6)?,
        created_at: row.get(7)?,
        updated_at: row.get(8)?,
    })
}
