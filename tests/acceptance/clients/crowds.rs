//! Many idle tunnels and many host names: the gate grows by what each may cost, and no further.

use std::io::{BufRead, BufReader};

use tests::clients::{Clients, open};
use tests::matrix;

use super::streams::resident;
use super::{WEB, web_server};

/// What one idle tunnel may cost the gate: TLS state and buffers on its side.
const TUNNEL: usize = 60 * 1024;
/// What the gate may grow by while names come that its caches are too small for.
const SLACK: usize = 20 << 20;
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

/// `count` idle tunnels with either protocol inside, and `names` distinct names, each before a gate of
/// its own: what one crowd leaves behind would hide what the next one takes. The ordinary run has fewer
/// than the soak.
pub(crate) fn bounded(count: usize, names: usize) {
    for kind in ["idle", "idle2"] {
        let clients = world();
        let few = crowd(&clients, [kind, "8", WEB]);
        let many = crowd(&clients, [kind, &count.to_string(), WEB]);
        judge(
            &clients,
            &format!("{count} tunnels, {kind}"),
            [few, many],
            count * TUNNEL,
        );
    }
    let clients = world();
    let many = |count: usize| {
        let count = count.to_string();
        crowd(&clients, ["names", &count, "many.portcullis.test"])
    };
    let grown = [many(LEAVES * 2), many(names)];
    judge(&clients, &format!("{names} names"), grown, SLACK);
}

/// The gate grew by no more than this, and still serves.
fn judge(clients: &Clients, what: &str, [before, after]: [usize; 2], most: usize) {
    let outcome = format!("{what}: {before} bytes became {after}");
    matrix::tell(&outcome);
    assert!(after < before + most, "{outcome}");
    let curl = clients
        .agent("curl")
        .args(["--silent", "--fail", &super::url("/x")]);
    curl.run().ok();
}
