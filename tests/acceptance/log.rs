//! The audit log is kept: by the gate alone, with a key of its own, over clocks that jump and file
//! systems that refuse, and a log that was cut back is found.

mod anchors;
mod clock;
mod faults;
mod metrics;
mod reading;
mod taken;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tests::binaries;
use tests::command::{Finished, Program};
use tests::gate::Boundary;
use tests::host;
use tests::wait;
use tests::world::{WEB, World};

fn proxy(arguments: &[&str]) -> Program {
    Program::new(binaries::path("portcullis-proxy")).args(arguments)
}

/// Appends to a configuration file.
fn configure(world: &World, section: &str, lines: &str) {
    let text = fs::read_to_string(world.gate.config()).unwrap();
    let text = if text.contains(section) {
        text.replace(section, &format!("{section}\n{lines}"))
    } else {
        format!("{text}{section}\n{lines}\n")
    };
    host::file(&world.gate.config(), &text, 0, 0o644);
}

/// A key that can sign and decrypt, made by gpg, for the gate.
fn gpg_key(world: &World, name: &str) -> PathBuf {
    let home = host::scratch();
    fs::set_permissions(
        home.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o700),
    )
    .unwrap();
    let gpg = |arguments: &[&str]| {
        Program::new("gpg")
            .env("GNUPGHOME", home.path())
            .args(["--batch", "--quiet", "--pinentry-mode", "loopback"])
            .args(["--passphrase", ""])
            .args(arguments)
            .run()
            .ok()
    };
    gpg(&[
        "--quick-generate-key",
        name,
        "future-default",
        "default",
        "never",
    ]);
    let secret = gpg(&["--armor", "--export-secret-keys"]).stdout;
    Program::new("gpgconf")
        .env("GNUPGHOME", home.path())
        .args(["--kill", "all"])
        .run();
    let path = world.gate.dir.join(name);
    host::file(&path, &secret, world.gate.uid, 0o600);
    path
}

#[test]
fn one_key_for_the_store_and_the_log_keeps_the_gate_from_starting() {
    let mut world = World::prepared(None, Boundary::External);
    let (one, other) = (gpg_key(&world, "one"), gpg_key(&world, "other"));
    let store = world.gate.dir.join("store");
    host::directory(&store, world.gate.uid, 0o700);
    configure(
        &world,
        "[store]",
        &format!(
            "directory = \"{}\"\nkey = \"{}\"\nno_operator_entries = \"a test\"",
            store.display(),
            one.display()
        ),
    );
    let text = fs::read_to_string(world.gate.config()).unwrap();
    let sign_with = |world: &World, key: &Path| {
        let line = format!("[audit]\nsigning_key = \"{}\"", key.display());
        let text = text.replace("[audit]", &line);
        host::file(&world.gate.config(), &text, 0, 0o644);
    };
    let check = |world: &World| {
        proxy(&["check", "--credentials", "--config"])
            .arg(world.gate.config())
            .as_uid(world.gate.uid)
            .run()
    };
    // The same key in another file is the same key.
    let copy = world.gate.dir.join("copy");
    host::file(
        &copy,
        &fs::read_to_string(&one).unwrap(),
        world.gate.uid,
        0o600,
    );
    for same in [&one, &copy] {
        sign_with(&world, same);
        let log = world.gate.try_start(&world.netns).unwrap_err();
        assert!(log.contains("is also the one that reads"), "{log}");
        let checked = check(&world);
        assert_eq!(checked.code(), 1, "{}", checked.shown());
        assert!(checked.stderr.contains("hint:"), "{}", checked.shown());
    }
    sign_with(&world, &world.gate.dir.join("absent"));
    assert_eq!(check(&world).code(), 1, "a key that is not there");
    sign_with(&world, &other);
    check(&world).ok();
    world.start();
    assert!(world.control().status()["audit"]["signing_key"].is_string());
}

