use super::*;

const POLICY: &str = r#"
[[service]]
id = "forge"
kind = "github"
host = "git.example.com"
repos = ["acme/web"]
git = "push"
refs = ["refs/heads/agent/*"]
credential = "git"
"#;

fn policy() -> Policy {
    Policy::parse(POLICY, "test").unwrap()
}

#[test]
fn urls_are_split_as_the_gate_would_see_them() {
    let (scheme, authority, target) = split("https://API.example.com/v1?x=1").unwrap();
    assert_eq!(scheme, Scheme::Https);
    assert_eq!(authority.to_string(), "api.example.com:443");
    assert_eq!(target, "/v1?x=1");
    let (scheme, authority, target) = split("http://h.example:8080?q").unwrap();
    assert_eq!((scheme, target.as_str()), (Scheme::Http, "/?q"));
    assert_eq!(authority.to_string(), "h.example:8080");
    assert!(split("ftp://h.example/").is_err());
    assert!(split("https://user@h.example/").is_err());
}

#[test]
fn a_trial_is_judged_as_the_gate_asks_and_facts_count_only_where_they_are_asked_for() {
    let mut trial =
        Trial::parse("POST https://git.example.com/acme/web.git/git-receive-pack").unwrap();
    assert!(matches!(trial.on(&policy()), Outcome::Inspect(_)));
    trial.facts = Facts::Push(vec![ref_update("refs/heads/agent/x").unwrap()]);
    assert!(
        matches!(trial.on(&policy()), Outcome::Allow { rule, credential: Some(_) } if rule.as_str() == "forge")
    );
    trial.facts = Facts::Push(vec![ref_update("delete refs/heads/agent/x").unwrap()]);
    assert!(matches!(trial.on(&policy()), Outcome::Refuse(_)));
    // Facts that nobody asks for change nothing.
    let mut fetch =
        Trial::parse("GET https://git.example.com/acme/web.git/info/refs?service=git-upload-pack")
            .unwrap();
    let without = fetch.on(&policy());
    assert!(matches!(without, Outcome::Allow { .. }));
    fetch.facts = trial.facts;
    assert_eq!(fetch.on(&policy()), without);
}

#[test]
fn what_is_no_request_and_no_command_is_said() {
    for text in ["GET", "GET https://h.example/ x", "GET h.example", ""] {
        assert!(Trial::parse(text).is_err(), "{text}");
    }
    assert!(ref_update("force refs/heads/x").is_err());
}
