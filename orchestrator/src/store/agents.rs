//! Companies and agents.

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::json;

use super::journal::About;
use super::{StoreError, Writer, costs, new_id, runs};
use crate::model::agent::{AgentPatch, NewAgent, Permissions};
use crate::model::{Agent, AgentStatus, Company, Refusal, text};

const AGENT: &str = "id, company, name, role, title, status, profile, reports_to, adapter, \
                     created_at, updated_at, may_create, may_assign, may_wake";

/// Creates a company. `prefix` is the first half of its ticket identifiers; derived from the name
/// when absent.
pub fn create_company(
    w: &mut Writer<'_>,
    name: &str,
    prefix: Option<&str>,
) -> Result<Company, StoreError> {
    let name = text::line("name", name, text::NAME)?;
    let wanted: String = match prefix {
        Some(prefix) => prefix.to_ascii_uppercase(),
        None => {
            let letters = name.chars().filter(char::is_ascii_alphabetic).take(3);
            letters.map(|c| c.to_ascii_uppercase()).collect()
        }
    };
    let fits = (2..=6).contains(&wanted.len()) && wanted.bytes().all(|b| b.is_ascii_uppercase());
    if !fits {
        return Err(Refusal::invalid(
            "prefix must be two to six letters; give one where the name does not yield it",
        )
        .into());
    }
    let taken: Option<String> = w
        .query_row(
            "SELECT name FROM companies WHERE name = ?1 OR prefix = ?2",
            params![name, wanted],
            |row| row.get(0),
        )
        .optional()?;
    if let Some(other) = taken {
        return Err(Refusal::conflict(
            "company_exists",
            format!("company `{other}` already has this name or the prefix {wanted}"),
        )
        .into());
    }
    let company = Company {
        id: new_id(),
        name,
        prefix: wanted,
        created_at: w.now,
    };
    w.execute(
        "INSERT INTO companies (id, name, prefix, created_at) VALUES (?, ?, ?, ?)",
        params![company.id, company.name, company.prefix, company.created_at],
    )?;
    let about = About {
        company: Some(&company.id),
        ..About::default()
    };
    w.note(
        "company.created",
        about,
        json!({ "name": company.name, "prefix": company.prefix }),
    )?;
    Ok(company)
}

/// All companies, oldest first.
pub fn companies(connection: &Connection) -> Result<Vec<Company>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT id, name, prefix, created_at FROM companies ORDER BY created_at, id",
    )?;
    let rows = statement.query_map([], company_row)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// A company by id, prefix or name; `within` limits an agent to its own.
pub fn company(
    connection: &Connection,
    reference: &str,
    within: Option<&str>,
) -> Result<Company, StoreError> {
    let found = connection
        .prepare_cached(
            "SELECT id, name, prefix, created_at FROM companies
             WHERE id = ?1 OR prefix = upper(?1) OR name = ?1
             ORDER BY id = ?1 DESC, prefix = upper(?1) DESC LIMIT 1",
        )?
        .query_row([reference], company_row)
        .optional()?;
    match found {
        Some(company) if within.is_none_or(|own| own == company.id) => Ok(company),
        Some(_) | None => Err(Refusal::missing("company").into()),
    }
}

