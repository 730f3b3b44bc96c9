//! Whatever root does to the rules is noticed, told and put back; what somebody applied is kept.

use tests::{binaries, wait};

use super::lab::{AGENT, Lab, MONITOR, PEER4, PEER6, Running, status};

const TABLE: &str = "portcullis-lab";
/// A firewall manager's restart: everything goes, its own table comes.
const MANAGER: &str = "flush ruleset
table inet manager {
    chain out {
        type filter hook output priority 0; policy accept;
        ct state established accept
    }
}
";

fn refused(lab: &Lab) -> bool {
    lab.attempt(AGENT, &["tcp", PEER4, "443"]).outcome == "refused"
}

fn root(lab: &Lab, line: &str) {
    let words = line.split(' ').map(str::to_owned);
    lab.on_host(words).run().ok();
}

#[test]
fn what_root_does_is_put_back_and_its_program_is_named() {
    for scope in ["agents", "guest"] {
        let lab = Lab::new(scope);
        lab.shut();
        let watch = Running::start(lab.boundary_program(&["watch"]), "stands");
        std::fs::write(lab.path("manager.nft"), MANAGER).unwrap();
        let manager = format!("nft -f {}", lab.path("manager.nft").display());
        for (line, expected) in [
            ("nft flush ruleset", "missing: table"),
            ("nft delete table inet portcullis-lab", "missing: table"),
            (
                "nft flush chain inet portcullis-lab output",
                "missing: rule output/",
            ),
            (
                "nft insert rule inet portcullis-lab output accept",
                "extra: rule output/",
            ),
            (manager.as_str(), "missing: table"),
        ] {
            root(&lab, line);
            let told = watch.until("were put back");
            assert!(told.contains("by nft (pid "), "{line}: {told}");
            watch.until(expected);
            wait::until_true("the rules stand", || lab.boundary(&["verify"]).code() == 0);
            assert!(refused(&lab), "{scope}: after {line}");
        }
        // iptables speaks of tables of its own: nothing of ours is lost or overruled.
        for (line, place) in [
            ("iptables-nft -I OUTPUT -j ACCEPT", "table ip filter"),
            ("ip6tables-nft -I OUTPUT -j ACCEPT", "table ip6 filter"),
            (
                "iptables-nft -t mangle -I OUTPUT -j ACCEPT",
                "table ip mangle",
            ),
        ] {
            root(&lab, line);
            let told = watch.until("; the boundary stands");
            assert!(told.contains("tables-nft (pid "), "{line}: {told}");
            assert!(told.contains(place), "{line}: {told}");
            assert!(refused(&lab), "{scope}: after {line}");
        }
        for line in [
            "iptables-nft -F",
            "ip6tables-nft -F",
            "iptables-nft -P OUTPUT ACCEPT",
        ] {
            root(&lab, line);
            wait::until_true("the rules stand", || lab.boundary(&["verify"]).code() == 0);
            assert!(refused(&lab), "{scope}: after {line}");
        }
        let events = wait::until("events", || status(&lab.status())).events;
        let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
        assert_eq!(kinds.first(), Some(&"standing"), "{events:?}");
        assert!(
            kinds.iter().filter(|kind| **kind == "reasserted").count() >= 4,
            "{events:?}"
        );
        // Each says what made the watcher look; a look that was due in that very moment may have been first.
        for event in events.iter().filter(|event| event.kind == "reasserted") {
            let noticed = match event.cause.as_deref() {
                Some("notice") => true,
                Some("look") => false,
                _ => panic!("{event:?}"),
            };
            assert_eq!(event.after_ms.is_some(), noticed, "{event:?}");
        }
        // Its successor knows of them.
        drop(watch);
        let _watch = Running::start(lab.boundary_program(&["watch"]), "stands");
        wait::until_true("the events are carried on", || {
            status(&lab.status()).is_some_and(|status| {
                status.events.iter().any(|event| event.kind == "reasserted")
                    && status
                        .events
                        .last()
                        .is_some_and(|event| event.kind == "standing")
            })
        });
    }
}

