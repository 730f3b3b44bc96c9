//! Cost events: what work cost, as reported, and their sums.

use rusqlite::{Connection, params};
use serde::Deserialize;
use serde_json::{Value, json};

use super::journal::About;
use super::{StoreError, Writer, agents, approvals, goals, new_id, projects, runs, tickets};
use crate::model::time::{Millis, iso, parse};
use crate::model::{Refusal, text};
use crate::scheduler::Budget;

/// The most that one event may say, in cents and in tokens.
const MOST: i64 = 1_000_000_000_000;

/// What a client reports.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NewCost {
    /// Whose work; an agent reports its own.
    pub agent_id: String,
    /// A word such as `anthropic`.
    pub provider: String,
    /// A model's name.
    pub model: String,
    /// Whole cents.
    pub cost_cents: i64,
    /// RFC 3339.
    pub occurred_at: String,
    /// UUID or identifier.
    #[serde(default)]
    pub issue_id: Option<String>,
    /// The ticket's when absent.
    #[serde(default)]
    pub project_id: Option<String>,
    /// The ticket's when absent.
    #[serde(default)]
    pub goal_id: Option<String>,
    /// The reporting run when absent.
    #[serde(default)]
    pub heartbeat_run_id: Option<String>,
    /// The ticket's when absent.
    #[serde(default)]
    pub billing_code: Option<String>,
    /// Tokens.
    #[serde(default)]
    pub input_tokens: i64,
    /// Tokens.
    #[serde(default)]
    pub cached_input_tokens: i64,
    /// Tokens.
    #[serde(default)]
    pub output_tokens: i64,
}

/// Records an event and answers with it.
pub fn record(w: &mut Writer<'_>, company: &str, new: NewCost) -> Result<Value, StoreError> {
    let agent = agents::get(w, &new.agent_id, Some(company))?;
    if w.actor.agent().is_some_and(|own| own != agent.id) {
        let error = "an agent reports its own costs";
        return Err(Refusal::forbidden("cost_of_other_agent", error).into());
    }
    let numbers = [
        ("costCents", new.cost_cents),
        ("inputTokens", new.input_tokens),
        ("cachedInputTokens", new.cached_input_tokens),
        ("outputTokens", new.output_tokens),
    ];
    for (field, number) in numbers {
        if !(0..=MOST).contains(&number) {
            return Err(Refusal::invalid(format!("{field} must be 0 to {MOST}")).into());
        }
    }
    let occurred_at = parse(&new.occurred_at)
        .ok_or_else(|| Refusal::invalid("occurredAt must be an RFC 3339 time"))?;
    let ticket = match &new.issue_id {
        Some(id) => Some(tickets::get(w, id, Some(company))?),
        None => None,
    };
    let of = ticket.as_ref();
    let project = match new.project_id {
        Some(id) => Some(projects::get(w, &id, Some(company))?.id),
        None => of.and_then(|ticket| ticket.project.clone()),
    };
    let goal = match new.goal_id {
        Some(id) => Some(goals::get(w, &id, Some(company))?.id),
        None => of.and_then(|ticket| ticket.goal.clone()),
    };
    let billing_code = match new.billing_code {
        Some(code) => Some(text::line("billingCode", &code, text::NAME)?),
        None => of.and_then(|ticket| ticket.billing_code.clone()),
    };
    let run = run_of(w, &agent.id, new.heartbeat_run_id.as_deref())?;
    let provider = text::line("provider", &new.provider, text::NAME)?;
    let model = text::line("model", &new.model, text::NAME)?;
    let id = new_id();
    w.execute(
        "INSERT INTO cost_events (id, company, agent, ticket, project, goal, run, reported_by,
             billing_code, provider, model, cents, input, cached_input, output, occurred_at,
             created_at)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        params![
            id,
            company,
            agent.id,
            of.map(|ticket| &ticket.id),
            project,
            goal,
            run,
            w.actor.label(),
            billing_code,
            provider,
            model,
            new.cost_cents,
            new.input_tokens,
            new.cached_input_tokens,
            new.output_tokens,
            occurred_at,
            w.now
        ],
    )?;
    let shown = json!({
        "id": id, "companyId": company, "agentId": agent.id,
        "issueId": of.map(|ticket| &ticket.id), "projectId": project, "goalId": goal,
        "heartbeatRunId": run, "billingCode": billing_code, "provider": provider, "model": model,
        "costCents": new.cost_cents, "inputTokens": new.input_tokens,
        "cachedInputTokens": new.cached_input_tokens, "outputTokens": new.output_tokens,
        "occurredAt": iso(occurred_at), "createdAt": iso(w.now),
    });
    let about = About {
        ticket: of.map(|ticket| ticket.id.as_str()),
        ..About::company(company)
    };
    let facts = json!({ "cost": id, "agent": agent.id, "cents": new.cost_cents, "model": model });
    w.note("cost.reported", about, facts)?;
    stop_where_spent(w, company, &agent.id)?;
    Ok(shown)
}

