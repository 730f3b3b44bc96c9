//! Each kind of drift is heard from the kernel, and not found by the look that comes every second: here that look comes
//! once an hour.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nftables::config::Config;
use nftables::netlink::Monitor;
use nftables::watch;
use nix::fcntl::{FcntlArg, fcntl};
use tests::wait;

use super::lab::{AGENT, Lab, PEER4, PEER6, Running};

const LED: &str = "[redirect]\nport = 3129\n[resolver]\nport = 3153\n";
const HOUR: Duration = Duration::from_secs(3600);

/// The watcher as a thread, as `portcullis-boundary watch` runs it but for the time between its looks.
struct Patient {
    told: Receiver<Told>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Told {
    kind: &'static str,
    cause: Option<&'static str>,
    text: String,
}

impl Patient {
    fn start(lab: &Lab) -> Self {
        let config = Config::load(&lab.path("boundary.toml")).unwrap();
        let (sender, told) = mpsc::channel();
        let over = Arc::new(AtomicBool::new(false));
        let (enter, stop) = (lab.enter(), Arc::clone(&over));
        let thread = thread::spawn(move || {
            enter();
            let tell = |event: &watch::Event| {
                let told = Told {
                    kind: event.kind(),
                    cause: event.cause().map(watch::Cause::as_str),
                    text: event.text(),
                };
                // The test may have what it wanted.
                let _over = sender.send(told);
            };
            watch::run_every(HOUR, &config, || stop.load(Ordering::SeqCst), tell).unwrap();
        });
        let patient = Self {
            told,
            over,
            thread: Some(thread),
        };
        patient.until("standing");
        patient
    }

    #[track_caller]
    fn until(&self, kind: &str) -> Told {
        let mut seen = Vec::new();
        loop {
            match self.told.recv_timeout(wait::PATIENCE) {
                Ok(told) if told.kind == kind => return told,
                Ok(told) => seen.push(told),
                Err(error) => panic!("{error} waiting for {kind}, saw {seen:#?}"),
            }
        }
    }
}

impl Drop for Patient {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        let thread = self.thread.take().map(JoinHandle::join);
        if !thread::panicking() {
            thread.unwrap().unwrap();
        }
    }
}

/// A firewall manager's restart: everything goes, its own table comes.
const MANAGER: &str = "printf 'flush ruleset\ntable inet manager { chain out { type filter hook output priority 0; \
                       ct state established accept; }\n}\n' | nft -f -";

/// So much in one transaction that the kernel's notices of it do not fit into a listener's buffer.
const CROWD: &str = "{ echo 'delete table inet portcullis-lab'; echo 'table inet crowd {'; \
                     seq 20000 | sed 's/.*/chain c& { counter\n}/'; echo '}'; } | nft -f - && nft delete table inet crowd";

/// What root may do, by kinds: all at once, a table, a chain, a rule more or less, a policy, an element, a set, a flag,
/// a route, a routing rule.
fn kinds(scope: &str) -> Vec<&'static str> {
    let mut kinds = vec![
        "nft flush ruleset",
        MANAGER,
        CROWD,
        "nft delete table inet portcullis-lab",
        "nft flush table inet portcullis-lab",
        "nft flush chain inet portcullis-lab output",
        "nft insert rule inet portcullis-lab output accept",
        "nft add rule inet portcullis-lab output counter",
        "nft add chain inet portcullis-lab another '{ type filter hook output priority -1; }'",
        "nft add table inet portcullis-lab '{ flags dormant; }'",
        "nft flush chain inet portcullis-lab redirection",
        "ip -4 rule del priority 33000",
        "ip -6 rule del priority 33000",
        "for table in $(ip -4 rule | sed -n 's/^33000:.*lookup //p' | sort -u); do ip -4 route flush table $table; done",
        "for table in $(ip -6 rule | sed -n 's/^33000:.*lookup //p' | sort -u); do ip -6 route flush table $table; done",
        "ip link set lo down",
    ];
    match scope {
        "agents" => kinds.extend([
            "nft flush set inet portcullis-lab agents",
            "nft add element inet portcullis-lab agents '{ 5 }'",
        ]),
        _ => kinds.extend([
            "nft chain inet portcullis-lab output '{ policy accept; }'",
            "nft chain inet portcullis-lab forward '{ policy accept; }'",
            "nft flush chain inet portcullis-lab input",
        ]),
    }
    kinds
}

