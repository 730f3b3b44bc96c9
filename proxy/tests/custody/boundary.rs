//! The gate and the kernel boundary's status file.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;

use super::fixture::{Fixture, eventually};

/// Writes a fresh status, as the boundary's watcher would.
fn write(path: &Path, ok: bool) {
    let clock = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).unwrap();
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let status = json!({
        "version": 1, "ok": ok, "boot_id": boot_id.trim(),
        "netns": std::fs::metadata("/proc/self/ns/net").unwrap().ino(),
        "boottime_ms": u64::try_from(Duration::from(clock).as_millis()).unwrap(),
        "ruleset_hash": "abc", "scope": "agents", "table": "portcullis",
        "problem": if ok { None } else { Some("the table is gone") },
    });
    let fresh = path.with_extension("new");
    std::fs::write(&fresh, status.to_string()).unwrap();
    std::fs::rename(fresh, path).unwrap();
}

/// Attack: LIF-18, LIF-21
#[test]
fn secrets_are_held_only_while_the_boundary_is_proven() {
    let mut fixture = Fixture::with(|text| {
        let at = text.find("socket = \"").unwrap() + "socket = \"".len();
        let root = text[at..]
            .split("/run/control.sock")
            .next()
            .unwrap()
            .to_owned();
        text.replace(
            "external = \"a test\"",
            &format!("status = \"{root}/status.json\""),
        )
    });
    let path = fixture.path("status.json");
    fixture.start();
    let state = |fixture: &Fixture| {
        let status = fixture.status();
        (
            status["boundary"]["ok"] == true,
            status["credentials"][0]["ok"] == true,
        )
    };
    assert_eq!(state(&fixture), (false, false), "there is no status yet");
    assert_eq!(fixture.status()["ready"], false);

    // A watcher that lives as long as this flag is set.
    let (good, stop) = (
        Arc::new(AtomicBool::new(true)),
        Arc::new(AtomicBool::new(false)),
    );
    let watcher = std::thread::spawn({
        let (path, good, stop) = (path.clone(), Arc::clone(&good), Arc::clone(&stop));
        move || {
            while !stop.load(Ordering::Relaxed) {
                write(&path, good.load(Ordering::Relaxed));
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    });
    eventually("proven", || state(&fixture) == (true, true));
    assert_eq!(fixture.status()["ready"], true);
    good.store(false, Ordering::Relaxed);
    eventually("shut", || state(&fixture) == (false, false));
    good.store(true, Ordering::Relaxed);
    eventually("proven again", || state(&fixture) == (true, true));
    // The watcher dies: the last status says ok, but not for long.
    stop.store(true, Ordering::Relaxed);
    watcher.join().unwrap();
    eventually("stale", || state(&fixture) == (false, false));
    let said = fixture.stop();
    assert!(
        said.contains("serving nothing until it is proven"),
        "{said}"
    );
    // Nobody else is said to enforce it.
    assert!(!said.contains("is not proven by this machine"), "{said}");
}

/// Where somebody else enforces the boundary, the gate says so when it starts and whenever it is asked, with their reason.
#[test]
fn a_boundary_that_is_somebody_elses_is_said_out_loud() {
    let mut fixture = Fixture::new();
    fixture.start();
    let status = fixture.status();
    let boundary = &status["boundary"];
    assert_eq!(
        (&boundary["kind"], &boundary["reason"]),
        (&json!("external"), &json!("a test"))
    );
    assert_eq!(status["credentials"][0]["ok"], true, "it serves: {status}");
    let shown = fixture.tool(&["status"]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    let line = shown.lines().find(|line| line.starts_with("boundary"));
    assert!(line.unwrap().contains("not proven here: a test"), "{shown}");
    let said = fixture.stop();
    let warned = "the boundary is not proven by this machine: a test";
    let line = said.lines().find(|line| line.contains(warned));
    assert!(line.is_some_and(|line| line.contains("WARN")), "{said}");
}