/// The kernel names programs by their numbers in the first pid namespace; in another the watcher cannot see its own.
#[test]
fn in_a_pid_namespace_the_watcher_knows_its_own_changes() {
    for (scope, wrapped) in [("agents", true), ("guest", true), ("agents", false)] {
        let lab = Lab::new(scope);
        lab.shut();
        let mut words = Vec::new();
        if wrapped {
            let unshare = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
            words.extend(unshare.map(str::to_owned));
        }
        words.push(binaries::path("portcullis-boundary").display().to_string());
        words.push("--config".to_owned());
        words.push(lab.path("boundary.toml").display().to_string());
        words.push("watch".to_owned());
        let watch = Running::start(lab.on_host(words), "stands");
        for line in [
            "nft flush ruleset",
            "nft flush chain inet portcullis-lab output",
        ] {
            root(&lab, line);
            let told = watch.until("were put back");
            let (_, authors) = told
                .split_once("(changed by nft (pid ")
                .unwrap_or_else(|| panic!("{told}"));
            assert!(!authors.contains(','), "{scope}: nobody else did: {told}");
            wait::until_true("the rules stand", || lab.boundary(&["verify"]).code() == 0);
        }
    }
}

/// A lower first port shuts more; when the setting is raised again that stands, is no fault, and `apply` takes it back.
#[test]
fn a_first_port_that_is_raised_again_is_no_opening() {
    let lab = Lab::new("agents");
    lab.shut();
    let name = "net/ipv4/ip_unprivileged_port_start";
    let from = |port: u16| {
        let chain = ["list", "chain", "inet", TABLE, "output"];
        let listed = lab.nft(&chain).ok().stdout;
        let line = listed
            .lines()
            .find(|line| line.contains("no handshake of nobody's"));
        line.unwrap().contains(&format!("tcp sport >= {port} "))
    };
    let watch = Running::start(lab.boundary_program(&["watch"]), "stands");
    assert!(from(1024), "control");
    lab.sysctl(name, "80");
    watch.until("another ruleset was due");
    assert!(from(80), "control");
    lab.sysctl(name, "1024");
    let raised = status(&lab.status()).unwrap().boottime_ms;
    wait::until_true("two more rounds", || {
        status(&lab.status()).is_some_and(|status| {
            assert!(status.ok, "{status:?}");
            status.boottime_ms > raised + 2000
        })
    });
    assert!(from(80));
    lab.boundary(&["verify"]).ok();
    // What stands is what is put back, and a successor finds it as it is.
    lab.nft(&["flush", "ruleset"]).ok();
    watch.until("were put back");
    assert!(from(80));
    drop(watch);
    let watch = Running::start(lab.boundary_program(&["watch"]), "stands");
    assert!(from(80));
    // Still a drift of that rule is one.
    lab.nft(&["flush", "chain", "inet", TABLE, "output"]).ok();
    watch.until("were put back");
    lab.boundary(&["verify"]).ok();
    lab.shut();
    watch.until("was applied and is what the configuration means now");
    assert!(from(1024));
    lab.boundary(&["verify"]).ok();
}

/// An edited file changes nothing; `apply` is the decision, and the watcher keeps to it.
#[test]
fn what_was_applied_is_adopted_and_an_edited_file_is_not() {
    let lab = Lab::new("guest");
    let watch = Running::start(lab.boundary_program(&["watch"]), "stands");
    let words = ["tcp", PEER4, "80"];
    assert_eq!(lab.attempt(MONITOR, &words).outcome, "refused", "control");
    let exception = "[[exception]]\nuser = \"lab-monitor\"\ndestination = \"192.0.2.2:80\"\n\
                     reason = \"a test\"\nexpires = \"2999-01-01T00:00:00Z\"\n";
    lab.write_config("guest", exception);
    let first = status(&lab.status()).unwrap().boottime_ms;
    wait::until_true("two more rounds", || {
        status(&lab.status()).is_some_and(|status| status.ok && status.boottime_ms > first + 2000)
    });
    assert_eq!(
        lab.attempt(MONITOR, &words).outcome,
        "refused",
        "a file is no decision"
    );
    lab.shut();
    watch.until("was applied and is what the configuration means now");
    assert_eq!(lab.attempt(MONITOR, &words).outcome, "reached");
    // From now on this is what is put back.
    lab.nft(&["flush", "ruleset"]).ok();
    watch.until("were put back");
    assert_eq!(lab.attempt(MONITOR, &words).outcome, "reached");
    assert!(refused(&lab));
}

