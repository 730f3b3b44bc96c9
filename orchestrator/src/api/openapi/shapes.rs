//! What routes answer. One line per field: a name, and its kind after a colon where it is not text.
//!
//! Kinds are `text`, `int`, `bool`, `time`, `any`, `object`, the name of a shape, or one of them in
//! brackets for a list; `?` at the end means that it may be `null`. Fields that are named here are
//! always there; answers may have more.

use serde_json::{Map, Value, json};

use crate::model::approval::{ApprovalKind, ApprovalStatus};
use crate::model::interaction;
use crate::model::project::{GoalLevel, GoalStatus, ProjectStatus};
use crate::model::routine::{RoutineStatus, SlotState};
use crate::model::{AgentStatus, Priority, RunStatus, Status};

const SHAPES: &[(&str, &str)] = &[
    ("Error", "error code"),
    ("Health", "status version"),
    (
        "Document",
        "openapi info:object paths:object components:object",
    ),
    (
        "Issue",
        "id companyId issueNumber:int identifier title description? status:Status
         priority:Priority workMode assigneeAgentId? assigneeUserId? parentId? projectId? goalId?
         billingCode? unblockDescriptor:any checkoutRunId? executionRunId? createdByAgentId?
         createdByUserId? createdByRunId? startedAt:time? completedAt:time? cancelledAt:time?
         createdAt:time updatedAt:time labelIds:[text] labels:[Label]",
    ),
    (
        "IssueWhole",
        "id companyId issueNumber:int identifier title description? status:Status
         priority:Priority assigneeAgentId? assigneeUserId? parentId? projectId? goalId?
         createdAt:time updatedAt:time labels:[Label] ancestors:[IssueBrief]
         blockedBy:[IssueBrief] blocks:[IssueBrief] project:Project? goal:Goal?
         relatedWork:object",
    ),
    (
        "IssueBrief",
        "id identifier title status:Status priority:Priority assigneeAgentId? assigneeUserId?",
    ),
    (
        "IssueChanged",
        "id identifier status:Status updatedAt:time changes:object comment:Comment?",
    ),
    (
        "IssueContext",
        "issue:Issue ancestors:[IssueBrief] blockedBy:[IssueBrief] project:Project? goal:Goal?
         commentCursor:CommentCursor wakeComment:Comment? attachments:[Attachment]",
    ),
    (
        "CommentCursor",
        "totalComments:int latestCommentId? latestCommentAt:time?",
    ),
    (
        "InboxItem",
        "id identifier title status:Status priority:Priority projectId? goalId? parentId?
         updatedAt:time activeRun:RunBrief? dependencyReady:bool unresolvedBlockerCount:int
         unresolvedBlockerIssueIds:[text]",
    ),
    ("RunBrief", "id status:RunStatus agentId"),
    (
        "Comment",
        "id issueId authorType authorAgentId? authorUserId? createdByRunId? body createdAt:time
         updatedAt:time",
    ),
    (
        "IssueDocument",
        "id issueId key title? format body latestRevisionId latestRevisionNumber:int
         createdAt:time updatedAt:time",
    ),
    (
        "Revision",
        "id revisionNumber:int title? format body changeSummary? createdByAgentId?
         createdByUserId? createdByRunId? createdAt:time",
    ),
    ("Company", "id name issuePrefix status createdAt:time"),
    (
        "Agent",
        "id companyId name role title? status:AgentStatus reportsTo? adapterType profile
         budgetMonthlyCents:int spentMonthlyCents:int permissions:object createdAt:time
         updatedAt:time",
    ),
    (
        "OrgNode",
        "id name role title? status:AgentStatus reports:[OrgNode]",
    ),
    (
        "Run",
        "id companyId agentId issueId? wakeId? status:RunStatus live:bool corrective:bool
         cancelRequested:bool exit:int? reason? createdAt:time startedAt:time? finishedAt:time?",
    ),
    (
        "Project",
        "id companyId name description? status:ProjectStatus goalId? goalIds:[text] leadAgentId?
         createdAt:time updatedAt:time",
    ),
    (
        "Goal",
        "id companyId title description? level:GoalLevel status:GoalStatus parentId?
         ownerAgentId? createdAt:time updatedAt:time",
    ),
    (
        "Routine",
        "id companyId name title description? assigneeAgentId? projectId? priority:Priority
         status:RoutineStatus cron? timezone? catchUp overlap webhook? nextDueAt:time?
         createdAt:time updatedAt:time",
    ),
    (
        "RoutineSlot",
        "id dueAt:time trigger status:SlotState reason? issueId?",
    ),
    ("Webhook", "routineId kind secret path"),
    ("Done", "ok:bool"),
    ("Label", "id companyId name color? createdAt:time"),
    (
        "Approval",
        "id companyId type:ApprovalKind status:ApprovalStatus payload:any fingerprint
         requestedByAgentId? requestedByUserId? decisionNote? decidedByUserId? decidedAt:time?
         agentId? createdAt:time updatedAt:time",
    ),
    ("Hire", "agent:any approval:Approval"),
    (
        "Remark",
        "id approvalId authorAgentId? authorUserId? body createdAt:time",
    ),
    (
        "Interaction",
        "id companyId issueId kind:InteractionKind status:InteractionStatus title? summary?
         payload:object result:any continuationPolicy resolverPolicy addresseeAgentId?
         targetRevisionId? createdByAgentId? createdByUserId? sourceRunId? resolvedByAgentId?
         resolvedByUserId? createdAt:time resolvedAt:time? updatedAt:time",
    ),
    (
        "Attachment",
        "id issueId originalFilename contentType? byteSize:int sha256 contentPath
         createdByAgentId? createdByUserId? createdByRunId? createdAt:time",
    ),
    (
        "WorkProduct",
        "id issueId type provider? title? url? status? isPrimary:bool metadata:any
         createdByAgentId? createdByUserId? createdAt:time updatedAt:time",
    ),
    (
        "Cost",
        "id companyId agentId issueId? projectId? goalId? heartbeatRunId? billingCode? provider
         model costCents:int inputTokens:int cachedInputTokens:int outputTokens:int
         occurredAt:time createdAt:time",
    ),
    (
        "CostSum",
        "companyId spendCents:int costCents:int inputTokens:int cachedInputTokens:int
         outputTokens:int events:int budgetCents:int",
    ),
    (
        "CostOf",
        "costCents:int inputTokens:int cachedInputTokens:int outputTokens:int",
    ),
    (
        "Dashboard",
        "companyId agents:object tasks:object costs:object pendingApprovals:int",
    ),
    ("Woken", "status"),
    (
        "Activity",
        "seq:int createdAt:time action actor issueId? runId? details:object",
    ),
    ("Anchor", "anchoredAt:time statement:any"),
    ("Timeline", "issue:object items:[TimelineItem] notes:[text]"),
    ("TimelineItem", "at:time kind"),
    (
        "Why",
        "issue:object summary liveRun? wakes:[object] earlierAnswers:[object]",
    ),
];

