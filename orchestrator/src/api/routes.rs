//! Every route, in one table: what the router serves, what the tests walk and what the OpenAPI document
//! describes are the same list, so that no route can be added that nobody asks who may use it, or that
//! nobody describes.
//!
//! A row is `METHOD PATH => HANDLER, asks QUERY, takes TYPE, [CODES] ANSWER`. `asks` names the query's
//! parameters, `takes` the type of the body (or `sends` the field of a form); the answer is a shape of
//! [`super::openapi`] or a media type. A parameter's name says what it is the id of; each is looked up
//! within the caller's company.

use axum::Router;
use axum::routing::{delete, get, patch, post, put};
use serde_json::Value;

use super::openapi::taken;
use super::{
    Shared, absent, agents, approvals, attachments, comments, costs, documents, goals,
    interactions, labels, operators, overview, projects, routines, runs, tickets, work_products,
};
use crate::model::agent::{AgentPatch, NewAgent};
use crate::store::approvals::NewApproval;
use crate::store::costs::NewCost;
use crate::store::documents::NewRevision;
use crate::store::goals::GoalPatch;
use crate::store::interactions::NewInteraction;
use crate::store::labels::NewLabel;
use crate::store::projects::ProjectPatch;
use crate::store::routines::RoutinePatch;
use crate::store::tickets::{NewTicket, Patch};
use crate::store::work_products::ProductPatch;

/// One row of the table.
#[derive(Debug)]
pub(super) struct Route {
    /// In small letters.
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    /// `module::function`.
    pub(super) handler: &'static str,
    /// Parameters of the query.
    pub(super) query: &'static str,
    /// The schema of the body.
    pub(super) body: Option<fn() -> Value>,
    /// The field of the form that is the body.
    pub(super) form: Option<&'static str>,
    /// Statuses of an answer.
    pub(super) codes: &'static [u16],
    /// The answer's shape, or its media type.
    pub(super) reply: &'static str,
}

macro_rules! table {
    ($($method:ident $path:literal => $handler:path $(, asks $query:literal)?
        $(, takes $body:ty)? $(, sends $form:literal)?, [$($code:literal)+] $reply:literal;)+) => {
        /// Method and path of every route, as registered.
        pub const ROUTES: &[(&str, &str)] = &[$((stringify!($method), $path),)+];

        pub(super) const DESCRIBED: &[Route] = &[$(Route {
            method: stringify!($method),
            path: $path,
            handler: stringify!($handler),
            query: table!(@text $($query)?),
            body: table!(@maybe $(taken::schema::<$body>)?),
            form: table!(@maybe $($form)?),
            codes: &[$($code),+],
            reply: $reply,
        },)+];

        pub(super) fn table() -> Router<Shared> {
            Router::new()$(.route($path, $method($handler)))+
        }
    };
    (@text) => { "" };
    (@text $text:literal) => { $text };
    (@maybe) => { None };
    (@maybe $value:expr) => { Some($value) };
}