/// Ten applies and as many watchers that come and go: never a gap, never a quarrel.
/// Attack: KRN-08
#[test]
fn apply_and_watchers_restart_without_a_gap() {
    let lab = Lab::new("agents");
    lab.shut();
    let before = lab.received();
    let mut refused = lab.refused(AGENT);
    let _spin = lab.start(AGENT, &["spin", PEER4, PEER6, "443"], "spinning");
    for round in 0..10 {
        let watch = Running::start(lab.boundary_program(&["watch"]), "stands");
        // Each load counts anew: that the agent sends is seen once in every round.
        wait::until_true("control: the agent sends", || lab.refused(AGENT) > refused);
        let exception = format!(
            "[[exception]]\nuser = \"lab-monitor\"\ndestination = \"203.0.113.1:{}\"\n\
             reason = \"changes the rules\"\nexpires = \"2999-01-01T00:00:00Z\"",
            1000 + round
        );
        lab.write_config("agents", &exception);
        lab.shut();
        refused = 0;
        watch.until("was applied");
        drop(watch);
    }
    lab.boundary(&["verify"]).ok();
    assert_eq!(lab.received(), before);
    // The same agent, still sending: without the rules all of it arrives.
    lab.open();
    for family in ["four", "six"] {
        let seen = lab.received_by(family);
        wait::until_true("control: what the agent sends arrives", || {
            lab.received_by(family) > seen + 10
        });
    }
}

/// An opening that the accounts suggest waits for a decision, which is `apply`.
#[test]
fn apply_decides_what_the_watcher_would_not_open() {
    let lab = Lab::new("agents");
    let watch = Running::start(lab.boundary_program(&["watch"]), "stands");
    let passwd = std::fs::read_to_string(lab.path("etc/passwd")).unwrap();
    let moved = passwd.replace(&format!("lab-agent:x:{AGENT}:"), "lab-agent:x:61599:");
    std::fs::write(lab.path("etc/passwd"), moved).unwrap();
    watch.until("NOT PROVEN");
    assert!(refused(&lab), "control: not by itself");
    lab.shut();
    watch.until("was applied");
    watch.until("stands again");
    assert!(!refused(&lab));
}

#[test]
fn the_last_minute_is_known_and_said_in_a_sentence() {
    let lab = Lab::new("agents");
    lab.shut();
    lab.attempt(AGENT, &["tcp", PEER4, "443"]);
    let text = lab.boundary(&["counters"]).ok().stdout;
    assert!(
        text.contains("uid 61500 (lab-agent) was refused 1 time since the rules were loaded"),
        "{text}"
    );
    let watch = Running::start(lab.boundary_program(&["watch"]), "stands");
    wait::until_true("the watcher took a sample", || {
        lab.path("run/refusals.json").exists()
    });
    for _ in 0..3 {
        lab.attempt(AGENT, &["tcp", PEER4, "443"]);
    }
    let text = lab.boundary(&["counters"]).ok().stdout;
    let expected = "uid 61500 (lab-agent) was refused 3 times in the last minute, 4 times in all";
    assert!(text.contains(expected), "{text}");
    // Over a replacement of the rules, which begins the kernel's counters anew.
    wait::until_true("the watcher saw them", || {
        let text = std::fs::read_to_string(lab.path("run/refusals.json")).unwrap();
        text.contains("\"last\":{\"61500\":4}")
    });
    lab.nft(&["flush", "ruleset"]).ok();
    watch.until("were put back");
    lab.attempt(AGENT, &["tcp", PEER4, "443"]);
    let counters = lab.counters();
    let user = &counters["users"][0];
    assert_eq!(user["packets"], 1, "{counters}");
    assert_eq!(user["packets_watched"], 5, "{counters}");
    assert_eq!(user["packets_last_minute"], 4, "{counters}");
}

