//! The audit log is kept: by the gate alone, with a key of its own, over clocks that jump and file
//! systems that refuse, and a log that was cut back is found.

mod faults;
mod metrics;
mod reading;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tests::binaries;
use tests::command::{Finished, Program};
use tests::gate::Boundary;
use tests::host;
use tests::instance::Instance;
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

#[test]
fn a_log_cut_back_or_begun_anew_is_found_by_the_orchestrator_s_anchors() {
    let instance = Instance::up();
    let log = instance.path("var/lib/portcullis/proxy/audit");
    let socket = instance.path("run/portcullis/orchestrator/api.sock");
    let public = instance.path("var/lib/portcullis/trust/audit.asc");
    let verify = |file: &Path, anchors: Option<&Path>| -> Finished {
        let program = proxy(&["audit", "verify", "--file"])
            .arg(file)
            .arg("--key")
            .arg(&public);
        match anchors {
            Some(anchors) => program.arg("--anchors").arg(anchors),
            None => program,
        }
        .run()
    };
    let cycle = || {
        instance.run_down(&[]).ok();
        let closed = fs::read(log.join("audit.jsonl")).unwrap();
        instance.run_up(&["--no-gate-test"]).ok();
        closed
    };
    let earlier = cycle();
    cycle();
    let cut = instance.prefix.join("cut");
    fs::create_dir(&cut).unwrap();
    fs::write(cut.join("audit.jsonl"), &earlier).unwrap();
    verify(&cut, None).ok();
    let found = wait::until("the later close is anchored, and missed", || {
        let told = verify(&cut, Some(&socket));
        (told.code() == 1).then_some(told)
    });
    assert!(found.output().contains("anchor"), "{}", found.shown());
    // Control: what was not cut holds against the same anchors.
    verify(&log, Some(&socket)).ok();
    // Whoever keeps the anchors only asks for them.
    let account = format!("{}-orchestrator", instance.name);
    let uid = Program::new("id").args(["-u", &account]).run().ok().stdout;
    assert_eq!(attempt(uid.trim().parse().unwrap(), &log), "0\n");
    fs::remove_dir_all(&cut).unwrap();

    // Deleted, and begun anew by the gate itself: right in itself, and not the log that was anchored.
    instance.run_down(&[]).ok();
    let kept = instance.prefix.join("kept");
    fs::create_dir(&kept).unwrap();
    for entry in fs::read_dir(&log).unwrap() {
        let path = entry.unwrap().path();
        fs::rename(&path, kept.join(path.file_name().unwrap())).unwrap();
    }
    instance.run_up(&["--no-gate-test"]).ok();
    cycle();
    let with_log = |file: &Path, number: &str| {
        proxy(&["audit", "verify", "--file"])
            .arg(file)
            .arg("--key")
            .arg(&public)
            .arg("--anchors")
            .arg(&socket)
            .args(["--log", number])
            .run()
    };
    wait::until_true("the new log is anchored as another one", || {
        with_log(&log, "2").code() == 0
    });
    verify(&log, None).ok();
    let found = verify(&log, Some(&socket));
    assert_eq!(found.code(), 1, "{}", found.shown());
    assert!(found.output().contains("begun anew"), "{}", found.shown());
    // Control: the former one is whole, and is told from the present one.
    with_log(&kept, "1").ok();
    assert_eq!(with_log(&kept, "2").code(), 1);
    fs::remove_dir_all(&kept).unwrap();
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

/// Adds the seconds in a file to the wall clock of whoever loads it.
const CLOCK: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <time.h>
int clock_gettime(clockid_t which, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int told = real(which, at);
    if (which == CLOCK_REALTIME) {
        long long by = 0;
        FILE *file = fopen(PLACE, "r");
        if (file) { if (fscanf(file, "%lld", &by) != 1) by = 0; fclose(file); }
        at->tv_sec += by;
    }
    return told;
}
"#;

/// LIF-11: the wall clock jumps by a day, back, and to 1970.
#[test]
fn lif_11_a_clock_that_jumps_is_told_and_the_chain_holds() {
    let mut world = World::prepared(None, Boundary::External);
    let place = world.path().join("offset");
    let set = |seconds: i64| host::file(&place, &seconds.to_string(), 0, 0o644);
    set(0);
    let (source, shim) = (world.path().join("clock.c"), world.path().join("clock.so"));
    fs::write(&source, CLOCK).unwrap();
    Program::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&shim)
        .arg(format!("-DPLACE=\"{}\"", place.display()))
        .arg(&source)
        .arg("-ldl")
        .run()
        .ok();
    fs::set_permissions(&shim, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    world
        .gate
        .start_with(&world.netns, &[("LD_PRELOAD", shim.to_str().unwrap())]);
    let authority = fs::read_to_string(world.gate.ca()).unwrap();
    host::file(&world.trust(), &authority, 0, 0o644);

    let url = format!("https://{WEB}/x");
    let serves = || world.curl(&[&url]).ok().stdout.ends_with("\n200");
    let said = |way: &str| {
        let records = world.gate.audit();
        let told = records.iter().filter(|it| {
            let reason = it["reason"].as_str().unwrap_or_default();
            it["kind"] == "event" && reason.contains(&format!("clock was set {way}"))
        });
        told.count()
    };
    assert!(serves());
    assert_eq!(said("forward") + said("back"), 0, "control");
    const DAY: i64 = 24 * 3600;
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let epoch = 100 - i64::try_from(now).unwrap();
    let (mut forward, mut back) = (0, 0);
    for (offset, ahead) in [
        (DAY, true),
        (0, false),
        (-DAY, false),
        (0, true),
        (epoch, false),
        (0, true),
    ] {
        set(offset);
        *(if ahead { &mut forward } else { &mut back }) += 1;
        wait::until_true("the jump is told", || {
            (said("forward"), said("back")) == (forward, back)
        });
        // What the agent's own clock says of certificates is right again whenever both agree.
        if offset == 0 {
            assert!(serves());
        }
    }
    let times: Vec<String> = world
        .gate
        .audit()
        .iter()
        .map(|it| it["time"].as_str().unwrap().to_owned())
        .collect();
    assert!(
        times.iter().any(|time| time.starts_with("1970-")),
        "{times:?}"
    );
    let report = verified(&world);
    assert_eq!(report["intact"], true, "{report}");
    assert_eq!(world.gate.stop(), Some(0));
    let report = verified(&world);
    assert_eq!(report["intact"], true, "{report}");
}

/// Shuts the listening socket of the port in process `pid` down, from outside of it.
const DEAFEN: &str = r#"
import ctypes, os, socket, sys
pid, port = int(sys.argv[1]), int(sys.argv[2])
rows = [row.split() for row in open(f"/proc/{pid}/net/tcp")][1:]
inodes = {row[9] for row in rows if row[3] == "0A" and row[1].endswith(f":{port:04X}")}
call = ctypes.CDLL(None, use_errno=True).syscall
process, done = call(434, pid, 0), 0
for number in os.listdir(f"/proc/{pid}/fd"):
    if os.readlink(f"/proc/{pid}/fd/{number}")[8:-1] in inodes:
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
