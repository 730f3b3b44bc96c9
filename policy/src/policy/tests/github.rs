//! What kind `github` opens beside fetching: refs one by one, the API by presets, GraphQL by its
//! operations.

use std::sync::Arc;

use super::*;
use crate::request::{Body, Content, Operation, OperationKind, Reading, RefUpdate};

const PUSH: &str = "https://github.com/acme/web.git/git-receive-pack";

fn service(keys: &str) -> Policy {
    policy(&format!(
        "[[service]]\nid = \"gh\"\nkind = \"github\"\nrepos = [\"acme/web\"]\ncredential = \"github\"\n{keys}\n"
    ))
}

fn update(op: &str, name: &str) -> RefUpdate {
    crate::trial::ref_update(&format!("{op} {name}")).unwrap()
}

fn push(policy: &Policy, commands: &[(&str, &str)]) -> Outcome {
    let updates = commands.iter().map(|(op, name)| update(op, name));
    ask_with(policy, "POST", PUSH, &Facts::Push(updates.collect()))
}

#[test]
fn creating_moving_and_deleting_are_permitted_apart() {
    let policy = service(
        "git = \"push\"\nrefs = [\"refs/heads/agent/*\"]\ncreate_refs = [\"refs/heads/new/*\"]\n\
         update_refs = [\"refs/heads/shared\"]\ndelete_refs = [\"refs/heads/agent/*\"]\ntags = [\"agent-*\"]",
    );
    let (no_ref, no_delete) = (Some(Code::RefNotAllowed), Some(Code::DeleteNotAllowed));
    let cases = [
        ("create", "refs/heads/agent/x", None),
        ("update", "refs/heads/agent/x", None),
        ("delete", "refs/heads/agent/x", None),
        ("create", "refs/heads/new/x", None),
        ("update", "refs/heads/new/x", no_ref),
        ("delete", "refs/heads/new/x", no_delete),
        ("create", "refs/heads/shared", no_ref),
        ("update", "refs/heads/shared", None),
        ("delete", "refs/heads/shared", no_delete),
        ("create", "refs/tags/agent-1", None),
        ("update", "refs/tags/agent-1", no_ref),
        ("delete", "refs/tags/agent-1", no_delete),
        ("create", "refs/tags/v1", no_ref),
        ("create", "refs/heads/main", no_ref),
        ("update", "refs/heads/main", no_ref),
        ("delete", "refs/heads/main", no_delete),
    ];
    let expanded = super::policy(&policy.expanded());
    for (op, name, expected) in cases {
        let outcome = push(&policy, &[(op, name)]);
        assert_eq!(outcome.code(), expected, "{op} {name}");
        assert_eq!(
            push(&expanded, &[(op, name)]).bare(),
            outcome.bare(),
            "{op} {name}"
        );
        // One that is refused takes the others with it.
        let with = push(&policy, &[("create", "refs/heads/agent/y"), (op, name)]);
        assert_eq!(with.code(), expected, "{op} {name}");
    }
}

#[test]
fn a_refusal_names_each_ref_that_is_not_permitted() {
    let policy = service("git = \"push\"\nrefs = [\"refs/heads/agent/*\"]");
    let authority = Authority::parse("github.com:443").unwrap();
    let Routing::Route(route) = policy.route(Scheme::Https, &authority) else {
        panic!("listed")
    };
    let request = Request {
        scheme: Scheme::Https,
        authority: &authority,
        method: "POST",
        target: "/acme/web.git/git-receive-pack",
    };
    let commands = [
        ("create", "refs/heads/agent/x"),
        ("update", "refs/heads/main"),
        ("delete", "refs/heads/agent/x"),
    ];
    let facts = Facts::Push(commands.iter().map(|(op, name)| update(op, name)).collect());
    let Decision::Refuse(refusal) = policy.decide(&route, &request, &facts) else {
        panic!("refused")
    };
    let refused = [
        (String::from("refs/heads/main"), Code::RefNotAllowed),
        (String::from("refs/heads/agent/x"), Code::DeleteNotAllowed),
    ];
    assert_eq!(refusal.refs, refused);
    assert_eq!(refusal.code, Code::RefNotAllowed);
}

