//! A host and a peer on one wire, and everything a test does with them.
//!
//! ```text
//!   host namespace (192.0.2.1, 2001:db8::1) --veth-- peer namespace (192.0.2.2, 2001:db8::2)
//!   agents, the gate's user, the boundary            echoes, and counts all it receives
//! ```
//! The host's account files are bound over the real ones for each command, in a mount namespace of
//! its own, so that subordinate ids can be granted without touching this machine.

mod running;

use std::path::{Path, PathBuf};

use serde::Deserialize;
use tests::binaries;
use tests::command::{Finished, Program};
use tests::netns::Netns;
use tests::{host, wait};

pub(super) use running::Running;

pub(super) const HOST4: &str = "192.0.2.1";
pub(super) const HOST6: &str = "2001:db8::1";
pub(super) const PEER4: &str = "192.0.2.2";
pub(super) const PEER6: &str = "2001:db8::2";
pub(super) const GATE_PORT: &str = "3128";
/// Users of the pretended host.
pub(super) const AGENT: u32 = 61_500;
pub(super) const OTHER_AGENT: u32 = 61_501;
pub(super) const GATE: u32 = 61_900;
pub(super) const MONITOR: u32 = 61_901;
/// As whom apt fetches.
pub(super) const APT: u32 = 42;
/// First of the agent account's 1,000 subordinate uids.
pub(super) const SUBORDINATE: u32 = 700_000;

const PORTS: [&str; 6] = ["7", "53", "80", "443", "853", "8443"];

pub(super) struct Lab {
    pub(super) host: Netns,
    pub(super) peer: Netns,
    dir: tempfile::TempDir,
    echo: Running,
}

/// How an attempt ended.
#[derive(Debug, Deserialize)]
pub(super) struct Attempt {
    pub(super) outcome: String,
    pub(super) errno: Option<String>,
    #[serde(rename = "ms")]
    pub(super) _ms: u64,
}

impl Attempt {
    pub(super) fn of(finished: &Finished) -> Self {
        let last = finished.stdout.lines().last().unwrap_or_default();
        serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {}", finished.shown()))
    }
}

