//! Programs that know no proxy: their flows and their questions are led to the gate.

use tests::wait;

use super::lab::{AGENT, GATE, HOST4, HOST6, Lab, MONITOR, OTHER_AGENT, PEER4, PEER6, Running};

const SCOPES: [&str; 2] = ["agents", "guest"];
const LOOPBACK: [&str; 2] = ["127.0.0.1", "::1"];
const REDIRECT: &str = "3129";
const RESOLVER: &str = "3153";
const BOTH: &str = "[redirect]\nport = 3129\n[resolver]\nport = 3153\n";

fn lab(scope: &str, more: &str) -> Lab {
    let lab = Lab::new(scope);
    lab.write_config(scope, more);
    lab
}

/// What the gate will be: takes connections on the redirect port, answers questions.
fn gate(lab: &Lab, uid: u32) -> Vec<Running> {
    LOOPBACK
        .iter()
        .flat_map(|address| {
            [
                lab.start(uid, &["take", address, REDIRECT], "listening"),
                lab.start(uid, &["answer", address, RESOLVER], "listening"),
                lab.start(uid, &["listen", address, RESOLVER], "listening"),
            ]
        })
        .collect()
}

#[test]
fn flows_and_questions_go_to_the_gate_and_nowhere_else() {
    for scope in SCOPES {
        let lab = lab(scope, BOTH);
        let gate = gate(&lab, GATE);
        lab.open();
        let before = lab.received();
        for words in [
            ["tcp", PEER4, "443"],
            ["tcp", PEER6, "8443"],
            ["dns", PEER4, "53"],
        ] {
            let open = lab.attempt(AGENT, &words);
            assert_eq!(open.outcome, "reached", "control: {words:?}: {open:?}");
        }
        assert!(lab.received() > before + 2, "control: the peer answered");
        lab.settle();
        lab.shut();
        lab.boundary(&["verify"]).ok();
        let before = lab.received();
        // Any port, also to a place that no route leads to.
        for (words, listener, meant) in [
            (["tcp", PEER4, "443"], 0, "192.0.2.2:443"),
            (["tcp", PEER6, "8443"], 3, "[2001:db8::2]:8443"),
            (["tcp", "203.0.113.9", "80"], 0, "203.0.113.9:80"),
            (["tcp", "2001:db8:9::9", "22"], 3, "[2001:db8:9::9]:22"),
        ] {
            let led = lab.attempt(AGENT, &words);
            assert_eq!(led.outcome, "reached", "{scope}: {words:?}: {led:?}");
            let said = gate[listener].until("taken");
            assert!(said.ends_with(meant), "{scope}: {said} is not {meant}");
        }
        for words in [
            ["dns", PEER4, "53"],
            ["dns", PEER6, "53"],
            ["dns", "203.0.113.9", "53"],
            ["dns", "127.0.0.53", "53"],
            ["tcp", PEER4, "53"],
            ["tcp", PEER6, "53"],
        ] {
            let led = lab.attempt(AGENT, &words);
            assert_eq!(led.outcome, "reached", "{scope}: {words:?}: {led:?}");
        }
        assert_eq!(lab.refused(AGENT), 0, "{scope}: {}", lab.counters());
        // What is not led anywhere is refused as ever, at once.
        for (words, errno) in [
            (["udp", PEER4, "443"], "EPERM"),
            (["udp", PEER6, "443"], "EPERM"),
            (["udp", "203.0.113.9", "443"], "EPERM"),
            (["tcp", HOST4, "443"], "ECONNREFUSED"),
            (["tcp", HOST6, "443"], "ECONNREFUSED"),
        ] {
            let shut = lab.attempt(AGENT, &words);
            assert_eq!(shut.errno.as_deref(), Some(errno), "{scope}: {words:?}");
        }
        assert_eq!(
            lab.received(),
            before,
            "{scope}: something reached the peer"
        );
        // The detour is for those who are redirected alone.
        let free = if scope == "agents" { 0 } else { GATE };
        let elsewhere = lab.attempt(free, &["tcp", "203.0.113.9", "80"]);
        assert_eq!(elsewhere.errno.as_deref(), Some("ENETUNREACH"), "{scope}");
    }
}