/// Creates an agent.
pub fn create(w: &mut Writer<'_>, company: &str, new: NewAgent) -> Result<Agent, StoreError> {
    new.adapter.check()?;
    let name = text::line("name", &new.name, text::NAME)?;
    let role = text::line("role", new.role.as_deref().unwrap_or("general"), text::NAME)?;
    let title = new
        .title
        .map(|t| text::line("title", &t, text::NAME))
        .transpose()?;
    let profile = text::line("profile", new.profile.as_deref().unwrap_or("default"), 64)?;
    if let Some(boss) = &new.reports_to {
        get(w, boss, Some(company))?;
    }
    let taken: Option<i64> = w
        .query_row(
            "SELECT 1 FROM agents WHERE company = ? AND name = ?",
            params![company, name],
            |row| row.get(0),
        )
        .optional()?;
    if taken.is_some() {
        let error = format!("there is an agent `{name}` already");
        return Err(Refusal::conflict("agent_exists", error).into());
    }
    let agent = Agent {
        id: new_id(),
        company: company.to_owned(),
        name,
        role,
        title,
        status: AgentStatus::Active,
        profile,
        reports_to: new.reports_to,
        adapter: new.adapter,
        permissions: new.permissions,
        created_at: w.now,
        updated_at: w.now,
    };
    w.execute(
        &format!("INSERT INTO agents ({AGENT}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"),
        params![
            agent.id,
            agent.company,
            agent.name,
            agent.role,
            agent.title,
            agent.status,
            agent.profile,
            agent.reports_to,
            serde_json::to_string(&agent.adapter)?,
            agent.created_at,
            agent.updated_at,
            agent.permissions.may_create,
            agent.permissions.may_assign,
            agent.permissions.may_wake
        ],
    )?;
    let about = About {
        company: Some(company),
        ..About::default()
    };
    let facts = json!({ "agent": agent.id, "name": agent.name, "profile": agent.profile,
                        "adapter": agent.adapter.kind(), "permissions": agent.permissions });
    w.note("agent.created", about, facts)?;
    Ok(agent)
}

/// Changes an agent as a person says.
pub fn change(w: &mut Writer<'_>, id: &str, patch: AgentPatch) -> Result<Agent, StoreError> {
    if w.actor.agent().is_some() {
        let error = "agents do not change agents; ask with an approval of type change_agent";
        return Err(Refusal::forbidden("operators_only", error).into());
    }
    let before = get(w, id, None)?;
    let mut after = before.clone();
    if let Some(role) = &patch.role {
        after.role = text::line("role", role, text::NAME)?;
    }
    if let Some(title) = patch.title {
        after.title = title
            .map(|t| text::line("title", &t, text::NAME))
            .transpose()?;
    }
    if let Some(profile) = &patch.profile {
        after.profile = text::line("profile", profile, 64)?;
    }
    if let Some(boss) = patch.reports_to {
        after.reports_to = match boss {
            Some(boss) => Some(boss_of(w, &before, &boss)?),
            None => None,
        };
    }
    if let Some(adapter) = patch.adapter {
        adapter.check()?;
        after.adapter = adapter;
    }
    after.permissions = patch.permissions.unwrap_or(after.permissions);
    if after != before {
        keep(w, &before, &after)?;
    }
    if let Some(cents) = patch.budget_monthly_cents {
        costs::set_agent_budget(w, &before.id, cents)?;
    }
    match patch.status {
        Some(status) => set_status(w, &before.id, status),
        None => get(w, &before.id, None),
    }
}

fn keep(w: &mut Writer<'_>, before: &Agent, after: &Agent) -> Result<(), StoreError> {
    w.execute(
        "UPDATE agents SET role = ?, title = ?, profile = ?, reports_to = ?, adapter = ?,
             may_create = ?, may_assign = ?, may_wake = ?, updated_at = ? WHERE id = ?",
        params![
            after.role,
            after.title,
            after.profile,
            after.reports_to,
            serde_json::to_string(&after.adapter)?,
            after.permissions.may_create,
            after.permissions.may_assign,
            after.permissions.may_wake,
            w.now,
            after.id
        ],
    )?;
    // Values of an adapter may be long, and are for people alone: that they changed is what counts.
    let facts = json!({ "agent": after.id, "role": after.role, "profile": after.profile,
                        "reportsTo": after.reports_to, "permissions": after.permissions,
                        "adapter": after.adapter.kind(),
                        "adapterChanged": before.adapter != after.adapter });
    w.note("agent.changed", About::company(&after.company), facts)?;
    w.kick = true;
    Ok(())
}

