//! Fetching and pushing.

use super::*;
use crate::record::{PushFact, RefOp};
use crate::request::History;

const TEXT: &str = r#"
[[service]]
id = "web"
kind = "github"
repos = ["acme/web", "acme/tool-*"]
git = "push"
refs = ["refs/heads/agent/*", "refs/tags/agent-*"]
credential = "github"

[[service]]
id = "docs"
kind = "github"
repos = ["acme/docs"]
git = "fetch"
"#;

const A: &str = "1111111111111111111111111111111111111111";
const B: &str = "2222222222222222222222222222222222222222";
const ZERO: &str = "0000000000000000000000000000000000000000";

fn update(old: &str, new: &str, name: &str) -> RefUpdate {
    RefUpdate {
        old: old.to_owned(),
        new: new.to_owned(),
        name: name.to_owned(),
        history: History::NotAsked,
    }
}

use crate::request::RefUpdate;

/// Attack: PTH-11, PTH-13
#[test]
fn smart_http_of_listed_repositories() {
    let policy = policy(TEXT);
    let cases: &[(&str, &str, &str, Option<Code>)] = &[
        (
            "fetch",
            "GET",
            "/acme/web.git/info/refs?service=git-upload-pack",
            None,
        ),
        (
            "fetch, no .git",
            "GET",
            "/acme/web/info/refs?service=git-upload-pack",
            None,
        ),
        (
            "fetch, case",
            "GET",
            "/Acme/WEB.git/info/refs?service=git-upload-pack",
            None,
        ),
        ("fetch, post", "POST", "/acme/web.git/git-upload-pack", None),
        (
            "fetch, glob",
            "POST",
            "/acme/tool-x.git/git-upload-pack",
            None,
        ),
        ("fetch-only", "POST", "/acme/docs/git-upload-pack", None),
        (
            "push, advertisement",
            "GET",
            "/acme/web.git/info/refs?service=git-receive-pack",
            None,
        ),
        (
            "PTH-11",
            "GET",
            "/acme/docs/info/refs?service=git-receive-pack",
            Some(Code::PushNotAllowed),
        ),
        (
            "PTH-11 post",
            "POST",
            "/acme/docs.git/git-receive-pack",
            Some(Code::PushNotAllowed),
        ),
        (
            "other",
            "GET",
            "/acme/other.git/info/refs?service=git-upload-pack",
            Some(Code::PathNotAllowed),
        ),
        (
            "other push",
            "POST",
            "/acme/other.git/git-receive-pack",
            Some(Code::PushNotAllowed),
        ),
        (
            "other owner",
            "POST",
            "/evil/web.git/git-upload-pack",
            Some(Code::PathNotAllowed),
        ),
        (
            "suffix",
            "POST",
            "/acme/website/git-upload-pack",
            Some(Code::PathNotAllowed),
        ),
        (
            "deeper",
            "POST",
            "/acme/web/x/git-upload-pack",
            Some(Code::PathNotAllowed),
        ),
        (
            "dumb",
            "GET",
            "/acme/web.git/info/refs",
            Some(Code::PathNotAllowed),
        ),
        (
            "dumb head",
            "GET",
            "/acme/web.git/HEAD",
            Some(Code::PathNotAllowed),
        ),
        (
            "dumb object",
            "GET",
            "/acme/web.git/objects/info/packs",
            Some(Code::PathNotAllowed),
        ),
        (
            "query spelt oddly",
            "GET",
            "/acme/docs/info/refs?service=git-upload-pack&service=git-receive-pack",
            Some(Code::PathNotAllowed),
        ),
        (
            "query encoded",
            "GET",
            "/acme/docs/info/refs?service=git%2dreceive-pack",
            Some(Code::PathNotAllowed),
        ),
        (
            "PTH-13 lfs",
            "POST",
            "/acme/web.git/info/lfs/objects/batch",
            Some(Code::LfsNotAllowed),
        ),
        (
            "PTH-13 locks",
            "POST",
            "/acme/web.git/info/lfs/locks",
            Some(Code::LfsNotAllowed),
        ),
        ("web page", "GET", "/acme/web", Some(Code::PathNotAllowed)),
        (
            "archive",
            "GET",
            "/acme/web/archive/main.zip",
            Some(Code::PathNotAllowed),
        ),
        (
            "GET on the pack",
            "GET",
            "/acme/web.git/git-receive-pack",
            Some(Code::PushNotAllowed),
        ),
    ];
    for (id, method, target, want) in cases {
        let url = format!("https://github.com{target}");
        assert_eq!(ask(&policy, method, &url).code(), *want, "{id}");
    }
}

