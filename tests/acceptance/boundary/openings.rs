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

/// Attack: KRN-19
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

/// The kernel itself ends it: nobody has to watch.
/// Attack: KRN-19
#[test]
fn krn_19_an_exception_lapses_although_nobody_watches() {
    for scope in SCOPES {
        let lab = Lab::new(scope);
        let (name, user) = match scope {
            "guest" => ("lab-monitor", MONITOR),
            _ => ("lab-agent", AGENT),
        };
        // On a busy machine a short exception has lapsed before it was tried; then a longer one.
        let tried = [6, 30, 120].into_iter().any(|seconds| {
            let end = std::time::SystemTime::now() + std::time::Duration::from_secs(seconds);
            let soon = rfc3339(end);
            let both = [
                exception(name, "192.0.2.2:80", "tcp", &soon),
                exception(name, "[2001:db8::2]:80", "tcp", &soon),
            ];
            lab.write_config(scope, &both.concat());
            lab.shut();
            let open = [PEER4, PEER6].map(|address| lab.attempt(user, &["tcp", address, "80"]));
            let reached = open.iter().all(|attempt| attempt.outcome == "reached");
            let late = std::time::SystemTime::now() + std::time::Duration::from_secs(1) >= end;
            assert!(reached || late, "{scope}: before {soon}: {open:?}");
            reached
        });
        assert!(tried, "{scope}: no exception was long enough");
        for address in [PEER4, PEER6] {
            tests::wait::until_true("it lapses", || {
                lab.attempt(user, &["tcp", address, "80"]).outcome == "refused"
            });
        }
        // What is left of it is named, and gone with the next apply.
        // The kernel's clock may be a moment ahead of the file's.
        tests::wait::until_true("verify names what is left", || {
            let finished = lab.boundary(&["verify"]);
            finished.code() == 1 && finished.stdout.contains("exception 1")
        });
        lab.shut();
        lab.boundary(&["verify"]).ok();
        // Somebody who adds the user again by hand is found out.
        lab.write_config(scope, &exception(name, "192.0.2.2:80", "tcp", LATER));
        lab.shut();
        for (words, expected) in [
            ("{ 61777 }", "extra: element of set exception_1: uid 61777"),
            (
                "{ 61777 timeout 10s }",
                "extra: element of set exception_1: uid 61777",
            ),
        ] {
            lab.nft(&[
                "add",
                "element",
                "inet",
                "portcullis-lab",
                "exception_1",
                words,
            ])
            .ok();
            let finished = lab.boundary(&["verify"]);
            assert!(finished.stdout.contains(expected), "{}", finished.shown());
            lab.nft(&[
                "delete",
                "element",
                "inet",
                "portcullis-lab",
                "exception_1",
                "{ 61777 }",
            ])
            .ok();
        }
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