/// A span of time, both ends optional; `to` itself is left out.
#[derive(Debug, Clone, Copy, Default)]
pub struct Span {
    /// From this time on.
    pub from: Option<Millis>,
    /// Before this time.
    pub to: Option<Millis>,
}

/// The sums of a company: `{"spendCents", "inputTokens", "cachedInputTokens", "outputTokens", "events"}`.
pub fn summary(connection: &Connection, company: &str, span: Span) -> Result<Value, StoreError> {
    let mut all = grouped(connection, company, span, "NULL", "NULL")?;
    let mut sums = all.pop().unwrap_or_else(|| {
        json!({ "costCents": 0, "inputTokens": 0, "cachedInputTokens": 0, "outputTokens": 0,
                "events": 0 })
    });
    sums["companyId"] = json!(company);
    sums["spendCents"] = sums["costCents"].clone();
    sums["budgetCents"] = json!(0);
    sums["utilizationPercent"] = json!(0);
    if let Some(map) = sums.as_object_mut() {
        map.remove("id");
        map.remove("name");
    }
    Ok(sums)
}

/// The sums of each agent, the most expensive first.
pub fn by_agent(
    connection: &Connection,
    company: &str,
    span: Span,
) -> Result<Vec<Value>, StoreError> {
    let name = "(SELECT name FROM agents WHERE agents.id = agent)";
    let all = grouped(connection, company, span, "agent", name)?;
    Ok(all
        .into_iter()
        .map(|sums| renamed(sums, "agentId", "agentName"))
        .collect())
}

/// The sums of each project, the most expensive first; what has none is `null`.
pub fn by_project(
    connection: &Connection,
    company: &str,
    span: Span,
) -> Result<Vec<Value>, StoreError> {
    let name = "(SELECT name FROM projects WHERE projects.id = project)";
    let all = grouped(connection, company, span, "project", name)?;
    Ok(all
        .into_iter()
        .map(|sums| renamed(sums, "projectId", "projectName"))
        .collect())
}

/// What an agent has spent since the first of the month (UTC).
pub fn of_agent_this_month(
    connection: &Connection,
    agent: &str,
    now: Millis,
) -> Result<i64, StoreError> {
    Ok(connection
        .prepare_cached(
            "SELECT ifnull(sum(cents), 0) FROM cost_events WHERE agent = ?1 AND occurred_at >=
                 1000 * CAST(strftime('%s', ?2 / 1000, 'unixepoch', 'start of month') AS INTEGER)",
        )?
        .query_row(params![agent, now], |row| row.get(0))?)
}