/// What this uid could do to the log in a folder: a line each, then how many.
fn attempt(uid: u32, folder: &Path) -> String {
    let script = "f=\"$1/audit.jsonl\"; n=0
        for try in 'cat \"$f\"' 'echo x >> \"$f\"' ': > \"$f\"' 'truncate -s 0 \"$f\"' \\
            'mv \"$f\" \"$f.away\"' 'ln \"$f\" \"$f.link\"' 'chmod 666 \"$f\"' 'ls \"$1\"' \\
            'touch \"$1/new\"' 'rm -f \"$1\"/audit*' 'mv \"$1\" \"$1.away\"'; do
          if (eval \"$try\") > /dev/null 2>&1; then n=$((n+1)); echo \"could: $try\"; fi
        done; echo $n";
    let program = Program::new("sh").args(["-c", script, "sh"]).arg(folder);
    program.as_uid(uid).run().ok().stdout
}

#[test]
fn an_agent_can_neither_read_nor_change_the_log() {
    let world = World::new();
    let url = format!("https://{WEB}/x");
    assert!(world.curl(&[&url]).ok().stdout.ends_with("\n200"));
    let before = fs::read(world.gate.audit_file()).unwrap();
    let told = attempt(world.agent, world.gate.audit_file().parent().unwrap());
    assert_eq!(told, "0\n");
    let after = fs::read(world.gate.audit_file()).unwrap();
    assert_eq!(after.get(..before.len()), Some(before.as_slice()));

    // Control: whoever owns a log can do most of it.
    let own = world.home().join("audit");
    host::directory(&own, world.agent, 0o700);
    host::file(&own.join("audit.jsonl"), "{}\n", world.agent, 0o600);
    let told = attempt(world.agent, &own);
    let could: u32 = told.lines().last().unwrap().parse().unwrap();
    assert!(could >= 8, "{told}");
}

/// Runs `mount` or the like where the gate sees it.
fn beside_the_gate(world: &World, program: &[&str]) {
    Program::new("nsenter")
        .args(["--mount", "--target", &world.gate.pid().to_string(), "--"])
        .args(program)
        .run()
        .ok();
}

#[test]
fn a_read_only_file_system_stops_everything_until_it_can_be_written() {
    let world = World::new();
    let url = format!("https://{WEB}/x");
    assert!(world.curl(&[&url]).ok().stdout.ends_with("\n200"));
    let folder = world.gate.audit_file();
    let folder = folder.parent().unwrap().to_str().unwrap();
    // A file system with an open file cannot be remounted, so another one covers it.
    let owned = format!("ro,mode=0700,uid={}", world.gate.uid);
    beside_the_gate(
        &world,
        &["mount", "-t", "tmpfs", "-o", &owned, "none", folder],
    );
    let refused = world.curl(&["--include", &url]).ok();
    assert!(
        refused.stdout.contains("audit_unavailable"),
        "{}",
        refused.shown()
    );
    let status = world.control().status();
    assert_eq!(status["ready"], false);
    let problem = status["audit"]["problem"].as_str().unwrap();
    assert!(problem.contains("Read-only"), "{problem}");
    let before = world.web.received().len();
    assert!(world.curl(&[&url]).ok().stdout.ends_with("\n503"));
    assert_eq!(world.web.received().len(), before, "no record, no action");

    beside_the_gate(&world, &["umount", folder]);
    wait::until_true("the gate recovers by itself", || {
        world.curl(&[&url]).ok().stdout.ends_with("\n200")
    });
    let report = verified(&world);
    assert_eq!(report["intact"], true, "{report}");
}

fn verified(world: &World) -> Value {
    let told = proxy(&["audit", "verify", "--json", "--config"])
        .arg(world.gate.config())
        .run();
    serde_json::from_str(&told.stdout).unwrap_or_else(|error| panic!("{error}: {}", told.shown()))
}

/// Shuts the listening socket of the port in process `pid` down, from outside of it.
const DEAFEN: &str = r#"
import ctypes, os, socket, sys
pid, port = int(sys.argv[1]), int(sys.argv[2])
rows = [row.split() for row in open(f"/proc/{pid}/net/tcp")][1:]
inodes = {row[9] for row in rows if row[3] == "0A" and row[1].endswith(f":{port:04X}")}
call = ctypes.CDLL(None, use_errno=True).syscall
process, done = call(434, pid, 0), 0
def link(number):
    try:
        return os.readlink(f"/proc/{pid}/fd/{number}")
    except FileNotFoundError:
        return ""  # closed since the folder was listed
for number in os.listdir(f"/proc/{pid}/fd"):
    if link(number)[8:-1] in inodes:
        mine = call(438, process, int(number), 0)
        assert mine >= 0, os.strerror(ctypes.get_errno())
        socket.socket(fileno=mine).shutdown(socket.SHUT_RDWR)
        done += 1
sys.exit(done != 1)
"#;

/// LIF-21: readiness is false while the policy is stale, the log cannot be written, the boundary is
/// missing, or nobody is accepted any more; and true in between.
#[test]
fn lif_21_readiness_tells_the_truth() {
    let mut world = World::walled();
    let ready = |world: &World| {
        let told = proxy(&["status", "--json", "--config"])
            .arg(world.gate.config())
            .as_uid(world.gate.operator)
            .run();
        told.code()
    };
    let policy = fs::read_to_string(world.gate.policy()).unwrap();
    let reload = |world: &World| world.control().call("POST", "/v1/reload", None).status;
    let recovers = |world: &World| {
        wait::until_true("the gate is ready", || ready(world) == 0);
    };
    recovers(&world);

    world
        .gate
        .write_policy("version = 1\n[[service]]\nnonsense");
    assert_eq!(reload(&world), 422);
    assert_eq!(ready(&world), 1, "a stale policy");
    world.gate.write_policy(&policy);
    assert_eq!(reload(&world), 200);
    recovers(&world);

    let folder = world.gate.audit_file();
    let folder = folder.parent().unwrap().to_str().unwrap().to_owned();
    beside_the_gate(
        &world,
        &["mount", "-t", "tmpfs", "-o", "ro", "none", &folder],
    );
    assert_eq!(ready(&world), 1, "a log that cannot be written");
    beside_the_gate(&world, &["umount", &folder]);
    recovers(&world);

    world.wall.as_mut().unwrap().abandon();
    wait::until_true("the boundary is missed", || ready(&world) == 1);
    let netns = &world.netns;
    world.wall.as_mut().unwrap().watch(netns);
    recovers(&world);

    Program::new("python3")
        .args(["-c", DEAFEN, &world.gate.pid().to_string(), "3128"])
        .run()
        .ok();
    // Half a gate is none: it ends, and whoever keeps it starts it anew.
    wait::until_true("the gate ends", || !world.gate.runs());
    assert_ne!(ready(&world), 0, "an accept loop that is dead");
    assert!(
        world.gate.log().contains("no longer accepts"),
        "{}",
        world.gate.log()
    );
    world.start();
    recovers(&world);
}