#[test]
fn a_push_is_judged_by_its_own_commands() {
    let policy = policy(TEXT);
    let url = "https://github.com/acme/web.git/git-receive-pack";
    assert_eq!(ask(&policy, "POST", url), Outcome::Inspect);
    let own = || update(ZERO, A, "refs/heads/agent/x");
    let long = |bytes: usize| {
        let name = "refs/heads/agent/";
        format!("{name}{}", "\"".repeat(bytes - name.len()))
    };
    let cases: Vec<(&str, Vec<RefUpdate>, Option<Code>)> = vec![
        ("control: create", vec![own()], None),
        (
            "control: update, nested",
            vec![update(A, B, "refs/heads/agent/a/b")],
            None,
        ),
        (
            "control: listed tag",
            vec![update(ZERO, A, "refs/tags/agent-1")],
            None,
        ),
        ("control: flush only", vec![], None),
        (
            "main",
            vec![update(A, B, "refs/heads/main")],
            Some(Code::RefNotAllowed),
        ),
        (
            "main second",
            vec![own(), update(A, B, "refs/heads/main")],
            Some(Code::RefNotAllowed),
        ),
        (
            "tag",
            vec![update(ZERO, A, "refs/tags/v1")],
            Some(Code::RefNotAllowed),
        ),
        (
            "case",
            vec![update(ZERO, A, "refs/heads/Agent/x")],
            Some(Code::RefNotAllowed),
        ),
        (
            "prefix",
            vec![update(ZERO, A, "refs/heads/agentx")],
            Some(Code::RefNotAllowed),
        ),
        (
            "delete",
            vec![update(A, ZERO, "refs/heads/agent/x")],
            Some(Code::DeleteNotAllowed),
        ),
        (
            "delete second",
            vec![own(), update(A, ZERO, "refs/heads/agent/y")],
            Some(Code::DeleteNotAllowed),
        ),
        (
            "short name",
            vec![update(ZERO, A, "main")],
            Some(Code::CouldNotInspect),
        ),
        (
            "climbing",
            vec![update(ZERO, A, "refs/heads/agent/../main")],
            Some(Code::CouldNotInspect),
        ),
        (
            "control byte",
            vec![update(ZERO, A, "refs/heads/agent/x\n")],
            Some(Code::CouldNotInspect),
        ),
        (
            "nothing",
            vec![update(ZERO, ZERO, "refs/heads/agent/x")],
            Some(Code::CouldNotInspect),
        ),
        (
            "short id",
            vec![update("0", "1", "refs/heads/agent/x")],
            Some(Code::CouldNotInspect),
        ),
        (
            "control: a ref name of 1 KiB",
            vec![update(ZERO, A, &long(1024))],
            None,
        ),
        (
            "a ref name of more",
            vec![own(), update(ZERO, A, &long(1025))],
            Some(Code::CouldNotInspect),
        ),
        (
            "a ref name of a whole pkt-line",
            vec![update(ZERO, A, &long(65_000))],
            Some(Code::CouldNotInspect),
        ),
        (
            "mixed ids",
            vec![update(ZERO, &"a".repeat(64), "refs/heads/agent/x")],
            Some(Code::CouldNotInspect),
        ),
        (
            "control: sha-256",
            vec![update(
                &"0".repeat(64),
                &"a".repeat(64),
                "refs/heads/agent/x",
            )],
            None,
        ),
    ];
    for (id, updates, want) in cases {
        let outcome = ask_with(&policy, "POST", url, &Facts::Push(updates));
        assert_eq!(outcome.code(), want, "{id}");
        assert_eq!(outcome.permits(), want.is_none(), "{id}");
    }
    let unreadable = Facts::Unreadable(String::from("a pkt-line is too long"));
    let outcome = ask_with(&policy, "POST", url, &unreadable);
    assert_eq!(outcome.code(), Some(Code::CouldNotInspect));
}

#[test]
fn the_permit_says_what_the_push_does() {
    let policy = policy(TEXT);
    let authority = Authority::parse("github.com:443").unwrap();
    let Routing::Route(route) = policy.route(Scheme::Https, &authority) else {
        panic!()
    };
    let request = Request {
        scheme: Scheme::Https,
        authority: &authority,
        method: "POST",
        target: "/acme/web/git-receive-pack",
    };
    let facts = Facts::Push(vec![
        update(ZERO, A, "refs/heads/agent/x"),
        update(A, B, "refs/heads/agent/y"),
    ]);
    let Decision::Permit(permit) = policy.decide(&route, &request, &facts) else {
        panic!()
    };
    assert_eq!(
        permit.credential().map(CredentialName::as_str),
        Some("github")
    );
    let fact = |name: &str, op| PushFact {
        name: name.to_owned(),
        op,
    };
    assert_eq!(
        permit.facts_summary().map(|facts| facts.push.as_slice()),
        Some(
            [
                fact("refs/heads/agent/x", RefOp::Create),
                fact("refs/heads/agent/y", RefOp::Update)
            ]
            .as_slice()
        )
    );
}

