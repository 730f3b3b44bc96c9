//! Answering interactions: who may, in what form, and who is woken by it.

use rusqlite::params;
use serde_json::{Value, json};

use super::get;
use crate::model::interaction::{Continuation, Interaction, InteractionStatus, Kind, payload};
use crate::model::time::iso;
use crate::model::{Reason, Refusal, Ticket};
use crate::store::journal::About;
use crate::store::tickets::{self, NewTicket};
use crate::store::wakes::{self, Ask};
use crate::store::{StoreError, Writer};

/// How somebody answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Yes, with a choice where there is one.
    Accept,
    /// No, with a reason.
    Reject,
    /// Answers to questions.
    Respond,
    /// Verdicts on items.
    Verdicts,
}

/// Answers an interaction.
pub fn resolve(
    w: &mut Writer<'_>,
    reference: &str,
    id: &str,
    answer: Answer,
    body: &Value,
) -> Result<Interaction, StoreError> {
    let ticket = tickets::get(w, reference, w.actor.company())?;
    let mut it = get(w, &ticket.id, id)?;
    it.may_resolve(&w.actor)?;
    pending(&it)?;
    let (status, result) = match (answer, it.kind) {
        (Answer::Accept, Kind::Confirmation | Kind::Checkbox) => (
            InteractionStatus::Accepted,
            payload::accepted(it.kind, &it.payload, body)?,
        ),
        (Answer::Accept, Kind::Tasks) => {
            let mut result = payload::accepted(it.kind, &it.payload, body)?;
            result["createdTasks"] = create_tasks(w, &ticket, &it, &result)?;
            (InteractionStatus::Accepted, result)
        }
        (Answer::Reject, Kind::Confirmation | Kind::Checkbox | Kind::Tasks) => (
            InteractionStatus::Rejected,
            payload::rejected(&it.payload, body)?,
        ),
        (Answer::Respond, Kind::Questions) => (
            InteractionStatus::Answered,
            payload::answered(&it.payload, body)?,
        ),
        (Answer::Verdicts, Kind::Verdicts) => {
            let by = json!({ "resolvedByUserId": w.actor.user(), "resolvedByRunId": w.actor.run(),
                             "resolvedByAgentId": w.actor.agent(), "resolvedAt": iso(w.now) });
            let result = payload::judged(&it.payload, it.result.as_ref(), body, &by)?;
            let status = if result["complete"] == json!(true) {
                InteractionStatus::Answered
            } else {
                InteractionStatus::Pending
            };
            (status, result)
        }
        (Answer::Accept | Answer::Reject | Answer::Respond | Answer::Verdicts, kind) => {
            let error = format!("a {kind} is not answered like this");
            return Err(Refusal::unprocessable("interaction_kind", error).into());
        }
    };
    it.status = status;
    it.result = Some(result);
    keep(w, &ticket, &it, "interaction.resolved")?;
    if it.status != InteractionStatus::Pending {
        wake(w, &ticket, &it)?;
    }
    get(w, &ticket.id, &it.id)
}

/// Takes a question back: who asked, or a person.
pub fn withdraw(
    w: &mut Writer<'_>,
    reference: &str,
    id: &str,
    reason: Option<&str>,
) -> Result<Interaction, StoreError> {
    let ticket = tickets::get(w, reference, w.actor.company())?;
    let mut it = get(w, &ticket.id, id)?;
    if w.actor.agent().is_some() && !it.is_by(&w.actor) {
        let error = "only who asked, or a person, may take this back";
        return Err(Refusal::forbidden("interaction_not_yours", error).into());
    }
    pending(&it)?;
    if reason.is_some_and(|reason| reason.len() > 4000) {
        return Err(Refusal::invalid("reason is longer than 4000 bytes").into());
    }
    it.status = InteractionStatus::Cancelled;
    it.result = Some(json!({ "version": 1, "outcome": "withdrawn", "reason": reason }));
    keep(w, &ticket, &it, "interaction.withdrawn")?;
    tickets::still_waits(w, &ticket)?;
    if !it.is_by(&w.actor) {
        wake(w, &ticket, &it)?;
    }
    get(w, &ticket.id, &it.id)
}

