//! As much of GitHub's REST and GraphQL API as `gh` needs for `api`, `pr`, `repo clone` and
//! `release upload`.
//!
//! One repository, `acme/web`, with one open pull request and one release, `v1`. Whoever has the
//! token is `octocat`; nobody else is let in.

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
    let body = server::collect(request.into_body()).await;
    let get = method == Method::GET;
    match path.as_str() {
        "/user" if get => server::json(StatusCode::OK, &json!({"login": "octocat", "id": 1})),
        "/repos/acme/web" if get => server::json(StatusCode::OK, &repository()),
        "/repos/acme/web/releases/tags/v1" if get => server::json(StatusCode::OK, &release()),
        "/repos/acme/web/releases/1/assets" if method == Method::POST => {
            let asset = json!({
                "id": 1, "name": "asset", "size": body.len(), "state": "uploaded",
                "url": "https://api.github.com/repos/acme/web/releases/assets/1",
            });
            server::json(StatusCode::CREATED, &asset)
        }
        "/graphql" if method == Method::POST => {
            let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
            graphql(asked["query"].as_str().unwrap_or_default())
        }
        _ => server::json(StatusCode::NOT_FOUND, &json!({"message": "Not Found"})),
    }
}

/// What the query asks for, of everything there is.
fn graphql(query: &str) -> Response<Body> {
    let data = json!({
        "viewer": {"login": "octocat", "id": "U_1", "organizations": {"nodes": []}},
        "repository": repository(),
        "createPullRequest": {"pullRequest": pull_request()},
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
        "refs": {"nodes": []}, "issueTemplates": [], "pullRequestTemplates": [],
    })
}

fn pull_request() -> Value {
    json!({
        "id": "PR_7", "number": 7, "title": "Mend the fence", "state": "OPEN", "body": "As asked",
        "url": "https://github.com/acme/web/pull/7", "headRefName": "agent/fence",
        "baseRefName": "main", "isDraft": false, "isCrossRepository": false,
        "createdAt": "2026-01-01T00:00:00Z", "updatedAt": "2026-01-01T00:00:00Z",
        "author": {"login": "octocat"}, "headRepositoryOwner": {"login": "acme", "id": "O_1"},
        "headRepository": {"id": "R_1", "name": "web"},
    })
}

fn release() -> Value {
    json!({
        "id": 1, "tag_name": "v1", "name": "v1", "draft": false, "prerelease": false, "assets": [],
        "url": "https://api.github.com/repos/acme/web/releases/1",
        "upload_url": "https://uploads.github.com/repos/acme/web/releases/1/assets{?name,label}",
    })
}
