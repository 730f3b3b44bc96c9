use super::*;
use crate::record::RecordFacts;

const SERVICES: &str = r#"
[[service]]
id = "api"
kind = "http"
host = "api.example.com"
allow = ["GET /v1/**", "GET /search?kind=open"]
credential = "a"

[[service]]
id = "forge"
kind = "github"
host = "git.example.com"
repos = ["acme/web"]
git = "push"
refs = ["refs/heads/agent/*"]
credential = "git"
"#;

fn policy(text: &str) -> Policy {
    Policy::parse(text, "test").unwrap_or_else(|problems| panic!("{problems}"))
}

fn line(kind: RecordKind, method: &str, host: &str, path: &str) -> Record {
    let mut record = Record::new(kind, "r-1", "2026-11-30T08:00:00Z");
    record.scheme = Some("https".to_owned());
    record.authority = Some(format!("{host}:443"));
    record.method = Some(method.to_owned());
    record.path = Some(path.to_owned());
    record
}

fn allowed(method: &str, host: &str, path: &str, credential: &str) -> Record {
    let mut record = line(RecordKind::Request, method, host, path);
    record.verdict = Some(Verdict::Allow);
    record.credential = CredentialName::parse(credential).ok();
    record
}

fn refused(method: &str, host: &str, path: &str, code: Code) -> Record {
    let mut record = line(RecordKind::Refusal, method, host, path);
    record.verdict = Some(Verdict::Refuse);
    record.code = Some(code);
    record
}

#[test]
fn each_change_is_told_by_its_kind_and_what_stays_is_the_same() {
    let get = allowed("GET", "api.example.com", "/v1/x", "a");
    let post = refused("POST", "api.example.com", "/v1/x", Code::MethodNotAllowed);
    let same = policy(SERVICES);
    assert_eq!(same.replay(&get), Replayed::Same);
    assert_eq!(same.replay(&post), Replayed::Same);
    assert!(
        matches!(Policy::empty().replay(&get), Replayed::NewlyRefused(refusal)
        if refusal.code == Code::DestinationNotListed)
    );
    let wide = policy(&SERVICES.replace("GET /v1/**", "GET,POST /v1/**"));
    assert!(
        matches!(wide.replay(&post), Replayed::NewlyAllowed(Some(rule), Some(_)) if rule.as_str() == "api")
    );
    let other = policy(&SERVICES.replace("\"a\"", "\"b\""));
    assert!(
        matches!(other.replay(&get), Replayed::OtherCredential(Some(was), Some(now))
        if (was.as_str(), now.as_str()) == ("a", "b"))
    );
}

#[test]
fn a_connection_of_which_no_request_is_on_record_is_judged_by_where_it_leads() {
    let mut connect = refused("CONNECT", "new.example.com", "", Code::DestinationNotListed);
    connect.path = None;
    assert_eq!(policy(SERVICES).replay(&connect), Replayed::Same);
    let more = format!(
        "{SERVICES}[[service]]\nkind = \"http\"\nhost = \"new.example.com\"\nallow = [\"GET /\"]\n"
    );
    assert_eq!(
        policy(&more).replay(&connect),
        Replayed::NewlyAllowed(None, None)
    );
}

#[test]
fn pushes_are_judged_by_the_refs_on_record() {
    let push = |name: &str| {
        let mut record = allowed(
            "POST",
            "git.example.com",
            "/acme/web.git/git-receive-pack",
            "git",
        );
        record.facts = Some(RecordFacts {
            push: vec![PushFact {
                name: name.to_owned(),
                op: RefOp::Create,
            }],
            ..RecordFacts::default()
        });
        record
    };
    let narrowed = policy(&SERVICES.replace("agent/*", "agent/x*"));
    assert_eq!(
        narrowed.replay(&push("refs/heads/agent/x1")),
        Replayed::Same
    );
    assert!(
        matches!(narrowed.replay(&push("refs/heads/agent/y")), Replayed::NewlyRefused(refusal)
        if refusal.code == Code::RefNotAllowed)
    );
    let mut unknown = push("refs/heads/agent/x1");
    unknown.facts = None;
    assert!(matches!(
        narrowed.replay(&unknown),
        Replayed::CouldNotTell(_)
    ));
}

#[test]
fn a_query_that_the_log_does_not_keep_is_no_reason_to_guess() {
    let asked = allowed("GET", "api.example.com", "/search?kind=...", "a");
    assert_eq!(
        policy(SERVICES).replay(&asked),
        Replayed::CouldNotTell("the value of its query")
    );
    // Where no rule asks for a query, its value does not matter.
    let free = policy(&SERVICES.replace("?kind=open", ""));
    assert_eq!(free.replay(&asked), Replayed::Same);
    let other = allowed("GET", "api.example.com", "/v1/x?kind=...", "a");
    assert_eq!(policy(SERVICES).replay(&other), Replayed::Same);
}

#[test]
fn lines_that_no_policy_judged_are_left_out() {
    let limit = refused("GET", "api.example.com", "/v1/x", Code::LimitReached);
    let end = line(RecordKind::Response, "GET", "api.example.com", "/v1/x");
    for record in [limit, end] {
        assert_eq!(Policy::empty().replay(&record), Replayed::NotJudged);
    }
}

#[test]
fn git_asks_for_one_of_two_things_and_what_both_may_is_the_same() {
    let fetch = allowed(
        "GET",
        "git.example.com",
        "/acme/web.git/info/refs?service=...",
        "git",
    );
    assert_eq!(policy(SERVICES).replay(&fetch), Replayed::Same);
    let text = SERVICES.replace(
        "git = \"push\"\nrefs = [\"refs/heads/agent/*\"]",
        "git = \"fetch\"",
    );
    assert_eq!(
        policy(&text).replay(&fetch),
        Replayed::CouldNotTell("the value of its query")
    );
    assert!(matches!(
        policy(&text.replace("acme", "other")).replay(&fetch),
        Replayed::NewlyRefused(_)
    ));
}