#[test]
fn presets_open_the_api_of_the_listed_repositories_and_no_more() {
    let [none, read, contribute, maintain] = ["none", "read", "contribute", "maintain"]
        .map(|access| service(&format!("api = \"{access}\"")));
    // The least preset that opens it: 1 to 3, or none at all.
    let cases: &[(&str, &str, usize)] = &[
        ("GET", "/repos/acme/web", 1),
        ("GET", "/Repos/ACME/web/issues?state=all", 1),
        ("GET", "/repos/acme/web/pulls/7/files", 1),
        ("GET", "/repos/acme/web/contents/src/main.rs", 1),
        ("HEAD", "/repos/acme/web/actions/runs/1/logs", 1),
        ("GET", "/user", 1),
        ("GET", "/", 1),
        ("POST", "/repos/acme/web/issues", 2),
        ("PATCH", "/repos/acme/web/issues/7", 2),
        ("POST", "/repos/acme/web/issues/7/comments", 2),
        ("POST", "/repos/acme/web/pulls", 2),
        ("POST", "/repos/acme/web/pulls/7/reviews", 2),
        ("POST", "/repos/acme/web/pulls/7/comments/1/replies", 2),
        ("DELETE", "/repos/acme/web/issues/7/labels/bug", 2),
        ("PUT", "/repos/acme/web/pulls/7/merge", 3),
        ("PUT", "/repos/acme/web/issues/7/lock", 3),
        ("POST", "/repos/acme/web/statuses/abc", 3),
        ("PATCH", "/repos/acme/web", 9),
        ("DELETE", "/repos/acme/web", 9),
        ("GET", "/repos/acme/web/hooks", 9),
        ("POST", "/repos/acme/web/hooks", 9),
        ("GET", "/repos/acme/web/keys", 9),
        ("GET", "/repos/acme/web/actions/secrets", 9),
        ("PUT", "/repos/acme/web/actions/secrets/X", 9),
        ("GET", "/repos/acme/web/secret-scanning/alerts", 9),
        ("PUT", "/repos/acme/web/contents/.github/workflows/x.yml", 9),
        ("PUT", "/repos/acme/web/collaborators/evil", 9),
        ("POST", "/repos/acme/web/git/refs", 9),
        ("PATCH", "/repos/acme/web/git/refs/heads/main", 9),
        ("POST", "/repos/acme/web/merges", 9),
        ("POST", "/repos/acme/web/forks", 9),
        ("POST", "/repos/acme/web/actions/workflows/1/dispatches", 9),
        ("POST", "/repos/acme/web/releases", 9),
        ("PUT", "/repos/acme/web/branches/main/protection", 9),
        ("GET", "/repos/acme/other", 9),
        ("GET", "/repos/evil/web/issues", 9),
        ("POST", "/repos/acme/webs/issues", 9),
        ("GET", "/repositories/1", 9),
        ("GET", "/search/issues?q=x", 9),
        ("GET", "/user/repos", 9),
        ("GET", "/installation/repositories", 9),
        ("GET", "/gists", 9),
        ("POST", "/user/keys", 9),
    ];
    for (access, policy) in [&none, &read, &contribute, &maintain]
        .into_iter()
        .enumerate()
    {
        let expanded = super::policy(&policy.expanded());
        for (method, target, least) in cases {
            let url = format!("https://api.github.com{target}");
            let outcome = ask(policy, method, &url);
            assert_eq!(
                outcome.permits(),
                access >= *least,
                "{access}: {method} {target}"
            );
            assert_eq!(
                ask(&expanded, method, &url).bare(),
                outcome.bare(),
                "{method} {target}"
            );
        }
        let Outcome::Permit { .. } = ask(
            policy,
            "POST",
            "https://github.com/acme/web/git-upload-pack",
        ) else {
            panic!("fetching stays")
        };
    }
    let own = policy(
        "[[service]]\nkind = \"github\"\nhost = \"ghe.example.com\"\nrepos = [\"acme/web\"]\napi = \"contribute\"\nalso = [\"releases\"]\n",
    );
    for (method, target, permitted) in [
        ("POST", "/api/v3/repos/acme/web/issues", true),
        (
            "GET",
            "/acme/web.git/info/refs?service=git-upload-pack",
            true,
        ),
        (
            "POST",
            "/api/uploads/repos/acme/web/releases/1/assets?name=x",
            true,
        ),
        ("POST", "/repos/acme/web/issues", false),
        ("PUT", "/api/v3/repos/acme/web/pulls/7/merge", false),
    ] {
        let url = format!("https://ghe.example.com{target}");
        assert_eq!(
            ask(&own, method, &url).permits(),
            permitted,
            "{method} {target}"
        );
    }
}

