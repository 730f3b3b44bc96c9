//! What a refusal says: the rule, the line that would allow it, and the operator's reason.

use super::http::TEXT;
use super::*;

#[test]
fn refusals_name_the_nearest_rule_and_the_line_that_would_allow() {
    let policy = policy(TEXT);
    let parts = |outcome| match outcome {
        Outcome::Refuse {
            rule, remedy, text, ..
        } => (rule, remedy, text),
        other @ (Outcome::Permit { .. } | Outcome::Inspect) => panic!("{other:?}"),
    };
    let (rule, remedy, text) = parts(ask(
        &policy,
        "GET",
        "https://api.github.com/repos/you/x?t=secret",
    ));
    assert_eq!(rule.as_deref(), Some("github-api"));
    assert_eq!(
        text,
        "portcullis: no rule for api.github.com:443 permits GET /repos/you/x"
    );
    assert_eq!(
        remedy,
        "the nearest rule `github-api` permits `GET /repos/me/**`; have \"GET /repos/you/x\" added \
         to allow of service `github-api` in the policy"
    );
    let (_, remedy, text) = parts(ask(&policy, "PUT", "https://api.github.com/repos/me/x"));
    assert!(
        text.contains("`GET /repos/me/**` and not the method PUT"),
        "{text}"
    );
    assert!(remedy.contains("\"PUT /repos/me/x\""), "{remedy}");
    let (rule, remedy, _) = parts(ask(&policy, "GET", "https://api.githib.com/"));
    assert_eq!(rule, None);
    assert!(
        remedy.contains("api.github.com (rule `github-api`)"),
        "{remedy}"
    );
    assert!(remedy.contains("host = \"api.githib.com\""), "{remedy}");
    let (_, remedy, text) = parts(ask(&policy, "GET", "https://github.com:8443/"));
    assert!(
        text.contains("listed on port 443, not on port 8443"),
        "{text}"
    );
    assert!(remedy.contains("https://github.com:443"), "{remedy}");
}

#[test]
fn ssh_is_refused_with_the_way_that_there_is() {
    let policy = policy(TEXT);
    for host in ["github.com", "other.example.net"] {
        let asked = ask(&policy, "GET", &format!("https://{host}:22/"));
        let Outcome::Refuse { remedy, text, .. } = asked else {
            panic!("{host} is reached by ssh");
        };
        let way = format!("https://{host}/");
        assert!(
            text.contains(&way) && remedy.contains(&way),
            "{text}; {remedy}"
        );
        assert!(!remedy.contains("port = 22"), "{remedy}");
    }
}

#[test]
fn why_reaches_the_agent() {
    let policy = policy(TEXT);
    let authority = Authority::parse("api.github.com:443").unwrap();
    let Routing::Route(route) = policy.route(Scheme::Https, &authority) else {
        panic!()
    };
    let request = Request {
        scheme: Scheme::Https,
        authority: &authority,
        method: "GET",
        target: "/user",
    };
    let Decision::Refuse(refusal) = policy.decide(&route, &request, &Facts::None) else {
        panic!()
    };
    assert_eq!(refusal.why.as_deref(), Some("reading our own repositories"));
    let shown = refusal.to_string();
    assert!(
        shown.contains("(path_not_allowed)\nwhy: reading our own"),
        "{shown}"
    );
    assert!(shown.contains("\nhint: "), "{shown}");
}

#[test]
fn refusals_repeat_little_of_what_the_agent_sent() {
    let policy = policy(
        r#"
        [[service]]
        kind = "github"
        repos = ["acme/web"]

        [[service]]
        kind = "http"
        host = "api.example.com"
        allow = ["GET /a"]
        deny = ["* /d/**"]
        "#,
    );
    let long = "%E2%82%AC".repeat(1_500);
    // `refused` asserts that texts are short and printable.
    for url in [
        format!("https://github.com/{long}/x/git-receive-pack"),
        format!("https://github.com/{long}/x/info/refs?service=git-upload-pack"),
        format!("https://github.com/{long}"),
        format!("https://api.example.com/{long}"),
        format!("https://api.example.com/d/{long}"),
        format!("https://api.example.com/a?{long}"),
    ] {
        for method in ["GET", "POST", "G\u{1b}T", &"X".repeat(9_000)] {
            let _ = ask(&policy, method, &url);
        }
    }
}