/// Every shape by its name.
pub(super) fn all() -> Value {
    let mut all = Map::new();
    for (name, fields) in SHAPES {
        all.insert((*name).to_owned(), shape(fields));
    }
    let mut word = |name: &str, words: Vec<&str>| {
        all.insert(name.to_owned(), json!({ "type": "string", "enum": words }));
    };
    macro_rules! enums {
        ($($name:literal => $type:ty;)+) => {
            $(word($name, <$type>::ALL.iter().map(|it| it.as_str()).collect());)+
        };
    }
    enums! {
        "Status" => Status;
        "Priority" => Priority;
        "RunStatus" => RunStatus;
        "AgentStatus" => AgentStatus;
        "ProjectStatus" => ProjectStatus;
        "GoalLevel" => GoalLevel;
        "GoalStatus" => GoalStatus;
        "RoutineStatus" => RoutineStatus;
        "SlotState" => SlotState;
        "ApprovalKind" => ApprovalKind;
        "ApprovalStatus" => ApprovalStatus;
        "InteractionKind" => interaction::Kind;
        "InteractionStatus" => interaction::InteractionStatus;
    }
    Value::Object(all)
}

/// The schema of a kind.
pub(super) fn kind(word: &str) -> Value {
    if let Some(word) = word.strip_suffix('?') {
        return json!({ "anyOf": [kind(word), { "type": "null" }] });
    }
    if let Some(word) = word.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
        return json!({ "type": "array", "items": kind(word) });
    }
    match word {
        "text" => json!({ "type": "string" }),
        "int" => json!({ "type": "integer" }),
        "bool" => json!({ "type": "boolean" }),
        "time" => json!({ "type": "string", "format": "date-time" }),
        "object" => json!({ "type": "object" }),
        "any" => json!({}),
        name => reference(name),
    }
}

/// A reference to a shape.
pub(super) fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn shape(fields: &str) -> Value {
    let mut properties = Map::new();
    for field in fields.split_whitespace() {
        let (name, word) = match field.split_once(':') {
            Some((name, word)) => (name, word.to_owned()),
            None => match field.strip_suffix('?') {
                Some(name) => (name, "text?".to_owned()),
                None => (field, "text".to_owned()),
            },
        };
        properties.insert(name.to_owned(), kind(&word));
    }
    let required: Vec<&String> = properties.keys().collect();
    json!({ "type": "object", "required": required, "properties": properties })
}