/// Writes status and result.
pub(super) fn keep(
    w: &mut Writer<'_>,
    ticket: &Ticket,
    it: &Interaction,
    kind: &str,
) -> Result<(), StoreError> {
    let over = it.status != InteractionStatus::Pending;
    let result = it.result.as_ref().map(Value::to_string);
    w.execute(
        "UPDATE interactions SET status = ?, result = ?, resolved_by = ?, resolved_at = ?
         WHERE id = ? AND status = 'pending'",
        params![
            it.status,
            result,
            over.then(|| w.actor.label()),
            over.then_some(w.now),
            it.id
        ],
    )?;
    let outcome = it.result.as_ref().map(|result| result["outcome"].clone());
    let facts = json!({ "interaction": it.id, "kind": it.kind, "status": it.status,
                        "outcome": outcome, "bytes": result.map_or(0, |text| text.len()) });
    w.note(kind, About::of(ticket), facts)?;
    Ok(())
}

/// Tells the assignee, if the question says so.
pub(super) fn wake(
    w: &mut Writer<'_>,
    ticket: &Ticket,
    it: &Interaction,
) -> Result<(), StoreError> {
    let yes = matches!(
        it.status,
        InteractionStatus::Accepted | InteractionStatus::Answered
    );
    let tell = match it.continuation {
        Continuation::Nobody => false,
        Continuation::Assignee => true,
        Continuation::OnAccept => yes,
    };
    if let (true, Some(agent)) = (tell, &ticket.assignee_agent) {
        let mut ask = Ask::about(agent, &ticket.id, Reason::Commented);
        ask.invited = it.created_by_agent.as_ref() == Some(agent);
        ask.payload = json!({ "interactionId": it.id, "interactionKind": it.kind,
                              "interactionStatus": it.status, "mutation": "interaction" });
        wakes::admit(w, ask)?;
    }
    Ok(())
}

fn pending(it: &Interaction) -> Result<(), Refusal> {
    if it.status == InteractionStatus::Pending {
        return Ok(());
    }
    let error = format!("it is {} already", it.status);
    Err(
        Refusal::conflict("interaction_already_resolved", error).with(json!({
            "interactionId": it.id, "status": it.status,
            "outcome": it.result.as_ref().map(|result| result["outcome"].clone()) })),
    )
}

/// The suggested tickets that were chosen, as the act of whoever accepts them.
fn create_tasks(
    w: &mut Writer<'_>,
    ticket: &Ticket,
    it: &Interaction,
    result: &Value,
) -> Result<Value, StoreError> {
    let mut made: Vec<(String, Value, String)> = Vec::new();
    for task in it.payload["tasks"].as_array().into_iter().flatten() {
        let key = task["clientKey"].as_str().unwrap_or_default().to_owned();
        let chosen = result["selectedClientKeys"].as_array();
        if !chosen.is_some_and(|keys| keys.contains(&json!(key))) {
            continue;
        }
        let mut new: NewTicket = serde_json::from_value(task.clone())
            .map_err(|error| Refusal::unprocessable("task_unusable", error.to_string()))?;
        let beneath = task["parentClientKey"].as_str();
        let parent = beneath.and_then(|key| made.iter().find(|(other, ..)| other == key));
        new.parent_id = match parent {
            Some((.., id)) => Some(id.clone()),
            None => new.parent_id.or_else(|| Some(ticket.id.clone())),
        };
        new.idempotency_key = None;
        new.allow_duplicate = true;
        let created = tickets::create(w, &ticket.company, new)?.ticket;
        let shown = json!({ "clientKey": key, "issueId": created.id, "title": created.title,
                            "identifier": created.identifier });
        made.push((key, shown, created.id));
    }
    Ok(made.into_iter().map(|(_, shown, _)| shown).collect())
}