/// What may be spent this month by an agent and by its company, where a person has said so.
pub fn budgets(
    connection: &Connection,
    company: &str,
    agent: &str,
    now: Millis,
) -> Result<Vec<Budget>, StoreError> {
    let (own, whole): (Option<i64>, Option<i64>) = connection
        .prepare_cached(
            "SELECT (SELECT budget FROM agents WHERE id = ?1),
                    (SELECT budget FROM companies WHERE id = ?2)",
        )?
        .query_row([agent, company], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let mut all = Vec::new();
    if let Some(limit) = own {
        let spent = of_agent_this_month(connection, agent, now)?;
        let whose = "the agent";
        all.push(Budget {
            whose,
            spent,
            limit,
        });
    }
    if let Some(limit) = whole {
        let spent = connection
            .prepare_cached(&format!(
                "SELECT ifnull(sum(cents), 0) FROM cost_events
                 WHERE company = ?1 AND occurred_at >= {MONTH}"
            ))?
            .query_row(params![company, now], |row| row.get(0))?;
        let whose = "the company";
        all.push(Budget {
            whose,
            spent,
            limit,
        });
    }
    Ok(all)
}

/// A person says what an agent may spend in a month; `None` takes the bound away.
pub fn set_agent_budget(
    w: &mut Writer<'_>,
    agent: &str,
    cents: Option<i64>,
) -> Result<(), StoreError> {
    let it = agents::get(w, agent, None)?;
    w.execute(
        "UPDATE agents SET budget = ? WHERE id = ?",
        params![checked(cents)?, it.id],
    )?;
    let facts = json!({ "agent": it.id, "cents": cents });
    w.note("budget.set", About::company(&it.company), facts)?;
    w.kick = true;
    Ok(())
}

/// As [`set_agent_budget`], for a company as a whole.
pub fn set_company_budget(
    w: &mut Writer<'_>,
    company: &str,
    cents: Option<i64>,
) -> Result<(), StoreError> {
    w.execute(
        "UPDATE companies SET budget = ? WHERE id = ?",
        params![checked(cents)?, company],
    )?;
    w.note(
        "budget.set",
        About::company(company),
        json!({ "cents": cents }),
    )?;
    w.kick = true;
    Ok(())
}

fn checked(cents: Option<i64>) -> Result<Option<i64>, Refusal> {
    match cents {
        Some(cents) if !(0..=MOST).contains(&cents) => Err(Refusal::invalid(format!(
            "budgetMonthlyCents must be 0 to {MOST}"
        ))),
        cents => Ok(cents),
    }
}

/// Whose budget is spent gets no more runs, its live one is stopped, and a person is asked.
fn stop_where_spent(w: &mut Writer<'_>, company: &str, agent: &str) -> Result<(), StoreError> {
    let all = budgets(w, company, agent, w.now)?;
    let Some(spent) = all.iter().find(|it| it.spent >= it.limit) else {
        return Ok(());
    };
    if let Some(run) = runs::live_of(w, agent)? {
        runs::ask_cancel(w, &run)?;
    }
    let scope = if spent.whose == "the agent" {
        "agent"
    } else {
        "company"
    };
    approvals::ask_for_budget(w, company, agent, scope, spent)
}

/// The first of the month (UTC) of the time that is the second parameter, in SQL.
const MONTH: &str =
    "1000 * CAST(strftime('%s', ?2 / 1000, 'unixepoch', 'start of month') AS INTEGER)";

/// `by` and `name` are SQL of this file.
fn grouped(
    connection: &Connection,
    company: &str,
    span: Span,
    by: &str,
    name: &str,
) -> Result<Vec<Value>, StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {by}, {name}, sum(cents), sum(input), sum(cached_input), sum(output), count(*)
         FROM cost_events WHERE company = ?1 AND (?2 IS NULL OR occurred_at >= ?2)
           AND (?3 IS NULL OR occurred_at < ?3)
         GROUP BY {by} ORDER BY sum(cents) DESC, {by} LIMIT 1000"
    ))?;
    let rows = statement.query_map(params![company, span.from, span.to], |row| {
        Ok(json!({
            "id": row.get::<_, Option<String>>(0)?,
            "name": row.get::<_, Option<String>>(1)?,
            "costCents": row.get::<_, i64>(2)?,
            "inputTokens": row.get::<_, i64>(3)?,
            "cachedInputTokens": row.get::<_, i64>(4)?,
            "outputTokens": row.get::<_, i64>(5)?,
            "events": row.get::<_, i64>(6)?,
        }))
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn renamed(mut sums: Value, id: &str, name: &str) -> Value {
    sums[id] = sums["id"].take();
    sums[name] = sums["name"].take();
    if let Some(map) = sums.as_object_mut() {
        map.remove("id");
        map.remove("name");
    }
    sums
}

/// The run that cost: an agent's own live one, or any of the agent's that a person names.
fn run_of(w: &Writer<'_>, agent: &str, named: Option<&str>) -> Result<Option<String>, StoreError> {
    let own = w.actor.run().map(str::to_owned);
    let Some(named) = named else {
        return Ok(own);
    };
    let run = match runs::get(w, named) {
        Ok(run) if run.agent == agent => run.id,
        Ok(_) => return Err(Refusal::missing("run").into()),
        Err(error) => return Err(error),
    };
    if own.as_ref().is_some_and(|own| *own != run) {
        let error = "a run reports its own costs";
        return Err(Refusal::forbidden("cost_of_other_run", error).into());
    }
    Ok(Some(run))
}
