//! Projects, goals and labels as JSON.

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::model::time::iso;
use crate::model::{Goal, Label, Project, Ticket};
use crate::store::{StoreError, goals, projects};

/// A project.
pub(in crate::api) fn project(project: &Project) -> Value {
    json!({
        "id": project.id,
        "companyId": project.company,
        "name": project.name,
        "description": project.description,
        "status": project.status,
        "goalId": project.goal,
        "goalIds": project.goal.iter().collect::<Vec<_>>(),
        "leadAgentId": project.lead,
        "workspaces": [],
        "primaryWorkspace": null,
        "createdAt": iso(project.created_at),
        "updatedAt": iso(project.updated_at),
    })
}

/// The project of a ticket, or `null`.
pub(in crate::api) fn project_of(db: &Connection, ticket: &Ticket) -> Result<Value, StoreError> {
    match &ticket.project {
        Some(id) => Ok(project(&projects::get(db, id, Some(&ticket.company))?)),
        None => Ok(Value::Null),
    }
}

/// A goal.
pub(in crate::api) fn goal(goal: &Goal) -> Value {
    json!({
        "id": goal.id,
        "companyId": goal.company,
        "title": goal.title,
        "description": goal.description,
        "level": goal.level,
        "status": goal.status,
        "parentId": goal.parent,
        "ownerAgentId": goal.owner,
        "createdAt": iso(goal.created_at),
        "updatedAt": iso(goal.updated_at),
    })
}

/// The goal of a ticket, or of its project, or `null`.
pub(in crate::api) fn goal_of(db: &Connection, ticket: &Ticket) -> Result<Value, StoreError> {
    let own = match (&ticket.goal, &ticket.project) {
        (Some(goal), _) => Some(goal.clone()),
        (None, Some(project)) => projects::get(db, project, Some(&ticket.company))?.goal,
        (None, None) => None,
    };
    match own {
        Some(id) => Ok(goal(&goals::get(db, &id, Some(&ticket.company))?)),
        None => Ok(Value::Null),
    }
}

/// A label.
pub(in crate::api) fn label(label: &Label) -> Value {
    json!({ "id": label.id, "companyId": label.company, "name": label.name, "color": label.color,
            "createdAt": iso(label.created_at) })
}
