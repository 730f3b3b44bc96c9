use std::sync::Arc;

use super::*;
use crate::authority::{Authority, Scheme};
use crate::policy::{Policy, Routing};
use crate::request::{Body, Content};
use crate::trial::ref_update;

const BASE: &str = r#"
[[service]]
id = "api"
kind = "http"
host = "api.example.com"
allow = ["* /v1/**"]
credential = "a"

[[service]]
id = "people"
kind = "http"
host = "api.example.com"
hold = ["POST /v1/releases"]
hold_by = ["ann", "ben"]
hold_seconds = 60
why = "releases are announced"

[[service]]
id = "forge"
kind = "github"
host = "git.example.com"
repos = ["acme/web"]
git = "push"
refs = ["refs/heads/*"]
hold = ["POST /acme/*/git-receive-pack"]
"#;

fn policy(text: &str) -> Policy {
    Policy::parse(text, "test").unwrap_or_else(|problems| panic!("{problems}"))
}

fn decide(policy: &Policy, host: &str, method: &str, target: &str, facts: &Facts) -> Decision {
    let authority = Authority::parse(&format!("{host}:443")).unwrap();
    let Routing::Route(route) = policy.route(Scheme::Https, &authority) else {
        panic!("{host} is listed");
    };
    let request = Request {
        scheme: Scheme::Https,
        authority: &authority,
        method,
        target,
    };
    policy.decide(&route, &request, facts)
}

fn body(sha256: &str, bytes: Option<u64>) -> Facts {
    Facts::Content(Arc::new(Content {
        headers: Vec::new(),
        task: None,
        body: Some(Body {
            bytes,
            sha256: sha256.to_owned(),
            ..Body::beyond()
        }),
    }))
}

fn held(decision: Decision) -> Held {
    match decision {
        Decision::Hold(held) => held,
        other @ (Decision::Permit(_) | Decision::Refuse(_) | Decision::Inspect(_)) => {
            panic!("{other:?}")
        }
    }
}

#[test]
fn what_a_person_is_asked_about_is_read_whole_first_and_what_is_beside_it_is_not_held() {
    let policy = policy(BASE);
    let ask =
        |method, target, facts: &Facts| decide(&policy, "api.example.com", method, target, facts);
    for target in [
        "/v1/releases",
        "/v1/Releases",
        "/v1//releases",
        "/v1/releases;x",
    ] {
        assert!(
            matches!(ask("POST", target, &Facts::None), Decision::Inspect(Inspection::Content(wanted))
                if wanted.body.is_some_and(|body| body.most > 0)),
            "{target}"
        );
    }
    for (method, target) in [("GET", "/v1/releases"), ("POST", "/v1/notes")] {
        assert!(
            matches!(ask(method, target, &Facts::None), Decision::Permit(_)),
            "{method} {target}"
        );
    }
    let waits = held(ask("POST", "/v1/releases?x=1", &body("ab", Some(2))));
    assert_eq!((waits.rule().as_str(), waits.seconds()), ("people", 60));
    assert_eq!(waits.by(), ["ann", "ben"]);
    assert_eq!(
        waits.subject(),
        "https://api.example.com:443\nPOST /v1/releases?x=1\nrule api credential a\nbody sha256 ab\n"
    );
    let beyond = ask("POST", "/v1/releases", &body("", None));
    assert!(
        matches!(beyond, Decision::Refuse(refusal) if refusal.code == Code::InspectionTooLarge)
    );
    let odd = ask("POST", "/v1/releases", &Facts::Unreadable("x".to_owned()));
    assert!(matches!(odd, Decision::Refuse(refusal) if refusal.code == Code::CouldNotInspect));
}