#[test]
fn words_open_what_they_say() {
    let cases = [
        (
            "releases",
            "POST",
            "https://api.github.com/repos/acme/web/releases",
        ),
        (
            "releases",
            "POST",
            "https://uploads.github.com/repos/acme/web/releases/1/assets?name=x",
        ),
        (
            "actions",
            "POST",
            "https://api.github.com/repos/acme/web/actions/runs/1/rerun",
        ),
        ("gists", "POST", "https://api.github.com/gists"),
        (
            "packages",
            "GET",
            "https://api.github.com/orgs/acme/packages/container/web/versions",
        ),
        (
            "lfs",
            "GET",
            "https://github.com/acme/web.git/info/lfs/locks",
        ),
    ];
    let push = "git = \"push\"\nrefs = [\"refs/heads/agent/*\"]\napi = \"contribute\"\n";
    let plain = service(push);
    for (word, method, url) in cases {
        assert!(
            !ask(&plain, method, url).permits(),
            "{word}: {method} {url}"
        );
        let with = service(&format!("{push}also = [\"{word}\"]"));
        assert!(ask(&with, method, url).permits(), "{word}: {method} {url}");
    }
    // Who only fetches asks for large files, and sends none.
    let fetch = service("also = [\"lfs\"]");
    let batch = "https://github.com/acme/web.git/info/lfs/objects/batch";
    for (operation, permitted) in [("download", true), ("upload", false)] {
        let json = serde_json::json!({ "operation": operation });
        let body = Body {
            bytes: Some(1),
            json: Reading::Read(json),
            ..Body::beyond()
        };
        let facts = Facts::Content(Arc::new(Content {
            body: Some(body),
            ..Content::default()
        }));
        assert_eq!(
            ask_with(&fetch, "POST", batch, &facts).permits(),
            permitted,
            "{operation}"
        );
    }
    assert_eq!(ask(&fetch, "POST", batch), Outcome::Inspect);
}

#[test]
fn operations_of_graphql_go_with_the_preset() {
    let operation = |kind, fields: &[&str]| Operation {
        kind,
        name: None,
        fields: fields.iter().map(|field| (*field).to_owned()).collect(),
    };
    let put = |policy: &Policy, operations: Vec<Operation>| {
        let body = Body {
            bytes: Some(1),
            graphql: Reading::Read(operations),
            ..Body::beyond()
        };
        let facts = Facts::Content(Arc::new(Content {
            body: Some(body),
            ..Content::default()
        }));
        ask_with(policy, "POST", "https://api.github.com/graphql", &facts)
    };
    use OperationKind::{Mutation, Query, Subscription};
    let policies =
        ["read", "contribute", "maintain"].map(|access| service(&format!("api = \"{access}\"")));
    for (kind, fields, least) in [
        (Query, &["viewer"][..], 0),
        (Query, &["__typename", "repository", "search"], 0),
        (Mutation, &["createPullRequest"], 1),
        (Mutation, &["addComment", "addReaction"], 1),
        (Mutation, &["mergePullRequest"], 2),
        (Mutation, &["createPullRequest", "mergePullRequest"], 2),
        (Mutation, &["deleteRef"], 9),
        (Mutation, &["createCommitOnBranch"], 9),
        (Mutation, &["updateRepository"], 9),
        (Mutation, &["createPullRequest", "deleteRef"], 9),
        (Subscription, &["viewer"], 9),
        (Query, &[], 9),
    ] {
        for (access, policy) in policies.iter().enumerate() {
            let outcome = put(policy, vec![operation(kind, fields)]);
            assert_eq!(
                outcome.permits(),
                access >= least,
                "{access}: {kind:?} {fields:?}"
            );
            // Of a batch each counts.
            let both = vec![operation(Query, &["viewer"]), operation(kind, fields)];
            assert_eq!(
                put(policy, both).permits(),
                access >= least,
                "{access}: {kind:?} {fields:?}"
            );
        }
    }
    assert!(!put(&policies[2], Vec::new()).permits());
    let own = service("api = \"read\"\ngraphql = [\"query:viewer\", \"mutation:addStar\"]");
    for (kind, field, permitted) in [
        (Query, "viewer", true),
        (Query, "repository", false),
        (Mutation, "addStar", true),
        (Mutation, "viewer", false),
    ] {
        assert_eq!(
            put(&own, vec![operation(kind, &[field])]).permits(),
            permitted,
            "{kind:?} {field}"
        );
    }
    // Any other method there is none of a rule's.
    for method in ["GET", "HEAD", "PUT", "DELETE"] {
        let outcome = ask(
            &policies[2],
            method,
            "https://api.github.com/graphql?query=%7Bviewer%7D",
        );
        assert_eq!(outcome.code(), Some(Code::MethodNotAllowed), "{method}");
    }
}