/// Somebody of the company who does not report to this agent.
fn boss_of(w: &Writer<'_>, agent: &Agent, boss: &str) -> Result<String, StoreError> {
    let boss = get(w, boss, Some(&agent.company))?.id;
    let mut next = Some(boss.clone());
    let mut seen = 0;
    while let Some(id) = next {
        if id == agent.id || seen > 64 {
            let error = "an agent does not report to itself, nor to whoever reports to it";
            return Err(Refusal::unprocessable("reports_to_cycle", error).into());
        }
        seen += 1;
        next = get(w, &id, None)?.reports_to;
    }
    Ok(boss)
}

/// Pauses, resumes or terminates an agent. A terminated agent stays so, and its live run is stopped.
pub fn set_status(w: &mut Writer<'_>, id: &str, status: AgentStatus) -> Result<Agent, StoreError> {
    let agent = get(w, id, None)?;
    if agent.status == AgentStatus::Terminated && status != AgentStatus::Terminated {
        return Err(Refusal::conflict("agent_terminated", "a terminated agent stays so").into());
    }
    w.execute(
        "UPDATE agents SET status = ?, updated_at = ? WHERE id = ?",
        params![status, w.now, agent.id],
    )?;
    let about = About {
        company: Some(&agent.company),
        ..About::default()
    };
    w.note(
        "agent.status",
        about,
        json!({ "agent": agent.id, "status": status }),
    )?;
    if status == AgentStatus::Terminated
        && let Some(run) = runs::live_of(w, &agent.id)?
    {
        runs::ask_cancel(w, &run)?;
    }
    w.kick = true;
    get(w, id, None)
}

/// An agent by id, or by name where that is unambiguous.
pub fn get(
    connection: &Connection,
    reference: &str,
    within: Option<&str>,
) -> Result<Agent, StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {AGENT} FROM agents
         WHERE (id = ?1 OR name = ?1) AND (?2 IS NULL OR company = ?2) LIMIT 2"
    ))?;
    let found = statement.query_map(params![reference, within], agent_row)?;
    let mut found: Vec<(Agent, String)> = found.collect::<Result<_, _>>()?;
    if found.len() > 1 {
        let error = format!("`{reference}` is an agent of several companies; use its id");
        return Err(Refusal::conflict("ambiguous_agent", error).into());
    }
    match found.pop() {
        Some((mut agent, adapter)) => {
            agent.adapter = serde_json::from_str(&adapter)?;
            Ok(agent)
        }
        None => Err(Refusal::missing("agent").into()),
    }
}

/// The agents of a company (all companies when `None`), by name.
pub fn list(connection: &Connection, company: Option<&str>) -> Result<Vec<Agent>, StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {AGENT} FROM agents WHERE ?1 IS NULL OR company = ?1 ORDER BY name, id"
    ))?;
    let rows = statement.query_map([company], agent_row)?;
    rows.map(|row| {
        let (mut agent, adapter) = row?;
        agent.adapter = serde_json::from_str(&adapter)?;
        Ok(agent)
    })
    .collect()
}

fn company_row(row: &Row<'_>) -> rusqlite::Result<Company> {
    Ok(Company {
        id: row.get(0)?,
        name: row.get(1)?,
        prefix: row.get(2)?,
        created_at: row.get(3)?,
    })
}

/// The adapter is text here; the caller parses it, because that can fail for other reasons.
fn agent_row(row: &Row<'_>) -> rusqlite::Result<(Agent, String)> {
    use crate::model::adapter::{Adapter, Process};
    let blank = Process {
        command: Vec::new(),
        bundle: None,
        env: std::collections::BTreeMap::new(),
        timeout_seconds: None,
    };
    let agent = Agent {
        id: row.get(0)?,
        company: row.get(1)?,
        name: row.get(2)?,
        role: row.get(3)?,
        title: row.get(4)?,
        status: row.get(5)?,
        profile: row.get(6)?,
        reports_to: row.get(7)?,
        adapter: Adapter::Process(blank),
        permissions: Permissions {
            may_create: row.get(11)?,
            may_assign: row.get(12)?,
            may_wake: row.get(13)?,
        },
        created_at: row.get(9)?,
        updated_at: row.get(10)?,
    };
    Ok((agent, row.get(8)?))
}