#[test]
fn a_permit_comes_out_for_the_very_request_that_was_approved_and_for_no_other() {
    let policy = policy(BASE);
    let ask = |target: &str, sha: &str| {
        held(decide(
            &policy,
            "api.example.com",
            "POST",
            target,
            &body(sha, Some(1)),
        ))
    };
    let subject = ask("/v1/releases", "aa").subject().to_owned();
    assert!(ask("/v1/releases", "aa").approved(&subject).is_ok());
    for other in [
        ask("/v1/releases", "ab"),
        ask("/v1/releases?a", "aa"),
        ask("/v1/Releases", "aa"),
    ] {
        assert!(other.approved(&subject).is_err());
    }
    // Nor where the policy would inject something else by now.
    let changed = self::policy(&BASE.replace("credential = \"a\"", "credential = \"b\""));
    let changed = held(decide(
        &changed,
        "api.example.com",
        "POST",
        "/v1/releases",
        &body("aa", Some(1)),
    ));
    assert!(changed.approved(&subject).is_err());
}

#[test]
fn a_push_is_held_by_its_commands_and_its_probe_is_not() {
    let policy = policy(BASE);
    let push = |refs: &[&str]| {
        let updates = refs.iter().map(|name| ref_update(name).unwrap()).collect();
        let target = "/acme/web.git/git-receive-pack";
        decide(
            &policy,
            "git.example.com",
            "POST",
            target,
            &Facts::Push(updates),
        )
    };
    let one = held(push(&["refs/heads/x"]));
    assert!(one.subject().ends_with("refs/heads/x\n") && one.by().is_empty());
    assert_eq!(one.seconds(), SECONDS);
    assert_ne!(one.subject(), held(push(&["refs/heads/y"])).subject());
    assert!(matches!(push(&[]), Decision::Permit(_)));
    let target = "/acme/web.git/git-receive-pack";
    let unread = decide(&policy, "git.example.com", "POST", target, &Facts::None);
    assert!(matches!(unread, Decision::Inspect(Inspection::ReceivePack)));
}

#[test]
fn what_is_refused_anyway_is_refused_and_where_two_hold_both_must_agree_on_who_decides() {
    let denied = policy(&format!(
        "{BASE}\n[[service]]\nid = \"no\"\nkind = \"http\"\nhost = \"api.example.com\"\ndeny = [\"POST /v1/releases\"]\n"
    ));
    let refused = decide(
        &denied,
        "api.example.com",
        "POST",
        "/v1/releases",
        &Facts::None,
    );
    assert!(matches!(refused, Decision::Refuse(_)));
    for (more, by) in [("\"ben\", \"cid\"", "ben"), ("\"cid\"", "(nobody)")] {
        let two = policy(&format!(
            "{BASE}\n[[service]]\nid = \"two\"\nkind = \"http\"\nhost = \"api.example.com\"\nhold = [\"* /v1/releases\"]\nhold_by = [{more}]\nhold_seconds = 5\n"
        ));
        let waits = held(decide(
            &two,
            "api.example.com",
            "POST",
            "/v1/releases",
            &body("aa", Some(1)),
        ));
        assert_eq!((waits.by(), waits.seconds()), (&[by.to_owned()][..], 5));
    }
}

#[test]
fn what_says_nothing_is_a_problem_of_the_file() {
    for (line, problem) in [
        ("hold_by = [\"ann\"]", "no effect without `hold`"),
        ("hold_seconds = 5", "no effect without `hold`"),
        ("hold = []", "empty list"),
        ("hold = [\"POST /x?y=1\"]", "holds by query"),
        (
            "hold = [\"POST /x\"]\nhold_by = [\"a b\"]",
            "no name of an account",
        ),
        ("hold = [\"POST /x\"]\nhold_seconds = 0", "1 to 86400"),
    ] {
        let text = format!(
            "[[service]]\nkind = \"http\"\nhost = \"h.example\"\nallow = [\"GET /\"]\n{line}\n"
        );
        let problems = Policy::parse(&text, "test").unwrap_err().to_string();
        assert!(problems.contains(problem), "{line}: {problems}");
    }
    let expanded = policy(BASE).expanded();
    assert!(
        policy(BASE).difference(&policy(&expanded)).is_empty(),
        "{expanded}"
    );
    assert_eq!(policy(&expanded).expanded(), expanded);
}
