//! A budget that is spent: a person is asked, once, whether more may be.

use rusqlite::params;
use serde_json::json;

use super::{NewApproval, create};
use crate::model::approval::{Approval, ApprovalKind};
use crate::model::{Actor, Refusal};
use crate::scheduler::Budget;
use crate::store::{StoreError, Writer, costs};

/// Asks, unless the question waits already. Approving sets the budget to `budgetMonthlyCents`.
pub(in crate::store) fn ask_for_budget(
    w: &mut Writer<'_>,
    company: &str,
    agent: &str,
    scope: &str,
    spent: &Budget,
) -> Result<(), StoreError> {
    let id = if scope == "agent" { agent } else { company };
    let waits: bool = w.query_row(
        "SELECT count(*) > 0 FROM approvals WHERE kind = 'budget_override_required'
           AND company = ?1 AND status = 'pending' AND json_extract(payload, '$.scopeId') = ?2",
        params![company, id],
        |row| row.get(0),
    )?;
    if waits {
        return Ok(());
    }
    let new = NewApproval {
        kind: ApprovalKind::Budget,
        payload: json!({ "scope": scope, "scopeId": id, "spentCents": spent.spent,
                         "limitCents": spent.limit,
                         "budgetMonthlyCents": spent.spent + spent.limit.max(1) }),
        issue_ids: Vec::new(),
    };
    let author = std::mem::replace(&mut w.actor, Actor::System);
    let asked = create(w, company, &new);
    w.actor = author;
    asked.map(|_approval| ())
}

/// What was asked for is the budget now. One that an agent wrote by itself changes nothing: a person
/// sets what it asks for.
pub(super) fn raise(w: &mut Writer<'_>, approval: &Approval) -> Result<(), StoreError> {
    let (scope, id) = (&approval.payload["scope"], &approval.payload["scopeId"]);
    let ours = approval.requested_by_agent.is_none();
    let (true, Some(scope), Some(id)) = (ours, scope.as_str(), id.as_str()) else {
        return Ok(());
    };
    let cents = approval.payload["budgetMonthlyCents"]
        .as_i64()
        .ok_or_else(|| Refusal::invalid("budgetMonthlyCents must be whole cents"))?;
    match scope {
        "agent" => costs::set_agent_budget(w, id, Some(cents)),
        _ => costs::set_company_budget(w, &approval.company, Some(cents)),
    }
}
