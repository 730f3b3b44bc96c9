//! Every route, in one table: what the router serves and what the tests walk are the same list, so
//! that no route can be added that nobody asks who may use it.
//!
//! A parameter's name says what it is the id of; each is looked up within the caller's company.

use axum::Router;
use axum::routing::{delete, get, patch, post, put};

use super::{
    Shared, absent, agents, approvals, attachments, comments, costs, documents, goals,
    interactions, labels, operators, overview, projects, routines, runs, tickets, work_products,
};

macro_rules! table {
    ($($method:ident $path:literal => $handler:path;)+) => {
        /// Method and path of every route, as registered.
        pub const ROUTES: &[(&str, &str)] = &[$((stringify!($method), $path),)+];

        pub(super) fn table() -> Router<Shared> {
            Router::new()$(.route($path, $method($handler)))+
        }
    };
}

table! {
    get "/api/health" => super::health;
    get "/api/anchors" => operators::anchors;
    get "/api/agents/me" => agents::me;
    get "/api/agents/me/inbox-lite" => agents::inbox;
    get "/api/agents/{agent}" => agents::show;
    patch "/api/agents/{agent}" => operators::change_agent;
    post "/api/agents/{agent}/wakeup" => operators::wake;
    post "/api/agents/{agent}/heartbeat/invoke" => operators::wake;
    get "/api/companies" => operators::companies;
    post "/api/companies" => operators::create_company;
    get "/api/companies/{company}" => operators::company;
    patch "/api/companies/{company}" => operators::change_company;
    get "/api/companies/{company}/agents" => agents::list;
    post "/api/companies/{company}/agents" => operators::create_agent;
    get "/api/companies/{company}/issues" => tickets::list;
    post "/api/companies/{company}/issues" => tickets::create;
    get "/api/companies/{company}/activity" => operators::activity;
    get "/api/companies/{company}/heartbeat-runs" => runs::of_company;
    get "/api/companies/{company}/projects" => projects::list;
    post "/api/companies/{company}/projects" => projects::create;
    get "/api/projects/{project}" => projects::show;
    patch "/api/projects/{project}" => projects::change;
    get "/api/companies/{company}/goals" => goals::list;
    post "/api/companies/{company}/goals" => goals::create;
    get "/api/goals/{goal}" => goals::show;
    patch "/api/goals/{goal}" => goals::change;
    get "/api/companies/{company}/labels" => labels::list;
    post "/api/companies/{company}/labels" => labels::create;
    delete "/api/labels/{label}" => labels::remove;
    get "/api/companies/{company}/routines" => routines::list;
    post "/api/companies/{company}/routines" => routines::create;
    get "/api/routines/{routine}" => routines::show;
    patch "/api/routines/{routine}" => routines::change;
    get "/api/routines/{routine}/runs" => routines::slots;
    post "/api/routines/{routine}/run" => routines::run;
    put "/api/routines/{routine}/webhook" => routines::open_hook;
    delete "/api/routines/{routine}/webhook" => routines::shut_hook;
    get "/api/companies/{company}/approvals" => approvals::list;
    post "/api/companies/{company}/approvals" => approvals::create;
    post "/api/companies/{company}/agent-hires" => approvals::hire;
    get "/api/approvals/{approval}" => approvals::show;
    get "/api/approvals/{approval}/issues" => approvals::issues;
    get "/api/approvals/{approval}/comments" => approvals::comments;
    post "/api/approvals/{approval}/comments" => approvals::comment;
    post "/api/approvals/{approval}/approve" => approvals::approve;
    post "/api/approvals/{approval}/reject" => approvals::reject;
    post "/api/approvals/{approval}/request-revision" => approvals::revise;
    post "/api/approvals/{approval}/resubmit" => approvals::resubmit;
    post "/api/companies/{company}/cost-events" => costs::record;
    get "/api/companies/{company}/costs/summary" => costs::summary;
    get "/api/companies/{company}/costs/by-agent" => costs::by_agent;
    get "/api/companies/{company}/costs/by-project" => costs::by_project;
    get "/api/companies/{company}/dashboard" => overview::dashboard;
    get "/api/companies/{company}/org" => overview::org;
    get "/api/agents/me/secrets" => absent::own_nothing;
    post "/api/agents/{agent}/keys" => absent::never_of_agent;
    post "/api/agents/{agent}/skills/sync" => absent::never_of_agent;
    get "/api/companies/{company}/secrets" => absent::nothing;
    post "/api/companies/{company}/secrets" => absent::never;
    get "/api/companies/{company}/secret-proposals" => absent::nothing;
    post "/api/companies/{company}/secret-proposals" => absent::never;
    get "/api/companies/{company}/decisions" => absent::nothing;
    post "/api/companies/{company}/decisions" => absent::never;
    get "/api/companies/{company}/cases" => absent::nothing;
    post "/api/companies/{company}/cases" => absent::never;
    get "/api/companies/{company}/skills" => absent::nothing;
    post "/api/companies/{company}/skills" => absent::never;
    get "/api/companies/{company}/execution-workspaces" => absent::nothing;
    post "/api/companies/{company}/execution-workspaces" => absent::never;
    get "/api/companies/{company}/project-tools" => absent::nothing;
    post "/api/companies/{company}/project-tools" => absent::never;
    post "/api/companies/{company}/imports" => absent::never;
    post "/api/companies/{company}/exports" => absent::never;
    get "/api/heartbeat-runs" => runs::list;
    get "/api/heartbeat-runs/{run}" => runs::show;
    get "/api/heartbeat-runs/{run}/log" => runs::log;
    post "/api/heartbeat-runs/{run}/cancel" => runs::cancel;
    get "/api/issues/{issue}" => tickets::show;
    patch "/api/issues/{issue}" => tickets::update;
    get "/api/issues/{issue}/heartbeat-context" => tickets::context;
    post "/api/issues/{issue}/checkout" => tickets::checkout;
    post "/api/issues/{issue}/release" => tickets::release;
    get "/api/issues/{issue}/comments" => comments::list;
    post "/api/issues/{issue}/comments" => comments::post;
    get "/api/issues/{issue}/comments/{comment}" => comments::show;
    get "/api/issues/{issue}/documents" => documents::list;
    get "/api/issues/{issue}/documents/{key}" => documents::show;
    put "/api/issues/{issue}/documents/{key}" => documents::put;
    get "/api/issues/{issue}/documents/{key}/revisions" => documents::revisions;
    get "/api/issues/{issue}/interactions" => interactions::list;
    post "/api/issues/{issue}/interactions" => interactions::create;
    get "/api/issues/{issue}/interactions/{interaction}" => interactions::show;
    post "/api/issues/{issue}/interactions/{interaction}/accept" => interactions::accept;
    post "/api/issues/{issue}/interactions/{interaction}/reject" => interactions::reject;
    post "/api/issues/{issue}/interactions/{interaction}/respond" => interactions::respond;
    post "/api/issues/{issue}/interactions/{interaction}/verdicts" => interactions::verdicts;
    post "/api/issues/{issue}/interactions/{interaction}/withdraw" => interactions::withdraw;
    get "/api/issues/{issue}/attachments" => attachments::list;
    post "/api/companies/{company}/issues/{issue}/attachments" => attachments::create;
    get "/api/attachments/{attachment}" => attachments::show;
    get "/api/attachments/{attachment}/content" => attachments::content;
    delete "/api/attachments/{attachment}" => attachments::remove;
    get "/api/issues/{issue}/work-products" => work_products::list;
    post "/api/issues/{issue}/work-products" => work_products::create;
    patch "/api/work-products/{product}" => work_products::change;
    get "/api/issues/{issue}/timeline" => operators::timeline;
    get "/api/issues/{issue}/why" => operators::why;
}