#[test]
fn monitor_tells_who_changes_rules_and_who_is_refused() {
    let lab = Lab::new("agents");
    lab.shut();
    let plain = Running::start(
        lab.boundary_program(&["monitor"]),
        "listening to table inet",
    );
    let json = Running::start(lab.boundary_program(&["monitor", "--json"]), "listening");
    lab.attempt(AGENT, &["tcp", PEER4, "443"]);
    plain.until("uid 61500 (lab-agent) is refused now: 1 time so far");
    let line = json.until("\"first\"");
    let value: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(
        (&value["uid"], &value["user"]),
        (&61_500.into(), &"lab-agent".into())
    );
    let watch = Running::start(lab.boundary_program(&["watch"]), "stands");
    plain.until("watcher: ruleset");
    lab.nft(&["delete", "table", "inet", TABLE]).ok();
    let told = plain.until("nft (pid ");
    assert!(
        told.ends_with("changed table inet portcullis-lab"),
        "{told}"
    );
    plain.until("watcher: rules had changed and were put back");
    let line = json.until("\"reasserted\"");
    let value: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(value["kind"], "watcher", "{value}");
    drop(watch);
    assert_eq!(plain.terminate(), Some(0));
}

/// The word that whoever starts an agent asks for: nobody needs privilege to hear it.
#[test]
fn proven_while_the_watcher_lives_and_not_after() {
    let lab = Lab::new("agents");
    let copy = lab.path("portcullis-boundary");
    std::fs::copy(tests::binaries::path("portcullis-boundary"), &copy).unwrap();
    let uid = AGENT.to_string();
    let status = lab.status().display().to_string();
    let ask = || {
        let words = [
            "setpriv",
            "--reuid",
            &uid,
            "--regid",
            &uid,
            "--clear-groups",
        ];
        let mut words: Vec<String> = words.map(str::to_owned).to_vec();
        words.push(copy.display().to_string());
        words.extend(["proven", "--status", &status].map(str::to_owned));
        lab.on_host(words).run()
    };
    assert_eq!(ask().code(), 2, "{}", ask().shown());
    let watch = Running::start(lab.boundary_program(&["watch"]), "stands");
    let finished = ask().ok();
    assert!(
        finished.stdout.contains("is proven"),
        "{}",
        finished.shown()
    );
    drop(watch);
    wait::until_true("the word gets stale", || {
        let finished = ask();
        finished.code() == 1 && finished.stderr.contains("s old")
    });
    std::fs::set_permissions(
        lab.status(),
        std::os::unix::fs::PermissionsExt::from_mode(0o666),
    )
    .unwrap();
    let finished = ask();
    assert_eq!(finished.code(), 2);
    assert!(
        finished.stderr.contains("others than root"),
        "{}",
        finished.shown()
    );
}