#[test]
fn a_refusal_of_the_api_names_the_word_that_would_open_it() {
    let policy = service("api = \"read\"");
    let repo = "https://api.github.com/repos/acme/web";
    for (method, path, wanted) in [
        (
            "POST",
            "/issues",
            "have api = \"contribute\" written in service `gh`",
        ),
        ("PUT", "/pulls/7/merge", "have api = \"maintain\" written"),
        ("POST", "/releases", "have also = [\"releases\"] written"),
        (
            "POST",
            "/actions/runs/9/rerun",
            "have also = [\"actions\"] written",
        ),
        ("PATCH", "", "nothing in service `gh` opens this"),
        (
            "GET",
            "/actions/secrets",
            "nothing in service `gh` opens this",
        ),
    ] {
        let remedy = remedy(&policy, method, &format!("{repo}{path}"));
        assert!(remedy.contains(wanted), "{method} {path}: {remedy}");
    }
    let other = remedy(
        &policy,
        "GET",
        "https://api.github.com/repos/acme/other/issues",
    );
    let wanted = "have \"acme/other\" added to repos of service `gh`";
    assert!(other.contains(wanted), "{other}");
    // What the remedy says is true.
    let remedied = service("api = \"contribute\"");
    assert!(ask(&remedied, "POST", &format!("{repo}/issues")).permits());
}

/// What a refusal of it says would help.
fn remedy(policy: &Policy, method: &str, url: &str) -> String {
    match ask(policy, method, url) {
        Outcome::Refuse { remedy, .. } => remedy,
        other @ (Outcome::Permit { .. } | Outcome::Inspect) => panic!("{method} {url}: {other:?}"),
    }
}

#[test]
fn the_api_of_github_and_that_of_a_server_of_ones_own_are_never_in_one_service() {
    let text = |hosts: &str, more: &str| {
        format!(
            "[[service]]\nkind = \"github\"\nhosts = [{hosts}]\nrepos = [\"acme/web\"]\n{more}\n"
        )
    };
    let both = "\"github.com\", \"git.acme.example\"";
    let problems = Policy::parse(&text(both, "api = \"read\""), "p.toml").unwrap_err();
    let shown = problems.to_string();
    assert!(
        shown.contains("hosts: the API of github.com is elsewhere"),
        "{shown}"
    );
    assert!(shown.contains("one for each other host"), "{shown}");
    let also = text(both, "also = [\"releases\"]");
    assert!(Policy::parse(&also, "p.toml").is_err());
    for good in [
        text(both, ""),
        text("\"github.com\"", "api = \"read\""),
        text(
            "\"git.acme.example\", \"git.other.example\"",
            "api = \"read\"",
        ),
    ] {
        Policy::parse(&good, "p.toml").unwrap();
    }
}