fn root(lab: &Lab, line: &str) {
    let words = ["sh", "-ec", line].map(str::to_owned);
    lab.on_host(words).run().ok();
}

/// Attack: KRN-14
#[test]
fn every_kind_of_drift_is_put_back_on_the_kernels_word() {
    thread::scope(|threads| {
        for scope in ["agents", "guest"] {
            threads.spawn(move || drift(scope));
        }
    });
}

fn drift(scope: &str) {
    let lab = Lab::new(scope);
    lab.write_config(scope, LED);
    lab.shut();
    for line in kinds(scope) {
        root(&lab, line);
        let finished = lab.boundary(&["verify"]);
        assert_eq!(finished.code(), 1, "control: {line}: {}", finished.shown());
        lab.shut();
    }
    let watcher = Patient::start(&lab);
    for line in kinds(scope) {
        root(&lab, line);
        let told = watcher.until("reasserted");
        assert_eq!(told.cause, Some("notice"), "{scope}: {line}: {told:?}");
        wait::until_true("the rules stand", || lab.boundary(&["verify"]).code() == 0);
        for (what, peer) in [("udp", PEER4), ("udp", PEER6)] {
            let attempt = lab.attempt(AGENT, &[what, peer, "443"]);
            assert_eq!(attempt.outcome, "refused", "{scope}: {line}: {attempt:?}");
        }
    }
    // What is no drift is said, and nothing is put back for it.
    root(&lab, "iptables-nft -I OUTPUT -j ACCEPT");
    let told = watcher.until("elsewhere");
    assert!(told.text.contains("table ip filter"), "{told:?}");
}

/// The watcher cannot take its turn; that it can again, nobody tells it.
#[test]
fn what_could_not_be_put_back_is_tried_again_without_being_asked() {
    let lab = Lab::new("agents");
    lab.shut();
    let watcher = Patient::start(&lab);
    let turn = PathBuf::from(format!("{}.lock", lab.status().display()));
    std::fs::remove_file(&turn).unwrap();
    std::os::unix::fs::symlink("/nowhere", &turn).unwrap();
    root(&lab, "nft insert rule inet portcullis-lab output accept");
    watcher.until("failed");
    assert_eq!(lab.boundary(&["verify"]).code(), 1, "control");
    // Rules that are gone wait for no turn.
    root(&lab, "nft flush ruleset");
    watcher.until("reasserted");
    assert_eq!(lab.boundary(&["verify"]).code(), 0);
    root(&lab, "nft insert rule inet portcullis-lab output accept");
    wait::until_true("control: again it cannot", || {
        lab.boundary(&["verify"]).code() == 1
    });
    std::fs::remove_file(&turn).unwrap();
    let told = watcher.until("reasserted");
    // Who did it is still known, and since when.
    assert_eq!(told.cause, Some("notice"), "{told:?}");
    assert!(told.text.contains("nft (pid "), "{told:?}");
    assert_eq!(lab.boundary(&["verify"]).code(), 0);
    watcher.until("recovered");
}

/// An `apply` that somebody stopped in the middle keeps the turn: what it may be about is left to it, rules that are gone
/// are not.
#[test]
fn whoever_keeps_the_turn_does_not_keep_the_rules_away() {
    for scope in ["agents", "guest"] {
        let lab = Lab::new(scope);
        lab.shut();
        let watcher = Patient::start(&lab);
        let turn = nftables::lock::take(&lab.status()).unwrap();
        for line in [
            "nft delete table inet portcullis-lab",
            "nft add table inet portcullis-lab '{ flags dormant; }'",
        ] {
            root(&lab, line);
            let told = watcher.until("reasserted");
            assert!(told.text.contains("nft (pid "), "{told:?}");
            assert_eq!(lab.boundary(&["verify"]).code(), 0, "{scope}: {line}");
        }
        root(&lab, "nft insert rule inet portcullis-lab output accept");
        assert_eq!(
            lab.boundary(&["verify"]).code(),
            1,
            "control: that may be its doing"
        );
        drop(turn);
        watcher.until("reasserted");
        assert_eq!(lab.boundary(&["verify"]).code(), 0);
    }
}

