//! How long drift stands: from the kernel's word of a change until the rules were put back and read again.
//!
//! `cargo bench -p nftables` as root, with nft(8) and ip(8). It makes a network namespace of its own and touches no other.
//! Two clocks: the watcher's own (what it puts into its events), and that of a second listener: from the kernel's notice of
//! root's change to that of the watcher's last one, which also counts what a busy watcher does not hear at once. Milliseconds, median and maximum.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench prints, and ends where anything is amiss"
)]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use nftables::boundary;
use nftables::config::Config;
use nftables::netlink::Monitor;
use nftables::watch::{self, Cause, Event};

const ROUNDS: usize = 20;

/// An event's kind, and how long after the kernel's notice the rules stood again.
type Told = (&'static str, Option<Duration>);

const KINDS: [(&str, &str); 8] = [
    ("everything flushed", "nft flush ruleset"),
    (
        "a firewall manager's restart",
        "printf 'flush ruleset\\ntable inet manager { chain out { type filter hook output priority 0; \
         ct state established accept; }\\n}\\n' | nft -f -",
    ),
    ("the table deleted", "nft delete table inet bench"),
    ("a chain flushed", "nft flush chain inet bench output"),
    (
        "an accept put first",
        "nft insert rule inet bench output accept",
    ),
    (
        "iptables: everything flushed, an accept put in",
        "iptables-nft -I OUTPUT -j ACCEPT && nft flush chain inet bench output",
    ),
    (
        "the table made dormant",
        "nft add table inet bench '{ flags dormant; }'",
    ),
    ("a routing rule deleted", "ip -4 rule del priority 33000"),
];

fn main() {
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).expect("root may");
    run("ip link set lo up");
    println!(
        "| what root does, {ROUNDS} times | scope | by notice | watcher: median | max | second listener: median | max |"
    );
    println!("|---|---|---:|---:|---:|---:|---:|");
    for scope in ["agents", "guest"] {
        measure(scope);
    }
}

fn measure(scope: &str) {
    let directory = tempfile::tempdir().unwrap();
    let config = configured(directory.path(), scope);
    boundary::apply(&config).unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let (sender, told) = mpsc::channel();
    let watcher = {
        let (config, over) = (config.clone(), Arc::clone(&over));
        thread::spawn(move || {
            let tell = |event: &Event| {
                let restored = match event.cause() {
                    Some(Cause::Notice { after }) => Some(after),
                    Some(Cause::Look) | None => None,
                };
                sender.send((event.kind(), restored)).unwrap();
            };
            watch::run(&config, || over.load(Ordering::SeqCst), tell).unwrap();
        })
    };
    until(&told, "standing");
    for (name, line) in KINDS {
        let (mut own, mut second) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let mut monitor = Monitor::open().unwrap();
            let root = thread::spawn(move || run(line));
            let (restored, stood) = listen(&mut monitor, &told);
            second.push(stood);
            // A look that was due just then may have been first.
            own.extend(restored);
            root.join().unwrap();
        }
        let noticed = own.len();
        let (own, second) = (shown(own), shown(second));
        println!("| {name} | {scope} | {noticed} | {own} | {second} |");
    }
    over.store(true, Ordering::SeqCst);
    watcher.join().unwrap();
    boundary::remove(&config).unwrap();
}

/// The watcher's word, and the time between two of the kernel's: of root's change, and of the watcher's last one.
fn listen(monitor: &mut Monitor, told: &Receiver<Told>) -> (Option<Duration>, Duration) {
    let (mut broken, mut mended) = (None, None);
    let mut hear = |monitor: &mut Monitor| {
        for change in monitor.changes(Duration::from_millis(2)).unwrap() {
            let roots = change.author.as_ref().is_none_or(|author| {
                ["nft", "ip"]
                    .iter()
                    .any(|name| author.name.starts_with(name))
            });
            let ours = change.tables.iter().any(|place| place.table == "bench");
            let now = Some(Instant::now());
            if roots && broken.is_none() && (ours || change.author.is_none()) {
                broken = now;
            } else if broken.is_some() && (!roots || change.author.is_none()) {
                mended = now;
            }
        }
    };
    let restored = loop {
        hear(monitor);
        match told.try_recv() {
            Ok(("reasserted", restored)) => break restored,
            Ok(_) | Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => panic!("the watcher ended"),
        }
    };
    // What was told in the meantime waits to be read, one message at a time.
    for _ in 0..50 {
        hear(monitor);
    }
    let (broken, mended) = (broken.unwrap(), mended.unwrap());
    (restored, mended.duration_since(broken))
}

fn configured(directory: &Path, scope: &str) -> Config {
    let agents = match scope {
        "agents" => "agents = [\"1500000000-1500000099\"]",
        _ => "",
    };
    let text = format!(
        "scope = \"{scope}\"\ntable = \"bench\"\ngate_port = 3128\nproxy = 1500000999\n{agents}\n\
         status = \"{}\"\n[redirect]\nport = 3129\n[resolver]\nport = 3153\n",
        directory.join("status.json").display()
    );
    let path = directory.join("boundary.toml");
    std::fs::write(&path, text).unwrap();
    Config::load(&path).unwrap()
}

fn run(line: &str) {
    let status = Command::new("sh").args(["-ec", line]).status().unwrap();
    assert!(status.success(), "{line}");
}

fn until(told: &Receiver<Told>, kind: &str) {
    while told.recv_timeout(Duration::from_secs(60)).unwrap().0 != kind {}
}

fn shown(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let milliseconds = |time: Duration| time.as_secs_f64() * 1000.0;
    let median = times
        .get(times.len() / 2)
        .copied()
        .map_or(0.0, milliseconds);
    let most = times.last().copied().map_or(0.0, milliseconds);
    format!("{median:.1} | {most:.1}")
}
