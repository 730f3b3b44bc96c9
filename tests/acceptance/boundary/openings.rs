//! Exceptions: one user, one place, until a date.

use super::lab::{AGENT, Lab, MONITOR, PEER4, PEER6};

const SCOPES: [&str; 2] = ["agents", "guest"];

fn exception(user: &str, destination: &str, protocol: &str, expires: &str) -> String {
    format!(
        "[[exception]]\nuser = \"{user}\"\ndestination = \"{destination}\"\n\
         protocol = \"{protocol}\"\nreason = \"a test\"\nexpires = \"{expires}\"\n"
    )
}

const LATER: &str = "2999-01-01T00:00:00Z";

#[test]
fn an_exception_opens_its_destination_and_no_other() {
    for scope in SCOPES {
        let lab = Lab::new(scope);
        let user = if scope == "guest" { MONITOR } else { AGENT };
        let name = if scope == "guest" {
            "lab-monitor"
        } else {
            "lab-agent"
        };
        lab.shut();
        for words in [
            ["tcp", PEER4, "80"],
            ["tcp", PEER6, "80"],
            ["udp", PEER4, "53"],
        ] {
            assert_eq!(
                lab.attempt(user, &words).outcome,
                "refused",
                "control: {words:?}"
            );
        }
        let more = [
            exception(name, "192.0.2.0/29:80", "tcp", LATER),
            exception(name, "[2001:db8::/61]:80", "tcp", LATER),
            exception(name, "192.0.2.2:53", "udp", LATER),
        ]
        .concat();
        lab.write_config(scope, &more);
        lab.shut();
        for words in [
            ["tcp", PEER4, "80"],
            ["tcp", PEER6, "80"],
            ["udp", PEER4, "53"],
        ] {
            let attempt = lab.attempt(user, &words);
            assert_eq!(
                attempt.outcome, "reached",
                "{scope}: {words:?}: {attempt:?}"
            );
        }
        for words in [
            ["tcp", PEER4, "443"],
            ["tcp", PEER6, "443"],
            ["udp", PEER4, "7"],
            ["tcp", PEER4, "53"],
        ] {
            let attempt = lab.attempt(user, &words);
            assert_eq!(
                attempt.outcome, "refused",
                "{scope}: {words:?}: {attempt:?}"
            );
        }
        let other = super::lab::OTHER_AGENT;
        assert_eq!(
            lab.attempt(other, &["tcp", PEER4, "80"]).outcome,
            "refused",
            "{scope}"
        );
    }
}

#[test]
fn an_exception_lapses_by_itself() {
    for scope in SCOPES {
        let lab = Lab::new(scope);
        let name = if scope == "guest" {
            "lab-monitor"
        } else {
            "lab-agent"
        };
        let user = if scope == "guest" { MONITOR } else { AGENT };
        let soon = rfc3339(std::time::SystemTime::now() + std::time::Duration::from_secs(6));
        lab.write_config(scope, &exception(name, "192.0.2.2:80", "tcp", &soon));
        lab.shut();
        let watch = super::lab::Running::start(lab.boundary_program(&["watch"]), "stands");
        let words = ["tcp", PEER4, "80"];
        assert_eq!(
            lab.attempt(user, &words).outcome,
            "reached",
            "{scope}: before {soon}"
        );
        watch.until("another ruleset was due");
        assert_eq!(
            lab.attempt(user, &words).outcome,
            "refused",
            "{scope}: after {soon}"
        );
    }
}

/// RFC 3339 in UTC, from the system's own `date`.
fn rfc3339(time: std::time::SystemTime) -> String {
    let seconds = time
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    tests::command::Program::new("date")
        .args(["-u", "-d", &format!("@{seconds}"), "+%Y-%m-%dT%H:%M:%SZ"])
        .run()
        .ok()
        .stdout
        .trim()
        .to_owned()
}