/// Somebody changes a table of his own without a pause, thousands of times a second: no two questions to the kernel are
/// answered from one state of it.
#[test]
fn in_a_storm_of_others_changes_drift_is_put_back_all_the_same() {
    for scope in ["agents", "guest"] {
        let lab = Lab::new(scope);
        lab.shut();
        let watcher = Patient::start(&lab);
        let rules = "add table inet storm\nadd set inet storm s { type mark; }";
        let storm = format!(
            "(printf '{rules}\\n'; echo ready >&2; \
              while :; do printf 'add element inet storm s {{ 1 }}\\ndelete element inet storm s {{ 1 }}\\n'; done) | \
             exec nft -i"
        );
        let words = [
            "unshare",
            "--pid",
            "--fork",
            "--kill-child",
            "sh",
            "-c",
            &storm,
        ];
        let words = words.map(str::to_owned);
        let _storm = Running::start(lab.on_host(words), "ready");
        wait::until_true("control: the storm blows", || {
            lab.nft(&["list", "set", "inet", "storm", "s"]).code() == 0
        });
        for line in [
            "nft delete table inet portcullis-lab",
            "nft flush chain inet portcullis-lab output",
            "nft insert rule inet portcullis-lab output accept",
        ] {
            root(&lab, line);
            let told = watcher.until("reasserted");
            assert_eq!(told.cause, Some("notice"), "{scope}: {line}: {told:?}");
            lab.boundary(&["verify"]).ok();
            let attempt = lab.attempt(AGENT, &["udp", PEER4, "443"]);
            assert_eq!(attempt.outcome, "refused", "{scope}: {line}: {attempt:?}");
        }
    }
}

/// Nobody reads what the watcher says, and it says more than a pipe takes.
#[test]
fn a_log_that_nobody_reads_does_not_hold_the_watcher_up() {
    let lab = Lab::new("agents");
    lab.shut();
    let mut watch = lab.boundary_program(&["watch"]).spawn();
    let unread = watch.stderr.take().unwrap();
    let room = fcntl(&unread, FcntlArg::F_SETPIPE_SZ(4096)).unwrap();
    wait::until_true("it watches", || {
        super::lab::status(&lab.status()).is_some_and(|status| !status.events.is_empty())
    });
    let mut said = 0;
    while said < 2 * room {
        root(&lab, "nft flush chain inet portcullis-lab output");
        wait::until_true("the rules stand", || lab.boundary(&["verify"]).code() == 0);
        wait::until_true("the event is noted", || {
            let status = super::lab::status(&lab.status());
            let last = status.and_then(|status| status.events.last().cloned());
            last.is_some_and(|event| event.kind == "reasserted")
        });
        let status = super::lab::status(&lab.status()).unwrap();
        said += i32::try_from(status.events.last().unwrap().text.len()).unwrap();
    }
    watch.kill().unwrap();
    watch.wait().unwrap();
}

/// The kernel tells of any change in two messages or more, and whose it was in the last: who asks hears all of them, or
/// nothing.
#[test]
fn a_change_is_heard_whole_however_large() {
    let lab = Lab::new("agents");
    let enter = lab.enter();
    let (ask, asked) = mpsc::channel::<()>();
    let (answer, answered) = mpsc::channel();
    let listener = thread::spawn(move || {
        enter();
        let mut monitor = Monitor::open().unwrap();
        answer.send(Vec::new()).unwrap();
        while asked.recv().is_ok() {
            answer
                .send(monitor.changes(Duration::from_millis(1)).unwrap())
                .unwrap();
        }
    });
    answered.recv().unwrap();
    for chains in [1, 400] {
        let mut text = format!("table inet large{chains} {{\n");
        for chain in 0..chains {
            text.push_str(&format!("chain c{chain} {{ counter\n}}\n"));
        }
        text.push_str("}\n");
        lab.host.nft(&text);
        ask.send(()).unwrap();
        let heard = answered.recv().unwrap();
        let [change] = heard.as_slice() else {
            panic!("{chains} chains: {heard:?}")
        };
        assert_eq!(change.author.as_ref().unwrap().name, "nft", "{change:?}");
        let tables: Vec<&str> = change
            .tables
            .iter()
            .map(|place| place.table.as_str())
            .collect();
        assert_eq!(tables, [format!("large{chains}")]);
        ask.send(()).unwrap();
        assert_eq!(answered.recv().unwrap(), [], "nothing is left over");
    }
    drop(ask);
    listener.join().unwrap();
}
