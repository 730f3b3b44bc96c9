//! As much of GitHub's REST and GraphQL API as `gh` needs for its everyday verbs, and for those that a
//! policy has to shut.
//!
//! One repository, `acme/web`, with one open issue, one open pull request, one release, `v1`, and one
//! run of a workflow. Whoever has the token is `octocat`; nobody else is let in. Nothing is kept.

use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::graphql;
use super::server::{self, Body};

/// Answers one request; 401 unless it carries `token`.
pub async fn answer(token: String, request: Request<Incoming>) -> Response<Body> {
    let sent = request
        .headers()
        .get("authorization")
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    if !sent.ends_with(&token) {
        let error = json!({"message": "Bad credentials"});
        return server::json(StatusCode::UNAUTHORIZED, &error);
    }
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let accept = request.headers().get("accept");
    let diff = accept.is_some_and(|kind| kind.as_bytes().ends_with(b".diff"));
    let body = server::collect(request.into_body()).await;
    if method == Method::POST && path == "/graphql" {
        let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
        return graphql(asked["query"].as_str().unwrap_or_default());
    }
    if diff && path == "/repos/acme/web/pulls/7" {
        return server::text(StatusCode::OK, DIFF);
    }
    match rest(&method, &path, body.len()) {
        Some((status, Value::Null)) => server::text(status, ""),
        Some((status, answer)) => server::json(status, &answer),
        None => server::json(StatusCode::NOT_FOUND, &json!({"message": "Not Found"})),
    }
}

/// What the pull request changes.
const DIFF: &str =
    "diff --git a/fence b/fence\n--- a/fence\n+++ b/fence\n@@ -1 +1 @@\n-open\n+shut\n";

/// Status and answer of the REST API; nothing where there is nothing.
fn rest(method: &Method, path: &str, length: usize) -> Option<(StatusCode, Value)> {
    let (ok, created, done) = (StatusCode::OK, StatusCode::CREATED, StatusCode::NO_CONTENT);
    let path = match path.strip_prefix("/repos/acme/web") {
        None if path == "/user" && method == Method::GET => {
            return Some((ok, json!({"login": "octocat", "id": 1})));
        }
        path => path?,
    };
    Some(match (method.as_str(), path) {
        ("GET" | "PATCH", "") => (ok, repository()),
        ("DELETE", "") => (done, Value::Null),
        ("GET", "/readme") => {
            let text = "VGhlIHdlYiBvZiBhY21lCg==";
            (
                ok,
                json!({"name": "README.md", "content": text, "html_url": "https://github.com/acme/web"}),
            )
        }
        ("GET", "/releases/tags/v1") => (ok, release()),
        ("POST", "/releases") => (created, release()),
        ("GET", "/pulls/7") => (ok, json!({"number": 7, "state": "open"})),
        ("GET", "/actions/runs") => (ok, json!({"total_count": 1, "workflow_runs": [run()]})),
        ("GET", "/actions/workflows") => (ok, json!({"total_count": 1, "workflows": [workflow()]})),
        ("GET", "/actions/workflows/5" | "/actions/workflows/build.yml") => (ok, workflow()),
        ("POST", "/actions/workflows/5/dispatches") => (done, Value::Null),
        // Any key will do: what is sealed with it is thrown away.
        ("GET", "/actions/secrets/public-key") => (
            ok,
            json!({"key_id": "1", "key": "hBT5WZEj8ZoOv6TYJsfWq7MxTEQopZO5/IT3ZCVQPzs="}),
        ),
        ("PUT", "/actions/secrets/TOKEN") => (created, json!({})),
        ("PUT", path) if path.starts_with("/contents/") => (created, json!({"content": {}})),
        ("POST", "/releases/1/assets") => (
            created,
            json!({
                "id": 1, "name": "asset", "size": length, "state": "uploaded",
                "url": "https://api.github.com/repos/acme/web/releases/assets/1",
            }),
        ),
        _ => return None,
    })
}

/// What the query asks for, of everything there is.
fn graphql(query: &str) -> Response<Body> {
    let data = json!({
        "viewer": {"login": "octocat", "id": "U_1", "organizations": {"nodes": []}},
        "repository": repository(), "node": pull_request(),
        "createPullRequest": {"pullRequest": pull_request()},
        "createIssue": {"issue": issue()},
        "addComment": {"commentEdge": {"node": {"url": "https://github.com/acme/web/issues/3#comment"}}},
        "addPullRequestReview": {"clientMutationId": "1"},
        "mergePullRequest": {"clientMutationId": "1"},
        "closeIssue": {"issue": issue()},
        "search": {"issueCount": 0, "nodes": []},
    });
    let data = graphql::select(query, &data);
    server::json(StatusCode::OK, &json!({"data": data}))
}