/// Only what is older than the rules is cut; what the rules led to the gate goes on when they are loaded again.
#[test]
fn a_led_flow_outlives_a_load_and_an_older_one_does_not() {
    let lab = lab("agents", "");
    for (peer, address) in [(PEER4, "127.0.0.1"), (PEER6, "::1")] {
        lab.write_config("agents", BOTH);
        lab.open();
        let _gate = lab.start(GATE, &["stay", address, REDIRECT], "listening");
        let mut older = lab.start(AGENT, &["hold", peer, "443"], "open");
        let cut = |reason: &str| {
            let exception = format!(
                "[[exception]]\nuser = \"lab-monitor\"\ndestination = \"192.0.2.2:80\"\n\
                 reason = \"{reason}\"\nexpires = \"2999-01-01T00:00:00Z\"\n"
            );
            lab.write_config("agents", &format!("{BOTH}{exception}"));
            let applied = lab.boundary(&["apply", "--json"]).ok().stdout;
            let applied: serde_json::Value = serde_json::from_str(&applied).unwrap();
            assert_eq!(applied["changed"], true, "{applied}");
            applied["connections_closed"].as_u64().unwrap()
        };
        assert_eq!(cut("first"), 1, "control: {peer}");
        older.say("again");
        assert_ne!(older.finish().outcome, "reached", "control: {peer}");

        let mut led = lab.start(AGENT, &["hold", peer, "443"], "open");
        let before = lab.received();
        assert_eq!(cut("second"), 0, "{peer}");
        led.say("again");
        assert_eq!(led.finish().outcome, "reached", "{peer}");
        assert_eq!(lab.received(), before, "{peer}");
    }
}

/// A direct dial would show the gate its own address as the place that was meant.
#[test]
fn nobody_dials_the_redirect_or_resolver_port_directly() {
    for scope in SCOPES {
        let lab = lab(scope, BOTH);
        let _gate = gate(&lab, GATE);
        for address in LOOPBACK {
            for words in [
                ["tcp", address, REDIRECT],
                ["tcp", address, RESOLVER],
                ["udp", address, RESOLVER],
            ] {
                lab.open();
                let open = lab.attempt(AGENT, &words);
                let control = if words[1..] == [address, REDIRECT] {
                    "original"
                } else {
                    "reached"
                };
                assert!(
                    open.outcome == "reached" || control == "original",
                    "{words:?}: {open:?}"
                );
                lab.shut();
                let shut = lab.attempt(AGENT, &words);
                assert_eq!(shut.outcome, "refused", "{scope}: {words:?}: {shut:?}");
            }
        }
    }
}

/// The squatter rule holds for each port of the gate, by both protocols.
/// Attack: KRN-24
#[test]
fn krn_24_squatting_on_the_redirect_and_resolver_ports() {
    for scope in SCOPES {
        let lab = lab(scope, BOTH);
        let dials = [
            ["tcp", PEER4, "443"],
            ["tcp", PEER6, "443"],
            ["dns", PEER4, "53"],
            ["dns", PEER6, "53"],
            ["tcp", PEER4, "53"],
            ["tcp", PEER6, "53"],
        ];
        let squatters = gate(&lab, OTHER_AGENT);
        lab.shut();
        for words in dials {
            let before = lab.total("squatted");
            let shut = lab.attempt(AGENT, &words);
            assert_ne!(
                shut.outcome, "reached",
                "{scope}: {words:?}: a squatter answered"
            );
            assert!(lab.total("squatted") > before, "{scope}: {words:?}");
        }
        drop(squatters);
        // The control: the gate's own answers pass by the same rules.
        let _gate = gate(&lab, GATE);
        for words in dials {
            let led = lab.attempt(AGENT, &words);
            assert_eq!(led.outcome, "reached", "{scope}: {words:?}: {led:?}");
        }
    }
}

