//! A gibibyte each way: the gate's memory does not follow.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tests::clients::{Clients, credential, open};
use tests::matrix::Row;

use super::{WEB, plain_server, plain_web, url};

const GIBIBYTE: usize = 1 << 30;
/// How much the gate may grow while a gibibyte passes: buffers, not the body.
const GROWTH: usize = 64 << 20;

/// Resident bytes of process `pid`.
pub(super) fn resident(pid: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    let kib: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1024
}

/// Runs `work` and returns the most that the gate ever had, and what `work` returned.
fn watched<T>(clients: &Clients, work: impl FnOnce() -> T) -> (usize, T) {
    let (pid, done) = (clients.gate.pid(), AtomicBool::new(false));
    thread::scope(|scope| {
        let most = scope.spawn(|| {
            let mut most = 0;
            while !done.load(Ordering::SeqCst) {
                most = most.max(resident(pid));
                thread::sleep(Duration::from_millis(20));
            }
            most
        });
        let result = work();
        done.store(true, Ordering::SeqCst);
        (most.join().unwrap(), result)
    })
}

/// A gibibyte down and one up with `curl FLAG`.
fn flat(clients: &Clients, flag: &str, down: &'static str, up: &'static str) {
    let version = clients.version("curl", &["--version"]);
    let curl = |args: &[&str]| {
        let curl = clients.agent("curl");
        curl.args(["--silent", "--show-error", "--fail-with-body", flag])
            .args(args)
            .run()
    };
    curl(&[&url("/version")]).ok();
    let before = resident(clients.gate.pid());
    let print = "%{size_download}";
    let stream = url(&format!("/stream/{GIBIBYTE}"));
    let (most, finished) = watched(clients, || {
        curl(&["--output", "/dev/null", "--write-out", print, &stream])
    });
    assert_eq!(finished.ok().stdout, GIBIBYTE.to_string());
    assert!(
        most < before + GROWTH,
        "{before} bytes became {most} while downloading"
    );
    let row = |way| Row {
        client: "curl",
        way,
        version: version.clone(),
    };
    clients.works(&row(down));

    let file = clients.home().join("gibibyte");
    fs::File::create(&file)
        .unwrap()
        .set_len(GIBIBYTE as u64)
        .unwrap();
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let (most, finished) = watched(clients, || {
        curl(&["--upload-file", "gibibyte", &url("/sink")])
    });
    let finished = finished.ok();
    assert!(
        finished.stdout.contains(&format!("{GIBIBYTE} bytes")),
        "{}",
        finished.shown()
    );
    assert!(
        most < before + GROWTH,
        "{before} bytes became {most} while uploading"
    );
    clients.works(&row(up));
}

#[test]
fn a_gibibyte_each_way_over_http_1_leaves_the_gates_memory_flat() {
    flat(
        &plain_web(),
        "--http1.1",
        "HTTP/1.1, 1 GiB down",
        "HTTP/1.1, 1 GiB up",
    );
}

#[test]
fn a_gibibyte_each_way_over_http_2_leaves_the_gates_memory_flat() {
    flat(
        &plain_web(),
        "--http2",
        "HTTP/2, 1 GiB down",
        "HTTP/2, 1 GiB up",
    );
}

/// Where a credential is injected each answer is searched for it as it passes.
#[test]
fn a_gibibyte_each_way_with_a_credential_leaves_the_gates_memory_flat() {
    let held = credential("web", "bearer", WEB);
    let policy = open(WEB, &["GET,HEAD /**", "POST,PUT /**"]) + "credential = \"web\"\n";
    flat(
        &Clients::new(&[plain_server()], &policy, &[held]),
        "--http1.1",
        "HTTP/1.1, credential, 1 GiB down",
        "HTTP/1.1, credential, 1 GiB up",
    );
}
