//! Deciding approvals. Every verdict wakes who asked; none is given twice.

use rusqlite::params;
use serde_json::{Value, json};

use super::budget::raise;
use super::{changed, check, fingerprint, get, hire, linked, wake_as_asked};
use crate::model::approval::{Approval, ApprovalKind, ApprovalStatus};
use crate::model::{Reason, Refusal, Status, text};
use crate::store::journal::About;
use crate::store::wakes::{self, Ask};
use crate::store::{StoreError, Writer, agents};

/// What a person says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Yes.
    Approve,
    /// No.
    Reject,
    /// Ask better.
    Revise,
}

/// Decides. `seen` is the fingerprint of what the person looked at, if they say so: what was changed
/// since is not approved.
pub fn decide(
    w: &mut Writer<'_>,
    id: &str,
    verdict: Verdict,
    note: Option<&str>,
    seen: Option<&str>,
) -> Result<Approval, StoreError> {
    if w.actor.user().is_none() {
        return Err(Refusal::forbidden("operators_only", "only people decide approvals").into());
    }
    let approval = get(w, id, None)?;
    let open = match approval.status {
        ApprovalStatus::Pending => true,
        ApprovalStatus::Revision => verdict != Verdict::Revise,
        ApprovalStatus::Approved | ApprovalStatus::Rejected | ApprovalStatus::Cancelled => false,
    };
    if !open {
        return Err(already(&approval).into());
    }
    if seen.is_some_and(|seen| seen != approval.fingerprint) {
        let error = "what is asked for has changed since it was looked at";
        return Err(Refusal::conflict("approval_changed", error)
            .with(json!({ "fingerprint": approval.fingerprint }))
            .into());
    }
    let note = note
        .map(|note| text::body("decisionNote", note))
        .transpose()?;
    let (status, kind, reason) = match verdict {
        Verdict::Approve => (
            ApprovalStatus::Approved,
            "approval.approved",
            Reason::Approved,
        ),
        Verdict::Reject => (
            ApprovalStatus::Rejected,
            "approval.rejected",
            Reason::Rejected,
        ),
        Verdict::Revise => (
            ApprovalStatus::Revision,
            "approval.revision_requested",
            Reason::RevisionRequested,
        ),
    };
    let made = match (verdict, approval.kind) {
        (Verdict::Approve, ApprovalKind::Hire) => {
            Some(agents::create(w, &approval.company, hire(&approval.payload)?)?.id)
        }
        (Verdict::Approve, ApprovalKind::Change) => {
            let wanted = changed(&approval.payload)?;
            let agent = agents::get(w, &wanted.agent_id, Some(&approval.company))?;
            Some(agents::change(w, &agent.id, wanted.changes)?.id)
        }
        (Verdict::Approve, ApprovalKind::Wake) => {
            wake_as_asked(w, &approval)?;
            None
        }
        (Verdict::Approve, ApprovalKind::Budget) => {
            raise(w, &approval)?;
            None
        }
        (Verdict::Approve, ApprovalKind::Strategy | ApprovalKind::Board)
        | (Verdict::Reject | Verdict::Revise, _) => None,
    };
    w.execute(
        "UPDATE approvals SET status = ?, note = ?, decided_by = ?, decided_at = ?, made_agent = ?,
             updated_at = ? WHERE id = ?",
        params![
            status,
            note,
            w.actor.label(),
            w.now,
            made,
            w.now,
            approval.id
        ],
    )?;
    let facts = json!({ "approval": approval.id, "type": approval.kind, "agent": made,
                        "fingerprint": approval.fingerprint, "bytes": note.map(|n| n.len()) });
    let tickets = linked(w, &approval.id)?;
    let about = About {
        ticket: tickets.first().map(|ticket| ticket.id.as_str()),
        ..About::company(&approval.company)
    };
    w.note(kind, about, facts)?;
    // Who wrote the wake need not run again to hear that it went its way.
    if (approval.kind, verdict) != (ApprovalKind::Wake, Verdict::Approve) {
        wake(w, &approval, status, reason)?;
    }
    get(w, id, None)
}

/// Asks again, after a revision was asked for: who asked, or a person.
pub fn resubmit(
    w: &mut Writer<'_>,
    id: &str,
    payload: Option<Value>,
) -> Result<Approval, StoreError> {
    let approval = get(w, id, w.actor.company())?;
    if w.actor.agent().is_some() && w.actor.agent() != approval.requested_by_agent.as_deref() {
        let error = "only who asked, or a person, may ask again";
        return Err(Refusal::forbidden("approval_not_yours", error).into());
    }
    if approval.status != ApprovalStatus::Revision {
        return Err(already(&approval).into());
    }
    let payload = payload.unwrap_or_else(|| approval.payload.clone());
    check(approval.kind, &payload)?;
    let print = fingerprint(approval.kind, &payload);
    w.execute(
        "UPDATE approvals SET status = 'pending', payload = ?, fingerprint = ?, decided_by = NULL,
             decided_at = NULL, updated_at = ? WHERE id = ?",
        params![payload.to_string(), print, w.now, approval.id],
    )?;
    let facts = json!({ "approval": approval.id, "type": approval.kind, "fingerprint": print,
                        "bytes": payload.to_string().len() });
    w.note(
        "approval.resubmitted",
        About::company(&approval.company),
        facts,
    )?;
    get(w, id, None)
}

/// Tells the requester, about its own open ticket if there is one.
fn wake(
    w: &mut Writer<'_>,
    approval: &Approval,
    status: ApprovalStatus,
    reason: Reason,
) -> Result<(), StoreError> {
    let Some(agent) = &approval.requested_by_agent else {
        return Ok(());
    };
    let tickets = linked(w, &approval.id)?;
    let own = tickets.iter().find(|ticket| {
        ticket.assignee_agent.as_ref() == Some(agent)
            && !ticket.status.is_terminal()
            && ticket.status != Status::Backlog
    });
    let issues: Vec<&str> = tickets.iter().map(|ticket| ticket.id.as_str()).collect();
    let ask = Ask {
        agent: agent.clone(),
        ticket: own.map(|ticket| ticket.id.clone()),
        reason,
        comment: None,
        payload: json!({ "approvalId": approval.id, "approvalStatus": status, "issueIds": issues }),
        not_before: 0,
        invited: true,
    };
    wakes::admit(w, ask)?;
    Ok(())
}

fn already(approval: &Approval) -> Refusal {
    let error = format!("it is {} already", approval.status);
    Refusal::conflict("approval_already_decided", error)
        .with(json!({ "approvalId": approval.id, "status": approval.status }))
}