#[test]
fn a_dead_gate_is_heard_at_once() {
    for scope in SCOPES {
        let lab = lab(scope, BOTH);
        lab.shut();
        for words in [
            ["tcp", PEER4, "443"],
            ["tcp", PEER6, "443"],
            ["ask", PEER4, "53"],
            ["ask", PEER6, "53"],
        ] {
            let attempt = lab.attempt(AGENT, &words);
            let errno = attempt.errno.as_deref();
            assert_eq!(
                errno,
                Some("ECONNREFUSED"),
                "{scope}: {words:?}: {attempt:?}"
            );
        }
    }
}

#[test]
fn listed_ports_alone_are_led_and_exceptions_are_not() {
    for scope in SCOPES {
        let (user, name) = match scope {
            "guest" => (MONITOR, "lab-monitor"),
            _ => (OTHER_AGENT, "lab-other"),
        };
        let more = format!(
            "[redirect]\nport = 3129\nports = [443]\n[[exception]]\nuser = \"{name}\"\n\
             destination = \"192.0.2.2:443\"\nreason = \"a test\"\nexpires = \"2999-01-01T00:00:00Z\"\n"
        );
        let lab = lab(scope, &more);
        let gate = gate(&lab, GATE);
        lab.shut();
        let before = lab.received();
        assert_eq!(
            lab.attempt(AGENT, &["tcp", PEER4, "443"]).outcome,
            "reached",
            "{scope}"
        );
        gate[0].until("taken 192.0.2.2:443");
        let other = lab.attempt(AGENT, &["tcp", PEER4, "80"]);
        assert_eq!(
            other.errno.as_deref(),
            Some("ECONNREFUSED"),
            "{scope}: {other:?}"
        );
        assert_eq!(lab.received(), before, "{scope}");
        let excepted = lab.attempt(user, &["tcp", PEER4, "443"]);
        assert_eq!(excepted.outcome, "reached", "{scope}: {excepted:?}");
        assert!(
            lab.received() > before,
            "{scope}: it reached the place it was meant for"
        );
    }
}

/// Route, routing rule and the rules that redirect: each loss is named, and put back.
#[test]
fn verify_names_lost_routes_and_the_watcher_puts_them_back() {
    for scope in SCOPES {
        let lab = lab(scope, BOTH);
        lab.shut();
        let text = lab.boundary(&["render"]).ok().stdout;
        let table = text
            .split(" table ")
            .last()
            .and_then(|rest| rest.split_whitespace().next());
        let table = text
            .lines()
            .find_map(|line| {
                line.strip_prefix("# ip -4 route add default dev lo src 127.0.0.1 table ")
            })
            .or(table)
            .unwrap()
            .to_owned();
        let losses: [(Vec<&str>, &str); 4] = [
            (
                vec!["-4", "route", "flush", "table", &table],
                "missing: IPv4 route",
            ),
            (
                vec!["-6", "route", "flush", "table", &table],
                "missing: IPv6 route",
            ),
            (
                vec!["-4", "rule", "del", "lookup", &table],
                "missing: IPv4 routing rule",
            ),
            (
                vec!["-6", "rule", "del", "lookup", &table],
                "missing: IPv6 routing rule",
            ),
        ];
        for (words, expected) in &losses {
            lab.host.ip(words);
            let finished = lab.boundary(&["verify"]);
            assert_eq!(finished.code(), 1, "{}", finished.shown());
            assert!(finished.stdout.contains(expected), "{}", finished.shown());
            lab.shut();
            lab.boundary(&["verify"]).ok();
        }
        let watch = Running::start(lab.boundary_program(&["watch"]), "stands");
        for (words, expected) in &losses {
            lab.host.ip(words);
            watch.until("were put back");
            watch.until(expected);
        }
        lab.nft(&["flush", "chain", "inet", "portcullis-lab", "redirection"])
            .ok();
        watch.until("missing: rule redirection/");
        wait::until_true("all stands again", || lab.boundary(&["verify"]).code() == 0);
        drop(watch);
        lab.open();
        for family in ["-4", "-6"] {
            assert!(
                !lab.host.ip(&[family, "rule"]).contains(&table),
                "{scope}: rules stay behind"
            );
            let routes = lab.host.ip(&[family, "route", "show", "table", "all"]);
            assert!(!routes.contains(&table), "{scope}: routes stay behind");
        }
    }
}
