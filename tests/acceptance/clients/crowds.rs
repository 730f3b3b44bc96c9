//! Many idle tunnels and many host names: the gate grows by what each may cost, and no further.

use std::io::{BufRead, BufReader};

use tests::clients::{Clients, open};
use tests::matrix;

use super::streams::resident;
use super::{WEB, web_server};

/// What one idle tunnel may cost the gate: TLS state and buffers on its side.
const TUNNEL: usize = 96 * 1024;
/// What the gate may grow by while names come that its caches are too small for.
const SLACK: usize = 32 << 20;
/// How many leaves the gate of this test keeps.
const LEAVES: usize = 128;

fn world() -> Clients {
    let policy = open(WEB, &["GET /**"]) + &open("*.many.portcullis.test", &["GET /**"]);
    let limits = format!(
        "[limits]\nconnections = 6000\nconnections_per_run = 6000\nhead_timeout_seconds = 3600\n\
         idle_timeout_seconds = 3600\nleaf_cache = {LEAVES}\n"
    );
    let hosts = [web_server()];
    Clients::with_limits(&hosts, &policy, &[], &limits)
}

/// Runs `crowd.py`, and returns what the gate has once it is ready.
fn crowd(clients: &Clients, words: [&str; 3]) -> usize {
    let script = matrix::directory().join("src/python/crowd.py");
    let mut child = clients.agent("python3").arg(script).args(words).spawn();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let resident = resident(clients.gate.pid());
    let finished = child.wait_with_output().unwrap();
    assert_eq!(
        line,
        "ready\n",
        "{}",
        String::from_utf8_lossy(&finished.stderr)
    );
    resident
}

/// `count` idle tunnels with either protocol inside, and `names` distinct names. The ordinary run has fewer than the soak.
pub(crate) fn bounded(count: usize, names: usize) {
    let clients = world();
    for kind in ["idle", "idle2"] {
        let few = crowd(&clients, [kind, "8", WEB]);
        let many = crowd(&clients, [kind, &count.to_string(), WEB]);
        assert!(
            many < few + count * TUNNEL,
            "{count} tunnels, {kind}: {few} bytes became {many}"
        );
    }
    let full = crowd(
        &clients,
        ["names", &(LEAVES * 2).to_string(), "many.portcullis.test"],
    );
    let after = crowd(
        &clients,
        ["names", &names.to_string(), "many.portcullis.test"],
    );
    assert!(
        after < full + SLACK,
        "{names} names: {full} bytes became {after}"
    );
    // It still serves.
    let curl = clients
        .agent("curl")
        .args(["--silent", "--fail", &super::url("/x")]);
    curl.run().ok();
}
