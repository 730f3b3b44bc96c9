//! Exceptions: one user, one place, until a date.

use std::time::{Duration, SystemTime};

use super::lab::{AGENT, APT, Lab, MONITOR, PEER4, PEER6, Running};
use tests::command::{Finished, Program};
use tests::{host, wait};

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
        let soon = rfc3339(SystemTime::now() + Duration::from_secs(6));
        lab.write_config(scope, &exception(name, "192.0.2.2:80", "tcp", &soon));
        lab.shut();
        let watch = Running::start(lab.boundary_program(&["watch"]), "stands");
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
            let end = SystemTime::now() + Duration::from_secs(seconds);
            let soon = rfc3339(end);
            let both = [
                exception(name, "192.0.2.2:80", "tcp", &soon),
                exception(name, "[2001:db8::2]:80", "tcp", &soon),
            ];
            lab.write_config(scope, &both.concat());
            lab.shut();
            let open = [PEER4, PEER6].map(|address| lab.attempt(user, &["tcp", address, "80"]));
            let reached = open.iter().all(|attempt| attempt.outcome == "reached");
            let late = SystemTime::now() + Duration::from_secs(1) >= end;
            assert!(reached || late, "{scope}: before {soon}: {open:?}");
            reached
        });
        assert!(tried, "{scope}: no exception was long enough");
        for address in [PEER4, PEER6] {
            wait::until_true("it lapses", || {
                lab.attempt(user, &["tcp", address, "80"]).outcome == "refused"
            });
        }
        // What is left of it is named, and gone with the next apply.
        // The kernel's clock may be a moment ahead of the file's.
        wait::until_true("verify names what is left", || {
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

/// What was opened while the exception stood is not let out after it, although connection tracking knows the flow.
/// Attack: KRN-07, KRN-19
#[test]
fn a_flow_does_not_outlive_the_exception_that_let_it_out() {
    std::thread::scope(|threads| {
        for scope in SCOPES {
            threads.spawn(move || held_across_the_end(scope));
        }
    });
}

fn held_across_the_end(scope: &str) {
    const FLOWS: [[&str; 4]; 4] = [
        ["hold", PEER4, "80", "tcp"],
        ["hold", PEER6, "80", "tcp"],
        ["hold", PEER4, "53", "udp"],
        ["hold", PEER6, "53", "udp"],
    ];
    let lab = Lab::new(scope);
    let (name, user) = match scope {
        "guest" => ("lab-monitor", MONITOR),
        _ => ("lab-agent", AGENT),
    };
    // On a busy machine a short exception has lapsed before the flows were open; then a longer one.
    let held = [8, 40, 200].into_iter().find_map(|seconds| {
        let soon = rfc3339(SystemTime::now() + Duration::from_secs(seconds));
        let all = [
            exception(name, "192.0.2.2:80", "tcp", &soon),
            exception(name, "[2001:db8::2]:80", "tcp", &soon),
            exception(name, "192.0.2.2:53", "udp", &soon),
            exception(name, "[2001:db8::2]:53", "udp", &soon),
        ];
        lab.write_config(scope, &all.concat());
        lab.shut();
        let open = FLOWS.map(|words| lab.try_to_start(user, &words, "open"));
        open.into_iter().collect::<Option<Vec<Running>>>()
    });
    let held = held.unwrap_or_else(|| panic!("{scope}: no exception was long enough"));
    wait::until_true("it lapses", || {
        let new = FLOWS.map(|[_, address, port, kind]| lab.attempt(user, &[kind, address, port]));
        new.iter().all(|attempt| attempt.outcome == "refused")
    });
    let before = lab.received_data();
    for (mut flow, words) in held.into_iter().zip(FLOWS) {
        flow.say("again");
        let attempt = flow.finish();
        assert_ne!(
            attempt.outcome, "reached",
            "{scope}: {words:?}: {attempt:?}"
        );
    }
    assert_eq!(lab.received_data(), before, "{scope}");
}

/// In scope `guest` root is shut like anybody, and an exception lets it to one place.
/// Attack: KRN-19
#[test]
fn root_gets_where_an_exception_says_and_nowhere_else() {
    let lab = Lab::new("guest");
    let open = [
        ["tcp", PEER4, "80"],
        ["tcp", PEER6, "80"],
        ["udp", PEER4, "53"],
        ["udp", PEER6, "53"],
    ];
    lab.shut();
    for words in open {
        let before = lab.received();
        let shut = lab.attempt(0, &words);
        assert_eq!(shut.outcome, "refused", "control: {words:?}: {shut:?}");
        assert_eq!(lab.received(), before, "control: {words:?}");
    }
    let more = [
        exception("root", "192.0.2.2:80", "tcp", LATER),
        exception("root", "[2001:db8::2]:80", "tcp", LATER),
        exception("root", "192.0.2.2:53", "udp", LATER),
        exception("root", "[2001:db8::2]:53", "udp", LATER),
    ];
    lab.write_config("guest", &more.concat());
    lab.shut();
    for words in open {
        let attempt = lab.attempt(0, &words);
        assert_eq!(attempt.outcome, "reached", "{words:?}: {attempt:?}");
    }
    for (uid, words) in [
        (0, &["tcp", PEER4, "443"][..]),
        (0, &["tcp", PEER6, "53"]),
        (0, &["udp", PEER4, "80"]),
        (0, &["udp", PEER6, "443"]),
        (0, &["raw", PEER4]),
        (0, &["icmp", PEER6]),
        (MONITOR, &["tcp", PEER4, "80"]),
        (AGENT, &["udp", PEER6, "53"]),
    ] {
        let before = lab.received();
        let attempt = lab.attempt(uid, words);
        assert_ne!(
            attempt.outcome, "reached",
            "uid {uid}: {words:?}: {attempt:?}"
        );
        assert_eq!(lab.received(), before, "uid {uid}: {words:?}");
    }
}

/// Provisioning: apt fetches as `_apt`, and nobody else gets to the mirror.
/// Attack: KRN-19
#[test]
fn apt_fetches_from_the_mirror_that_an_exception_names() {
    let lab = Lab::new("guest");
    // Without a group for its files it fetches as root.
    host::file(&lab.path("etc/group"), "root:x:0:\n", 0, 0o644);
    let mirror = lab.path("mirror");
    host::directory(&mirror, 0, 0o755);
    host::file(&mirror.join("Packages"), "", 0, 0o644);
    let serve = "import http.server as h; s = h.HTTPServer((\"\", 8080), h.SimpleHTTPRequestHandler); \
                 print(\"serves\", flush=True); s.serve_forever()";
    let server = Program::new("python3")
        .args(["-c", serve])
        .in_directory(&mirror)
        .in_netns(&lab.peer);
    let _mirror = Running::start(server, "serves");
    lab.shut();
    let shut = update(&lab);
    assert_ne!(shut.code(), 0, "{}", shut.shown());
    assert!(lab.refused(APT) > 0, "{}", lab.counters());
    let named = lab.boundary(&["counters"]).ok().stdout;
    assert!(named.contains("_apt"), "{named}");

    let mirror = exception("_apt", "192.0.2.2:8080", "tcp", LATER);
    lab.write_config("guest", &mirror);
    lab.shut();
    let before = lab.received();
    update(&lab).ok();
    assert!(lab.received() > before);
    for (uid, port) in [(APT, "80"), (MONITOR, "8080"), (0, "8080")] {
        let attempt = lab.attempt(uid, &["tcp", PEER4, port]);
        assert_eq!(
            attempt.outcome, "refused",
            "uid {uid} at {port}: {attempt:?}"
        );
    }
}

/// `apt-get update` from the peer's mirror, with nothing of this machine's own apt.
fn update(lab: &Lab) -> Finished {
    let state = lab.path("apt");
    let below = |name: &str| state.join(name).display().to_string();
    for name in ["", "lists/partial", "cache/archives/partial", "parts"] {
        host::directory(&state.join(name), 0, 0o755);
    }
    host::file(
        &state.join("sources.list"),
        "deb [trusted=yes] http://192.0.2.2:8080/ ./\n",
        0,
        0o644,
    );
    let mut words = ["apt-get", "update", "--error-on=any"]
        .map(str::to_owned)
        .to_vec();
    for option in [
        format!("Dir::Etc::SourceList={}", below("sources.list")),
        format!("Dir::Etc::SourceParts={}", below("parts")),
        format!("Dir::State::Lists={}", below("lists")),
        format!("Dir::Cache={}", below("cache")),
        "APT::Sandbox::User=_apt".to_owned(),
        "Acquire::Retries=0".to_owned(),
        "Acquire::Languages=none".to_owned(),
    ] {
        words.extend(["-o".to_owned(), option]);
    }
    lab.on_host(words).run()
}

/// RFC 3339 in UTC, from the system's own `date`.
fn rfc3339(time: SystemTime) -> String {
    let seconds = time
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    Program::new("date")
        .args(["-u", "-d", &format!("@{seconds}"), "+%Y-%m-%dT%H:%M:%SZ"])
        .run()
        .ok()
        .stdout
        .trim()
        .to_owned()
}