#[test]
fn the_facts_of_a_push_of_any_size_are_bounded_and_say_how_many_are_left_out() {
    let policy = policy(TEXT);
    let authority = Authority::parse("github.com:443").unwrap();
    let Routing::Route(route) = policy.route(Scheme::Https, &authority) else {
        panic!()
    };
    let request = Request {
        scheme: Scheme::Https,
        authority: &authority,
        method: "POST",
        target: "/acme/web/git-receive-pack",
    };
    for (count, all) in [(100, true), (5_000, false)] {
        let name = |number: usize| format!("refs/heads/agent/{}{number}", "\"".repeat(900));
        let updates = (0..count).map(|number| update(ZERO, A, &name(number)));
        let facts = Facts::Push(updates.collect());
        let Decision::Permit(permit) = policy.decide(&route, &request, &facts) else {
            panic!()
        };
        let facts = permit.facts_summary().unwrap();
        assert!(serde_json::to_string(facts).unwrap().len() < 300 * 1024);
        assert_eq!(
            facts.push.len() + usize::try_from(facts.left_out).unwrap(),
            count
        );
        assert_eq!(facts.left_out == 0, all, "{count}");
        assert_eq!(facts.push[0].name, name(0));
    }
}

#[test]
fn the_refusal_names_the_ref_and_the_line() {
    let policy = policy(TEXT);
    let url = "https://github.com/acme/web/git-receive-pack";
    let facts = Facts::Push(vec![update(A, B, "refs/heads/main")]);
    let Outcome::Refuse {
        rule, remedy, text, ..
    } = ask_with(&policy, "POST", url, &facts)
    else {
        panic!()
    };
    assert_eq!(rule.as_deref(), Some("web"));
    assert_eq!(
        text,
        "portcullis: rule `web` does not permit a push to refs/heads/main, only to \
         refs/heads/agent/*, refs/tags/agent-*"
    );
    assert!(
        remedy.contains("\"refs/heads/main\" added to refs of service `web`"),
        "{remedy}"
    );
}

#[test]
fn a_broad_rule_beside_it_is_no_way_round_refs() {
    let policy = policy(&format!(
        "{TEXT}\n[[service]]\nid = \"all\"\nkind = \"http\"\nhost = \"github.com\"\nallow = [\"* /**\"]\n"
    ));
    let url = "https://github.com/acme/web.git/git-receive-pack";
    assert_eq!(ask(&policy, "POST", url), Outcome::Inspect);
    let main = Facts::Push(vec![update(A, B, "refs/heads/main")]);
    assert_eq!(
        ask_with(&policy, "POST", url, &main).code(),
        Some(Code::RefNotAllowed)
    );
    let unreadable = Facts::Unreadable(String::from("truncated"));
    assert_eq!(
        ask_with(&policy, "POST", url, &unreadable).code(),
        Some(Code::CouldNotInspect)
    );
    for odd in [
        "//acme/web.git/git-receive-pack",
        "/acme//web.git/git-receive-pack",
        "/acme/web.git/git-receive-pack/",
        "/acme/web;x/git-receive-pack",
    ] {
        let outcome = ask_with(
            &policy,
            "POST",
            &format!("https://github.com{odd}"),
            &Facts::None,
        );
        assert_eq!(outcome.code(), Some(Code::AmbiguousPath), "{odd}");
    }
    // Control: the broad rule does allow what nobody judges.
    assert!(ask(&policy, "GET", "https://github.com/acme/web").permits());
}

#[test]
fn a_push_is_allowed_whole_by_one_service() {
    let policy = policy(
        r#"
        [[service]]
        id = "a"
        kind = "github"
        repos = ["acme/web"]
        git = "push"
        refs = ["refs/heads/a/*"]

        [[service]]
        id = "b"
        kind = "github"
        repos = ["acme/*"]
        git = "push"
        refs = ["refs/heads/b/*"]
        "#,
    );
    let url = "https://github.com/acme/web/git-receive-pack";
    let push = |names: &[&str]| {
        let updates = names.iter().map(|name| update(ZERO, A, name)).collect();
        ask_with(&policy, "POST", url, &Facts::Push(updates))
    };
    assert!(push(&["refs/heads/a/1", "refs/heads/a/2"]).permits());
    assert!(push(&["refs/heads/b/1"]).permits());
    assert_eq!(
        push(&["refs/heads/a/1", "refs/heads/b/1"]).code(),
        Some(Code::RefNotAllowed)
    );
}