impl Lab {
    /// A host in this scope, boundary not yet loaded.
    pub(super) fn new(scope: &str) -> Self {
        let (host, peer) = (Netns::new(), Netns::new());
        host.ip(&[
            "link",
            "add",
            "wire",
            "type",
            "veth",
            "peer",
            "name",
            "wire",
            "netns",
            peer.name(),
        ]);
        for (netns, four, six) in [(&host, HOST4, HOST6), (&peer, PEER4, PEER6)] {
            netns.ip(&["address", "add", &format!("{four}/24"), "dev", "wire"]);
            netns.ip(&[
                "address",
                "add",
                &format!("{six}/64"),
                "dev",
                "wire",
                "nodad",
            ]);
            netns.ip(&["link", "set", "wire", "up"]);
        }
        // All that arrives, but for what the two kernels tell each other about neighbours and
        // groups.
        peer.nft(
            "table inet seen {
                counter received { }
                counter resets { }
                counter four { }
                counter six { }
                chain arrival {
                    type filter hook prerouting priority -300; policy accept;
                    iif lo accept
                    icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit, mld-listener-report, mld2-listener-report, mld-listener-done } accept
                    counter name received
                    meta nfproto ipv4 counter name four
                    meta nfproto ipv6 counter name six
                    tcp flags & rst == rst counter name resets
                }
            }",
        );
        let dir = host::scratch();
        host::file(
            &dir.path().join("attempt.py"),
            include_str!("attempt.py"),
            0,
            0o644,
        );
        let script = dir.path().join("peer.py");
        host::file(&script, include_str!("peer.py"), 0, 0o644);
        let program = Program::new("python3")
            .arg(&script)
            .args(PORTS)
            .in_netns(&peer);
        let echo = Running::start(program, "ready");
        let lab = Self {
            host,
            peer,
            dir,
            echo,
        };
        lab.sysctl("net/ipv4/ping_group_range", "0 2147483647");
        // The peer does not wait a minute for the end of what the rules took away from it.
        set(&lab.peer, "net/ipv4/tcp_fin_timeout", "1");
        lab.write_accounts(true);
        lab.write_config(scope, "");
        wait::until_true("the wire carries both protocols", || {
            [PEER4, PEER6]
                .iter()
                .all(|peer| lab.attempt(0, &["udp", peer, "7"]).outcome == "reached")
        });
        lab
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(super) fn status(&self) -> PathBuf {
        self.path("run/status.json")
    }

    pub(super) fn sysctl(&self, name: &str, value: &str) {
        set(&self.host, name, value);
    }

    /// The account files; without subordinates nobody has any.
    pub(super) fn write_accounts(&self, subordinates: bool) {
        host::directory(&self.path("etc"), 0, 0o755);
        let mut passwd = "root:x:0:0::/root:/bin/sh\n".to_owned();
        for (name, uid) in [
            ("lab-agent", AGENT),
            ("lab-other", OTHER_AGENT),
            ("lab-gate", GATE),
            ("lab-monitor", MONITOR),
            ("_apt", APT),
        ] {
            passwd.push_str(&format!(
                "{name}:x:{uid}:{uid}::/nonexistent:/usr/sbin/nologin\n"
            ));
        }
        let range = format!("lab-agent:{SUBORDINATE}:1000\n");
        let range = if subordinates { range.as_str() } else { "" };
        host::file(&self.path("etc/passwd"), &passwd, 0, 0o644);
        host::file(&self.path("etc/subuid"), range, 0, 0o644);
        host::file(&self.path("etc/subgid"), range, 0, 0o644);
    }

    pub(super) fn write_config(&self, scope: &str, more: &str) {
        let agents = "agents = [\"lab-agent\", \"lab-other\"]\nreserves = [\"lab-agent\"]";
        self.write_config_with(scope, if scope == "agents" { agents } else { "" }, more);
    }

    pub(super) fn write_config_with(&self, scope: &str, agents: &str, more: &str) {
        let text = format!(
            "scope = \"{scope}\"\ntable = \"portcullis-lab\"\ngate_port = {GATE_PORT}\n\
             proxy = \"lab-gate\"\n{agents}\nstatus = \"{}\"\n{more}\n",
            self.status().display()
        );
        host::file(&self.path("boundary.toml"), &text, 0, 0o644);
    }

    /// `portcullis-boundary VERB` on this host.
    pub(super) fn boundary(&self, verbs: &[&str]) -> Finished {
        self.boundary_program(verbs).run()
    }

    pub(super) fn boundary_program(&self, verbs: &[&str]) -> Program {
        let words = [
            binaries::path("portcullis-boundary").display().to_string(),
            "--config".to_owned(),
            self.path("boundary.toml").display().to_string(),
        ];
        self.on_host(
            words
                .into_iter()
                .chain(verbs.iter().map(|verb| (*verb).to_owned())),
        )
    }

    /// Any program on this host: its network and its account files.
    pub(super) fn on_host(&self, words: impl IntoIterator<Item = String>) -> Program {
        // All of /etc, not file by file: an account made meanwhile on this machine replaces
        // /etc/passwd, and a mount over the replaced file would be gone.
        let script = format!(
            "mount --bind {} /etc && exec \"$@\"",
            self.path("etc").display()
        );
        Program::new("unshare")
            .args(["-m", "--propagation", "private", "sh", "-c", &script, "sh"])
            .args(words)
            .in_netns(&self.host)
    }

    /// Loads the boundary.
    #[track_caller]
    pub(super) fn shut(&self) {
        self.boundary(&["apply"]).ok();
    }

    /// Takes it away.
    #[track_caller]
    pub(super) fn open(&self) {
        self.boundary(&["remove"]).ok();
    }

    /// The words that run an attempt as this uid.
    pub(super) fn attempt_words(&self, uid: u32, words: &[&str]) -> Vec<String> {
        let mut all = Vec::new();
        if uid != 0 {
            let uid = uid.to_string();
            for word in [
                "setpriv",
                "--reuid",
                &uid,
                "--regid",
                &uid,
                "--clear-groups",
            ] {
                all.push(word.to_owned());
            }
            // As every agent is started. Words alone begin something that may need a set-user-id helper.
            if !words.is_empty() {
                all.push("--no-new-privs".to_owned());
            }
        }
        all.extend(self.script(words));
        all
    }

    pub(super) fn script(&self, words: &[&str]) -> Vec<String> {
        let script = self.path("attempt.py").display().to_string();
        ["python3".to_owned(), script]
            .into_iter()
            .chain(words.iter().map(|word| (*word).to_owned()))
            .collect()
    }

    /// One attempt as this uid, to its end.
    #[track_caller]
    pub(super) fn attempt(&self, uid: u32, words: &[&str]) -> Attempt {
        Attempt::of(&self.on_host(self.attempt_words(uid, words)).run())
    }

    /// The same; `None` when it ended before it said `ready`.
    pub(super) fn try_to_start(&self, uid: u32, words: &[&str], ready: &str) -> Option<Running> {
        let running = Running::begin(self.on_host(self.attempt_words(uid, words)));
        running.says(ready).then_some(running)
    }

    /// A long attempt, until it has said `ready`.
    pub(super) fn start(&self, uid: u32, words: &[&str], ready: &str) -> Running {
        Running::start(self.on_host(self.attempt_words(uid, words)), ready)
    }

    /// The same outside, with this host as its peer.
    pub(super) fn outside(&self, words: &[&str]) -> Program {
        let words = self.script(words);
        Program::new(&words[0])
            .args(&words[1..])
            .in_netns(&self.peer)
    }

    /// The ruleset that the file and the accounts mean.
    pub(super) fn ruleset(&self) -> nftables::ruleset::Ruleset {
        use nftables::accounts::Accounts;
        let read = |name: &str| std::fs::read_to_string(self.path(name)).unwrap();
        let (passwd, subuid) = (read("etc/passwd"), read("etc/subuid"));
        let accounts = Accounts::from_texts(&passwd, &subuid, &subuid).unwrap();
        let config = nftables::config::Config::load(&self.path("boundary.toml")).unwrap();
        let now = std::time::SystemTime::now().try_into().unwrap();
        nftables::ruleset::Ruleset::build(&config, &accounts, now).unwrap()
    }

    /// Runs `work` in this host's network, in a thread that ends with it.
    pub(super) fn in_its_network<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let path = format!("/run/netns/{}", self.host.name());
        std::thread::scope(|scope| {
            let inside = scope.spawn(move || {
                let namespace = std::fs::File::open(path).unwrap();
                nix::sched::setns(namespace, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
                work()
            });
            inside.join().unwrap()
        })
    }

    /// Like the programs that are started on this host: its network and its account files. For a thread that ends with
    /// what it does.
    pub(super) fn enter(&self) -> impl FnOnce() + Send + 'static {
        let network = std::fs::File::open(format!("/run/netns/{}", self.host.name())).unwrap();
        let accounts = self.path("etc");
        move || {
            use nix::mount::{MsFlags, mount};
            use nix::sched::CloneFlags;
            nix::sched::setns(network, CloneFlags::CLONE_NEWNET).unwrap();
            nix::sched::unshare(CloneFlags::CLONE_NEWNS).unwrap();
            let none = None::<&str>;
            let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            mount(none, "/", none, private, none).unwrap();
            mount(Some(&accounts), "/etc", none, MsFlags::MS_BIND, none).unwrap();
        }
    }

    /// Packets of this family that reached the peer so far.
    pub(super) fn received_by(&self, family: &str) -> u64 {
        self.seen(family)
    }

    /// Packets that reached the peer so far.
    pub(super) fn received(&self) -> u64 {
        self.seen("received")
    }

    /// Waits until every connection of the peer has ended, so that no packet of an older one is
    /// taken for a newer one's.
    #[track_caller]
    pub(super) fn settle(&self) {
        wait::until_true("the peer's connections end", || {
            let listed = Program::new("ss")
                .args(["-Htan", "state", "connected", "exclude", "time-wait"])
                .in_netns(&self.peer)
                .run()
                .ok();
            listed.stdout.trim().is_empty()
        });
    }

    /// Packets that reached the peer, but for resets: those a kernel sends for a connection it does
    /// not know carry nothing of anybody's.
    pub(super) fn received_data(&self) -> u64 {
        // The resets first: what comes in between counts as data.
        let resets = self.seen("resets");
        self.seen("received") - resets
    }

    fn seen(&self, counter: &str) -> u64 {
        let args = ["-j", "list", "counter", "inet", "seen", counter];
        let listed = Program::new("nft")
            .args(args)
            .in_netns(&self.peer)
            .run()
            .ok();
        let listed: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
        listed["nftables"]
            .as_array()
            .unwrap()
            .iter()
            .find_map(|object| object["counter"]["packets"].as_u64())
            .unwrap()
    }

    /// What `counters --json` says.
    #[track_caller]
    pub(super) fn counters(&self) -> serde_json::Value {
        serde_json::from_str(&self.boundary(&["counters", "--json"]).ok().stdout).unwrap()
    }

    /// Packets of this uid that were refused.
    #[track_caller]
    pub(super) fn refused(&self, uid: u32) -> u64 {
        let counters = self.counters();
        let users = counters["users"].as_array().unwrap();
        let user = users.iter().find(|user| user["uid"] == uid);
        user.map_or(0, |user| user["packets"].as_u64().unwrap())
    }

    #[track_caller]
    pub(super) fn total(&self, name: &str) -> u64 {
        let counters = self.counters();
        let totals = counters["totals"].as_array().unwrap();
        let total = totals.iter().find(|total| total["name"] == name);
        total.map_or(0, |total| total["packets"].as_u64().unwrap())
    }

    /// Lets the peer read what it let pile up on port 9.
    pub(super) fn peer_reads(&mut self) {
        self.echo.say("read");
    }

    pub(super) fn nft(&self, words: &[&str]) -> Finished {
        Program::new("nft").args(words).in_netns(&self.host).run()
    }

    /// `nft -j list table`, without handles and traffic.
    pub(super) fn listed(&self) -> serde_json::Value {
        let words = ["-j", "list", "table", "inet", "portcullis-lab"];
        let text = self.nft(&words).ok().stdout;
        let mut value = serde_json::from_str(&text).unwrap();
        strip(&mut value);
        value
    }
}

/// Sets a network's own sysctl.
fn set(netns: &Netns, name: &str, value: &str) {
    Program::new("sh")
        .args(["-c", &format!("echo '{value}' > /proc/sys/{name}")])
        .in_netns(netns)
        .run()
        .ok();
}

fn strip(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(map) => {
            for key in [
                "handle", "packets", "bytes", "metainfo", "expires", "timeout",
            ] {
                map.remove(key);
            }
            map.values_mut().for_each(strip);
        }
        serde_json::Value::Array(list) => list.iter_mut().for_each(strip),
        _ => {}
    }
}

/// Whether a file exists and can be read as a boundary status that proves something for its own
/// namespace (not for the test's).
pub(super) fn status(path: &Path) -> Option<nftables::status::Status> {
    nftables::status::Status::read(path).ok()
}