/// Other tables have their say; one that rewrites after this table judged is a breach.
#[test]
fn another_table_that_could_undo_a_judgement_is_told() {
    let lab = Lab::new("agents");
    lab.shut();
    let table = |priority: i32| {
        format!(
            "table inet theirs {{\n chain c {{\n type nat hook output priority {priority}; policy accept;\n\
             tcp dport 3128 dnat ip to 192.0.2.2:443\n }}\n}}\n"
        )
    };
    lab.host.nft(&table(-90));
    let finished = lab.boundary(&["verify"]).ok();
    assert!(
        finished.stderr.contains("warning: table inet theirs/c"),
        "{}",
        finished.shown()
    );
    let before = lab.received();
    let attempt = lab.attempt(AGENT, &["tcp", "127.0.0.1", "3128"]);
    assert_ne!(
        attempt.outcome, "reached",
        "judged as rewritten: {attempt:?}"
    );
    assert_eq!(lab.received(), before);

    lab.nft(&["delete", "table", "inet", "theirs"]).ok();
    let watch = Running::start(lab.boundary_program(&["watch"]), "stands");
    lab.host.nft(&table(50));
    let finished = lab.boundary(&["verify"]);
    assert_eq!(finished.code(), 1, "{}", finished.shown());
    assert!(
        finished.stdout.contains("foreign: table inet theirs/c"),
        "{}",
        finished.shown()
    );
    watch.until("NOT PROVEN");
    lab.nft(&["delete", "table", "inet", "theirs"]).ok();
    watch.until("stands again");
    // Docker's way: source translation on the way out breaks nothing.
    lab.host.nft(
        "table ip docker {\n chain p {\n type nat hook postrouting priority 100; policy accept;\n\
         ip saddr 172.17.0.0/16 masquerade\n }\n}\n",
    );
    lab.boundary(&["verify"]).ok();
}

/// Moving a rule is a change like any: order carries the meaning.
#[test]
fn verify_names_a_rule_that_was_moved() {
    let lab = Lab::new("agents");
    lab.shut();
    let listed = lab
        .nft(&["-a", "list", "chain", "inet", TABLE, "output"])
        .ok()
        .stdout;
    let line = listed
        .lines()
        .find(|line| line.contains("to the gate over IPv4"))
        .unwrap();
    let (rule, handle) = line.trim().rsplit_once(" # handle ").unwrap();
    lab.nft(&["delete", "rule", "inet", TABLE, "output", "handle", handle])
        .ok();
    lab.host
        .nft(&format!("add rule inet {TABLE} output {rule}\n"));
    let finished = lab.boundary(&["verify"]);
    assert_eq!(finished.code(), 1, "{}", finished.shown());
    assert!(
        finished.stdout.contains("changed: rule output/"),
        "{}",
        finished.shown()
    );
    assert!(
        finished.stdout.contains("stands at place"),
        "{}",
        finished.shown()
    );
}

/// Whoever can be many users can fill the list; what is refused beyond it is refused, counted, and said to be unnamed.
#[test]
fn a_full_list_of_refused_users_is_said() {
    let lab = Lab::new("agents");
    lab.shut();
    assert_eq!(lab.counters()["users_full"], false, "control");
    let monitor = Running::start(lab.boundary_program(&["monitor"]), "listening");
    let size = nftables::ruleset::SET_REFUSED_SIZE;
    let users: Vec<String> = (1_000_000..1_000_000 + size)
        .map(|uid| uid.to_string())
        .collect();
    lab.host.nft(&format!(
        "add element inet {TABLE} refused_uids {{ {} }}\n",
        users.join(", ")
    ));
    monitor.until("the kernel's list of refused users is full with 65,535");
    assert!(refused(&lab));
    let counters = lab.counters();
    assert_eq!(counters["users_full"], true);
    let users = counters["users"].as_array().unwrap();
    let named = users.iter().any(|user| user["uid"] == AGENT);
    assert!(!named, "there is no room for it");
    let totals = counters["totals"].as_array().unwrap();
    let total = totals.iter().find(|total| total["name"] == "refused");
    assert_eq!(total.unwrap()["packets"], 1, "counted in total");
    let text = lab.boundary(&["counters"]).ok().stdout;
    assert!(text.contains("is full with 65,535"), "{}", text.len());
    // The next load begins anew.
    lab.nft(&["flush", "chain", "inet", TABLE, "output"]).ok();
    lab.shut();
    assert!(refused(&lab));
    assert_eq!(lab.counters()["users_full"], false);
    assert!(lab.refused(AGENT) > 0);
}