#[test]
fn no_allow_opens_a_push_that_nobody_judges() {
    let broad = |kind: &str, host: &str| {
        format!(
            "{kind}\n[[service]]\nid = \"all\"\nkind = \"http\"\nhost = \"{host}\"\nallow = [\"* /**\"]\n"
        )
    };
    let github = |git: &str| {
        format!("[[service]]\nkind = \"github\"\nrepos = [\"acme/web\"]\ngit = \"{git}\"\n")
    };
    let cases = [
        (broad(&github("fetch"), "github.com"), "github.com"),
        (broad(TEXT, "github.com"), "github.com"),
        (broad("", "git.example.com"), "git.example.com"),
        (broad("", "*.example.com"), "git.example.com"),
    ];
    for (text, host) in cases {
        let policy = policy(&text);
        for path in [
            "/acme/docs.git/git-receive-pack",
            "/acme/docs/git-receive-pack?x=1",
            "/acme/docs//git-receive-pack",
            "/acme/docs/git-receive-pack/",
            "/acme/docs/git-receive-pack;x=1",
            "/acme/docs/Git-Receive-Pack",
            "/acme/docs/git-receive-pac%6B",
            "/a/b/c/docs.git/git-receive-pack",
            "/git-receive-pack",
        ] {
            let facts = Facts::Push(vec![update(A, B, "refs/heads/main")]);
            for method in ["POST", "PUT", "GET"] {
                let url = format!("https://{host}{path}");
                for facts in [&Facts::None, &facts] {
                    let outcome = ask_with(&policy, method, &url, facts);
                    assert!(
                        outcome.code() == Some(Code::PushNotAllowed),
                        "{method} {url}: {outcome:?}"
                    );
                }
            }
        }
        // Control: everything else that the broad rule says.
        for path in ["/acme/docs/git-upload-pack", "/git-receive-pack/x", "/x"] {
            let url = format!("https://{host}{path}");
            assert!(ask(&policy, "POST", &url).permits(), "{url}");
        }
    }
    // Control: a rule that judges it opens it.
    let judged = policy(
        "[[service]]\nkind = \"http\"\nhost = \"git.example.com\"\npush = [\"POST /o/*/git-receive-pack\"]\nrefs = [\"refs/heads/*\"]\n",
    );
    let url = "https://git.example.com/o/r/git-receive-pack";
    assert_eq!(ask(&judged, "POST", url), Outcome::Inspect);
}

/// With `force = "deny"` a ref moves forward, or it does not move.
#[test]
fn what_may_only_move_forward_is_moved_where_that_is_proven() {
    let policy = policy(
        "[[service]]\nid = \"forge\"\nkind = \"github\"\nhost = \"git.example.com\"\nrepos = [\"acme/web\"]\ngit = \"push\"\n\
         refs = [\"refs/heads/agent/*\", \"refs/tags/*\"]\ndelete_refs = [\"refs/heads/agent/*\"]\nforce = \"deny\"\n",
    );
    let plain = Policy::parse(&policy.expanded(), "expanded.toml").unwrap();
    let (zero, one, two) = ("0".repeat(40), "1".repeat(40), "2".repeat(40));
    let moved = |name: &str, history: History| RefUpdate {
        history,
        ..update(&one, &two, name)
    };
    let url = "https://git.example.com/acme/web.git/git-receive-pack";
    let push = |updates: Vec<RefUpdate>| {
        let facts = Facts::Push(updates);
        let found = ask_with(&policy, "POST", url, &facts);
        assert_eq!(
            found.clone().bare(),
            ask_with(&plain, "POST", url, &facts).bare()
        );
        found
    };
    let no = || History::Unproven(String::from("it rewrites what is there"));
    let (x, y) = ("refs/heads/agent/x", "refs/heads/agent/y");
    assert_eq!(push(vec![moved(x, History::NotAsked)]), Outcome::Inspect);
    assert!(push(vec![moved(x, History::Forward)]).permits());
    assert!(
        push(vec![update(&zero, &one, x), update(&one, &zero, y)]).permits(),
        "neither is a move"
    );
    assert!(push(Vec::new()).permits(), "the probe");
    let rewrite = push(vec![moved(x, History::Forward), moved(y, no())]);
    assert_eq!(rewrite.code(), Some(Code::ForceNotAllowed));
    let tag = push(vec![moved("refs/tags/v1", History::NotAsked)]);
    assert_eq!(tag.code(), Some(Code::ForceNotAllowed));
    let tag = push(vec![moved("refs/tags/v1", History::Forward)]);
    assert_eq!(tag.code(), Some(Code::ForceNotAllowed));
    let elsewhere = push(vec![moved("refs/heads/main", History::Forward)]);
    assert_eq!(elsewhere.code(), Some(Code::RefNotAllowed));
}
