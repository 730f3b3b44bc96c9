//! Everything that happened on one ticket, in one list; and why nothing does.
//!
//! Joins the journal (wakes, runs, changes, checkouts), the comments, and what each run's requests
//! met at the gate (verdict, rule, credential *name*, status, bytes). Read only.

mod egress;
pub mod render;

use policy::grant::RunId;
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::gate_client::{GateClient, chain};
use crate::model::time::{Millis, iso};
use crate::model::{Comment, Run, Ticket};
use crate::scheduler::{self, Decision, Readiness};
use crate::store::comments::Page;
use crate::store::journal::Entry;
use crate::store::{Store, StoreError, agents, comments, journal, runs, snapshot, tickets};

/// The timeline of a ticket:
/// `{"issue": {...}, "items": [{"at", "kind", "actor", "runId", "facts"}], "notes": [...]}`. The
/// gate's part is missing, and `notes` says so, when the gate cannot be asked.
pub async fn of_ticket(
    store: &Store,
    gate: &GateClient,
    reference: &str,
) -> Result<Value, StoreError> {
    let reference = reference.to_owned();
    let (ticket, entries, written, ran, names) = store
        .read(move |db| {
            let ticket = tickets::get(db, &reference, None)?;
            let page = Page {
                ascending: true,
                limit: 500,
                after: None,
            };
            let written = comments::list(db, &ticket.id, &page)?;
            let mut ran = runs::list(db, None, Some(&ticket.id), 500)?;
            ran.reverse();
            let names: Vec<(String, String)> = agents::list(db, Some(&ticket.company))?
                .into_iter()
                .map(|agent| (agent.id, agent.name))
                .collect();
            Ok((
                ticket.clone(),
                journal::of_ticket(db, &ticket.id)?,
                written,
                ran,
                names,
            ))
        })
        .await?;
    let mut items: Vec<(Millis, Value)> = Vec::new();
    for entry in &entries {
        items.push((entry.at, of_entry(entry, &written)));
    }
    let mut notes = Vec::new();
    for run in &ran {
        match met(gate, run).await {
            Ok(requests) => items.extend(requests),
            Err(error) => notes.push(format!("requests of run {} are not shown: {error}", run.id)),
        }
    }
    // Stable: entries of one millisecond keep the order they were written in.
    items.sort_by_key(|(at, _)| *at);
    let mut items: Vec<Value> = items.into_iter().map(|(_, item)| item).collect();
    for item in &mut items {
        name_actor(item, &names);
    }
    let issue = json!({ "id": ticket.id, "identifier": ticket.identifier, "title": ticket.title,
                        "status": ticket.status });
    Ok(json!({ "issue": issue, "items": items, "notes": notes }))
}

/// Why a ticket has a run, waits for one, or will not get one.
pub(crate) fn why(
    db: &Connection,
    ticket: &Ticket,
    slices: &[i64],
    readiness: Readiness,
    now: Millis,
) -> Result<Value, StoreError> {
    let state = snapshot::state(db, slices, readiness, now)?;
    let about: Vec<&str> = state
        .wakes
        .iter()
        .filter(|wake| wake.ticket.as_ref().is_some_and(|t| t.id == ticket.id))
        .map(|wake| wake.wake.as_str())
        .collect();
    let mut wakes = Vec::new();
    for decision in scheduler::decide(&state, now) {
        let (Decision::Start { wake } | Decision::Wait { wake, .. } | Decision::Drop { wake, .. }) =
            &decision;
        if about.contains(&wake.as_str()) {
            let facts = state.wakes.iter().find(|facts| facts.wake == *wake);
            let mut item = json!(decision);
            item["reason"] = json!(facts.map(|facts| facts.reason));
            wakes.push(item);
        }
    }
    let live = tickets::live_run(db, &ticket.id)?;
    let entries = journal::of_ticket(db, &ticket.id)?;
    let refused: Vec<Value> = entries
        .iter()
        .rev()
        .filter(|e| {
            matches!(
                e.kind.as_str(),
                "wake.refused" | "wake.dropped" | "ticket.parked"
            )
        })
        .take(5)
        .map(|e| json!({ "at": iso(e.at), "kind": e.kind, "actor": e.actor, "facts": e.facts }))
        .collect();
    Ok(json!({
        "issue": { "id": ticket.id, "identifier": ticket.identifier, "status": ticket.status,
                   "assigneeAgentId": ticket.assignee_agent },
        "summary": summary(ticket, live.as_deref(), &wakes),
        "liveRun": live,
        "wakes": wakes,
        "earlierAnswers": refused,
    }))
}

fn summary(ticket: &Ticket, live: Option<&str>, wakes: &[Value]) -> String {
    if let Some(run) = live {
        return format!("run {run} works on it");
    }
    let shut: Vec<&str> = wakes
        .iter()
        .filter_map(|wake| wake["gates"].as_array())
        .flatten()
        .filter(|gate| gate["open"] == json!(false))
        .filter_map(|gate| gate["fact"].as_str())
        .collect();
    if !shut.is_empty() {
        return format!("a wake waits: {}", shut.join("; "));
    }
    if !wakes.is_empty() {
        return "a run is about to start".to_owned();
    }
    if ticket.status.is_terminal() {
        return format!("it is {}", ticket.status);
    }
    match (&ticket.assignee_agent, &ticket.assignee_user) {
        (Some(_), _) => "no wake is queued: comment on it or assign it again".to_owned(),
        (None, Some(user)) => format!("it is assigned to {user}, a person"),
        (None, None) => "it is assigned to nobody: assigning is the wake".to_owned(),
    }
}

fn of_entry(entry: &Entry, written: &[Comment]) -> Value {
    let mut facts = entry.facts.clone();
    if entry.kind == "comment.written"
        && let Some(comment) = written.iter().find(|c| facts["comment"] == json!(c.id))
    {
        facts["body"] = json!(comment.body);
    }
    json!({ "at": iso(entry.at), "kind": entry.kind, "actor": entry.actor, "runId": entry.run,
            "facts": facts })
}

async fn met(gate: &GateClient, run: &Run) -> Result<Vec<(Millis, Value)>, String> {
    let id = RunId::parse(&run.id).map_err(|error| error.to_string())?;
    let records = gate.audit(&id).await.map_err(|error| chain(&error))?;
    Ok(egress::items(&records, &run.id))
}

fn name_actor(item: &mut Value, names: &[(String, String)]) {
    let named = item["actor"].as_str().and_then(|actor| {
        let id = actor.strip_prefix("agent:")?;
        names
            .iter()
            .find(|(other, _)| other == id)
            .map(|(_, name)| format!("agent:{name}"))
    });
    if let Some(named) = named {
        item["actor"] = json!(named);
    }
}