fn repository() -> Value {
    json!({
        "id": "R_1", "name": "web", "full_name": "acme/web", "nameWithOwner": "acme/web",
        "owner": {"login": "acme", "id": "O_1"}, "description": "The web", "isPrivate": false,
        "url": "https://github.com/acme/web", "html_url": "https://github.com/acme/web",
        "clone_url": "https://github.com/acme/web.git", "default_branch": "main",
        "defaultBranchRef": {"name": "main", "target": {"oid": "0".repeat(40)}},
        "viewerPermission": "WRITE", "hasIssuesEnabled": true, "hasWikiEnabled": false,
        "mergeCommitAllowed": true, "rebaseMergeAllowed": true, "squashMergeAllowed": true,
        "parent": null, "isEmpty": false, "isFork": false,
        "pullRequests": {
            "nodes": [pull_request()], "totalCount": 1,
            "pageInfo": {"hasNextPage": false, "endCursor": null},
        },
        "issues": {
            "nodes": [issue()], "totalCount": 1,
            "pageInfo": {"hasNextPage": false, "endCursor": null},
        },
        "issue": issue(), "issueOrPullRequest": issue(), "pullRequest": pull_request(),
        "releases": {
            "nodes": [{
                "name": "v1", "tagName": "v1", "isDraft": false, "isLatest": true,
                "isPrerelease": false, "createdAt": NOW, "publishedAt": NOW,
            }],
            "pageInfo": {"hasNextPage": false, "endCursor": null},
        },
        "refs": {"nodes": []}, "issueTemplates": [], "pullRequestTemplates": [],
    })
}

/// A moment.
const NOW: &str = "2026-01-01T00:00:00Z";

/// A list with nothing in it.
fn nothing() -> Value {
    json!({"nodes": [], "totalCount": 0, "pageInfo": {"hasNextPage": false, "endCursor": null}})
}

fn issue() -> Value {
    json!({
        "__typename": "Issue", "id": "I_3", "number": 3, "title": "The fence is open", "state": "OPEN",
        "body": "Since Monday", "url": "https://github.com/acme/web/issues/3", "createdAt": NOW,
        "updatedAt": NOW, "author": {"login": "octocat"}, "labels": nothing(), "assignees": nothing(),
        "comments": nothing(), "projectCards": nothing(), "reactionGroups": [],
    })
}

fn workflow() -> Value {
    json!({"id": 5, "name": "build", "path": ".github/workflows/build.yml", "state": "active"})
}

fn run() -> Value {
    json!({
        "id": 9, "name": "build", "status": "completed", "conclusion": "success", "event": "push",
        "head_branch": "agent/fence", "head_sha": "0".repeat(40), "display_title": "Mend the fence",
        "workflow_id": 5, "run_number": 1, "run_attempt": 1, "created_at": NOW, "updated_at": NOW,
        "run_started_at": NOW, "url": "https://api.github.com/repos/acme/web/actions/runs/9",
    })
}

fn pull_request() -> Value {
    let check = json!({
        "__typename": "CheckRun", "name": "build", "status": "COMPLETED", "conclusion": "SUCCESS",
        "startedAt": NOW, "completedAt": NOW, "detailsUrl": "https://github.com/acme/web/actions/runs/9",
    });
    let checks = json!({
        "nodes": [check], "pageInfo": {"hasNextPage": false, "endCursor": null},
    });
    let commit = json!({"oid": "0".repeat(40), "statusCheckRollup": {"contexts": checks}});
    json!({
        "__typename": "PullRequest", "mergeable": "MERGEABLE", "mergeStateStatus": "CLEAN",
        "commits": {"totalCount": 1, "nodes": [{"commit": commit}]}, "statusCheckRollup": {"nodes": [{"commit": commit}]},
        "additions": 1, "deletions": 1, "maintainerCanModify": false, "labels": nothing(),
        "assignees": nothing(), "comments": nothing(), "reviews": nothing(),
        "reviewRequests": nothing(), "latestReviews": nothing(), "projectCards": nothing(),
        "reactionGroups": [], "files": nothing(),
        "id": "PR_7", "number": 7, "title": "Mend the fence", "state": "OPEN", "body": "As asked",
        "url": "https://github.com/acme/web/pull/7", "headRefName": "agent/fence",
        "baseRefName": "main", "isDraft": false, "isCrossRepository": false,
        "createdAt": NOW, "updatedAt": NOW,
        "author": {"login": "octocat"}, "headRepositoryOwner": {"login": "acme", "id": "O_1"},
        "headRepository": {"id": "R_1", "name": "web"},
    })
}

fn release() -> Value {
    json!({
        "id": 1, "tag_name": "v1", "name": "v1", "draft": false, "prerelease": false, "assets": [],
        "url": "https://api.github.com/repos/acme/web/releases/1",
        "body": "The first", "html_url": "https://github.com/acme/web/releases/v1",
        "author": {"login": "octocat"}, "created_at": NOW, "published_at": NOW,
        "upload_url": "https://uploads.github.com/repos/acme/web/releases/1/assets{?name,label}",
    })
}