table! {
    get "/api/health" => super::health, [200] "Health";
    get "/api/openapi.json" => super::openapi, [200] "Document";
    get "/api/anchors" => operators::anchors, asks "limit:int", [200] "[Anchor]";
    get "/api/agents/me" => agents::me, [200] "Agent";
    get "/api/agents/me/inbox-lite" => agents::inbox, [200] "[InboxItem]";
    get "/api/agents/{agent}" => agents::show, [200] "Agent";
    patch "/api/agents/{agent}" => operators::change_agent, takes AgentPatch, [200] "Agent";
    post "/api/agents/{agent}/wakeup" => operators::wake, takes operators::WakeUp, [202] "Woken";
    post "/api/agents/{agent}/heartbeat/invoke" => operators::wake,
        takes operators::WakeUp, [202] "Woken";
    get "/api/companies" => operators::companies, [200] "[Company]";
    post "/api/companies" => operators::create_company,
        takes operators::NewCompany, [201] "Company";
    get "/api/companies/{company}" => operators::company, [200] "Company";
    patch "/api/companies/{company}" => operators::change_company,
        takes operators::CompanyPatch, [200] "Company";
    get "/api/companies/{company}/agents" => agents::list, [200] "[Agent]";
    post "/api/companies/{company}/agents" => operators::create_agent,
        takes NewAgent, [201] "Agent";
    get "/api/companies/{company}/issues" => tickets::list,
        asks "status assigneeAgentId assigneeUserId projectId goalId parentId labelId q limit:int offset:int", [200] "[Issue]";
    post "/api/companies/{company}/issues" => tickets::create,
        takes NewTicket, [200 201] "IssueWhole";
    get "/api/companies/{company}/activity" => operators::activity,
        asks "limit:int", [200] "[Activity]";
    get "/api/companies/{company}/heartbeat-runs" => runs::of_company,
        asks "issueId live:bool limit:int", [200] "[Run]";
    get "/api/companies/{company}/projects" => projects::list, [200] "[Project]";
    post "/api/companies/{company}/projects" => projects::create,
        takes ProjectPatch, [201] "Project";
    get "/api/projects/{project}" => projects::show, [200] "Project";
    patch "/api/projects/{project}" => projects::change, takes ProjectPatch, [200] "Project";
    get "/api/companies/{company}/goals" => goals::list, [200] "[Goal]";
    post "/api/companies/{company}/goals" => goals::create, takes GoalPatch, [201] "Goal";
    get "/api/goals/{goal}" => goals::show, [200] "Goal";
    patch "/api/goals/{goal}" => goals::change, takes GoalPatch, [200] "Goal";
    get "/api/companies/{company}/labels" => labels::list, [200] "[Label]";
    post "/api/companies/{company}/labels" => labels::create, takes NewLabel, [201] "Label";
    delete "/api/labels/{label}" => labels::remove, [200] "Label";
    get "/api/companies/{company}/routines" => routines::list, [200] "[Routine]";
    post "/api/companies/{company}/routines" => routines::create, takes RoutinePatch, [201] "Routine";
    get "/api/routines/{routine}" => routines::show, [200] "Routine";
    patch "/api/routines/{routine}" => routines::change, takes RoutinePatch, [200] "Routine";
    get "/api/routines/{routine}/runs" => routines::slots, [200] "[RoutineSlot]";
    post "/api/routines/{routine}/run" => routines::run, [202] "RoutineSlot";
    put "/api/routines/{routine}/webhook" => routines::open_hook, takes routines::Open, [200] "Webhook";
    delete "/api/routines/{routine}/webhook" => routines::shut_hook, [200] "Done";
    get "/api/companies/{company}/approvals" => approvals::list, asks "status", [200] "[Approval]";
    post "/api/companies/{company}/approvals" => approvals::create,
        takes NewApproval, [201] "Approval";
    post "/api/companies/{company}/agent-hires" => approvals::hire, takes Value, [201] "Hire";
    get "/api/approvals/{approval}" => approvals::show, [200] "Approval";
    get "/api/approvals/{approval}/issues" => approvals::issues, [200] "[Issue]";
    get "/api/approvals/{approval}/comments" => approvals::comments, [200] "[Remark]";
    post "/api/approvals/{approval}/comments" => approvals::comment,
        takes approvals::Said, [201] "Remark";
    post "/api/approvals/{approval}/approve" => approvals::approve,
        takes approvals::Said, [200] "Approval";
    post "/api/approvals/{approval}/reject" => approvals::reject,
        takes approvals::Said, [200] "Approval";
    post "/api/approvals/{approval}/request-revision" => approvals::revise,
        takes approvals::Said, [200] "Approval";
    post "/api/approvals/{approval}/resubmit" => approvals::resubmit,
        takes approvals::Said, [200] "Approval";
    post "/api/companies/{company}/cost-events" => costs::record, takes NewCost, [201] "Cost";
    get "/api/companies/{company}/costs/summary" => costs::summary,
        asks "from:time to:time", [200] "CostSum";
    get "/api/companies/{company}/costs/by-agent" => costs::by_agent,
        asks "from:time to:time", [200] "[CostOf]";
    get "/api/companies/{company}/costs/by-project" => costs::by_project,
        asks "from:time to:time", [200] "[CostOf]";
    get "/api/companies/{company}/dashboard" => overview::dashboard, [200] "Dashboard";
    get "/api/companies/{company}/org" => overview::org, [200] "[OrgNode]";
    get "/api/agents/me/secrets" => absent::own_nothing, [200] "[any]";
    post "/api/agents/{agent}/keys" => absent::never_of_agent, [403] "Error";
    post "/api/agents/{agent}/skills/sync" => absent::never_of_agent, [403] "Error";
    get "/api/companies/{company}/secrets" => absent::nothing, [200] "[any]";
    post "/api/companies/{company}/secrets" => absent::never, [403] "Error";
    get "/api/companies/{company}/secret-proposals" => absent::nothing, [200] "[any]";
    post "/api/companies/{company}/secret-proposals" => absent::never, [403] "Error";
    get "/api/companies/{company}/decisions" => absent::nothing, [200] "[any]";
    post "/api/companies/{company}/decisions" => absent::never, [403] "Error";
    get "/api/companies/{company}/cases" => absent::nothing, [200] "[any]";
    post "/api/companies/{company}/cases" => absent::never, [403] "Error";
    get "/api/companies/{company}/skills" => absent::nothing, [200] "[any]";
    post "/api/companies/{company}/skills" => absent::never, [403] "Error";
    get "/api/companies/{company}/execution-workspaces" => absent::nothing, [200] "[any]";
    post "/api/companies/{company}/execution-workspaces" => absent::never, [403] "Error";
    get "/api/companies/{company}/project-tools" => absent::nothing, [200] "[any]";
    post "/api/companies/{company}/project-tools" => absent::never, [403] "Error";
    post "/api/companies/{company}/imports" => absent::never, [403] "Error";
    post "/api/companies/{company}/exports" => absent::never, [403] "Error";
    get "/api/heartbeat-runs" => runs::list, asks "issueId live:bool limit:int", [200] "[Run]";
    get "/api/heartbeat-runs/{run}" => runs::show, [200] "Run";
    get "/api/heartbeat-runs/{run}/log" => runs::log,
        asks "offset:int", [200] "application/x-ndjson";
    post "/api/heartbeat-runs/{run}/cancel" => runs::cancel, [200] "Run";
    get "/api/issues/{issue}" => tickets::show, [200] "IssueWhole";
    patch "/api/issues/{issue}" => tickets::update, takes Patch, [200] "IssueChanged";
    get "/api/issues/{issue}/heartbeat-context" => tickets::context,
        asks "wakeCommentId", [200] "IssueContext";
    post "/api/issues/{issue}/checkout" => tickets::checkout,
        takes tickets::Checkout, [200] "Issue";
    post "/api/issues/{issue}/release" => tickets::release, [200] "Issue";
    get "/api/issues/{issue}/comments" => comments::list,
        asks "after afterCommentId order limit:int", [200] "[Comment]";
    post "/api/issues/{issue}/comments" => comments::post, takes comments::Written, [201] "Comment";
    get "/api/issues/{issue}/comments/{comment}" => comments::show, [200] "Comment";
    get "/api/issues/{issue}/documents" => documents::list, [200] "[IssueDocument]";
    get "/api/issues/{issue}/documents/{key}" => documents::show, [200] "IssueDocument";
    put "/api/issues/{issue}/documents/{key}" => documents::put,
        takes NewRevision, [200 201] "IssueDocument";
    get "/api/issues/{issue}/documents/{key}/revisions" => documents::revisions, [200] "[Revision]";
    get "/api/issues/{issue}/interactions" => interactions::list, [200] "[Interaction]";
    post "/api/issues/{issue}/interactions" => interactions::create,
        takes NewInteraction, [200 201] "Interaction";
    get "/api/issues/{issue}/interactions/{interaction}" => interactions::show, [200] "Interaction";
    post "/api/issues/{issue}/interactions/{interaction}/accept" => interactions::accept,
        takes Value, [200] "Interaction";
    post "/api/issues/{issue}/interactions/{interaction}/reject" => interactions::reject,
        takes Value, [200] "Interaction";
    post "/api/issues/{issue}/interactions/{interaction}/respond" => interactions::respond,
        takes Value, [200] "Interaction";
    post "/api/issues/{issue}/interactions/{interaction}/verdicts" => interactions::verdicts,
        takes Value, [200] "Interaction";
    post "/api/issues/{issue}/interactions/{interaction}/withdraw" => interactions::withdraw,
        takes Value, [200] "Interaction";
    get "/api/issues/{issue}/attachments" => attachments::list, [200] "[Attachment]";
    post "/api/companies/{company}/issues/{issue}/attachments" => attachments::create,
        sends "file", [201] "Attachment";
    get "/api/attachments/{attachment}" => attachments::show, [200] "Attachment";
    get "/api/attachments/{attachment}/content" => attachments::content,
        [200] "application/octet-stream";
    delete "/api/attachments/{attachment}" => attachments::remove, [200] "Attachment";
    get "/api/issues/{issue}/work-products" => work_products::list, [200] "[WorkProduct]";
    post "/api/issues/{issue}/work-products" => work_products::create,
        takes ProductPatch, [201] "WorkProduct";
    patch "/api/work-products/{product}" => work_products::change,
        takes ProductPatch, [200] "WorkProduct";
    get "/api/issues/{issue}/timeline" => operators::timeline, [200] "Timeline";
    get "/api/issues/{issue}/why" => operators::why, [200] "Why";
}
