//! Where a secret is while the gate holds it, and what happens when it changes or is refused.

mod renewed;
mod swapped;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;

use tests::canary;
use tests::host;
use tests::wait;
use tests::world::{WEB, World};

/// How often one of `forms` stands in the memory of `pid`, as root sees it. What root cannot read is
/// passed over: that is where secrets belong. grep counts, since there is much to look through.
fn in_memory(pid: u32, forms: &[(String, Vec<u8>)]) -> usize {
    let scratch = host::scratch();
    let (dump, wanted) = (scratch.path().join("dump"), scratch.path().join("forms"));
    let lines: Vec<_> = forms.iter().map(|(_, form)| form.as_slice()).collect();
    fs::write(&wanted, lines.join(&b'\n')).unwrap();
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
    let mut out = File::create(&dump).unwrap();
    const STEP: u64 = 1 << 20;
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let (from, to) = words.next().unwrap().split_once('-').unwrap();
        let (mut at, to) = (
            u64::from_str_radix(from, 16).unwrap(),
            u64::from_str_radix(to, 16).unwrap(),
        );
        let mode = words.next().unwrap();
        // Secrets are data: what nobody can write holds none.
        if !mode.starts_with("rw") {
            continue;
        }
        while at < to {
            let mut bytes = vec![0; usize::try_from(STEP.min(to - at)).unwrap()];
            if memory.read_exact_at(&mut bytes, at).is_ok() {
                out.write_all(&bytes).unwrap();
            }
            at += STEP;
        }
        out.write_all(b"\n").unwrap();
    }
    let found = tests::command::Program::new("grep")
        .args([
            "--text",
            "--only-matching",
            "--byte-offset",
            "--fixed-strings",
            "--file",
        ])
        .arg(&wanted)
        .arg(&dump)
        .env("LC_ALL", "C")
        .run();
    assert!(found.code() < 2, "{}", found.shown());
    found.stdout.lines().count()
}

/// The forms that matter in memory: as it is, and as base64 of any alignment.
fn forms(secret: &canary::Canary) -> Vec<(String, Vec<u8>)> {
    let wanted = |form: &(String, Vec<u8>)| form.0 == "raw" || form.0.starts_with("base64");
    let forms: Vec<_> = secret.forms().into_iter().filter(wanted).collect();
    assert!(forms.len() > 2);
    forms
}

fn sealed(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/maps"))
        .unwrap()
        .contains("secretmem")
}

#[test]
fn the_secret_is_in_sealed_memory_and_in_one_place_more_only_while_a_connection_holds_it() {
    let mut world = World::new();
    let pid = world.gate.pid();
    let forms = forms(&world.web_secret);
    let sightings = || in_memory(pid, &forms);
    // The control: this finds what lies in ordinary memory.
    let held = world.web_secret.secret.clone();
    assert!(in_memory(std::process::id(), &forms) > 0);
    // Without memfd_secret the one locked copy can be read by root.
    let at_rest = usize::from(!sealed(pid));
    assert!(sightings() <= at_rest, "at rest: {}", sightings());

    let url = format!("https://{WEB}/one");
    assert!(world.curl(&[&url]).output().ends_with("200"));
    assert!(
        world.web.received().contains(&format!("Bearer {held}"))
            || world.web.received().contains(&held)
    );
    wait::until_true("the request is over and one copy at most is left", || {
        sightings() <= at_rest + 1
    });
    for _ in 0..5 {
        assert!(world.curl(&[&url]).output().ends_with("200"));
    }
    wait::until_true("not one more for each request", || {
        sightings() <= at_rest + 1
    });
    world.web.stop();
    wait::until_true("none is left when the connection is gone", || {
        sightings() <= at_rest
    });
    // Nothing was swapped out of where secrets lie.
    let smaps = fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
    let mut secret = false;
    for line in smaps.lines() {
        if line.contains('-') && line.contains(" rw-") {
            secret = line.contains("secretmem");
        } else if secret && line.starts_with("Swap:") {
            assert_eq!(line.split_whitespace().nth(1), Some("0"), "{line}");
        }
    }
}

/// CRD-21, CRD-23: neither the agent nor anybody else looks into the gate.
/// Attack: CRD-21, CRD-23
#[test]
fn nobody_reads_the_gate_s_memory() {
    let world = World::new();
    let pid = world.gate.pid();
    let read = |uid: u32, pid: u32, file: &str| {
        tests::command::Program::new("dd")
            .args(["bs=1", "count=1", "status=none"])
            .arg(format!("if=/proc/{pid}/{file}"))
            .as_uid(uid)
            .run()
    };
    // The control: a process of its own uid can be read.
    let mut own = tests::command::Program::new("sleep")
        .arg("60")
        .as_uid(world.agent)
        .spawn();
    wait::until_true("the agent reads a process of its own", || {
        read(world.agent, own.id(), "environ").status.success()
    });
    for file in ["environ", "maps", "auxv", "mem"] {
        for uid in [world.agent, host::uid(), world.gate.uid] {
            read(uid, pid, file).refused();
        }
    }
    own.kill().unwrap();
    own.wait().unwrap();
}

#[test]
fn a_changed_file_is_used_by_the_next_request_and_a_broken_one_changes_nothing() {
    let world = World::new();
    let file = world.gate.dir.join("credentials/web");
    let get = |path: &str| world.curl(&[&format!("https://{WEB}/{path}")]);
    assert!(get("one").output().ends_with("200"));
    assert!(world.web.received().contains(&world.web_secret.secret));

    let fresh = canary::Canary::plain();
    let beside = world.gate.dir.join("credentials/web.new");
    host::file(&beside, &fresh.secret, world.gate.uid, 0o600);
    fs::rename(&beside, &file).unwrap();
    wait::until_true("the new value is used", || {
        get("two");
        world.web.received().contains(&fresh.secret)
    });

    // The connection that carried the former value is not kept for its sake.
    let former = forms(&world.web_secret);
    wait::until_true("the former value has left the gate's memory", || {
        in_memory(world.gate.pid(), &former) == 0
    });
    let now = forms(&fresh);
    let known = usize::from(!sealed(world.gate.pid()));
    assert!(get("again").output().ends_with("200"));
    assert!(
        in_memory(world.gate.pid(), &now) > known,
        "control: the new one's is kept"
    );

    host::file(&file, "\n", world.gate.uid, 0o600);
    wait::until_true("the loss is told", || {
        let log = world.gate.log();
        log.contains("credential web") && log.contains("the former value stays in use")
    });
    let before = world.web.received().matches(&fresh.secret).count();
    assert!(get("three").output().ends_with("200"));
    let after = world.web.received().matches(&fresh.secret).count();
    assert!(after > before, "the former value is still used");
    for secret in [&world.web_secret, &fresh] {
        secret.absent_from("the log", world.gate.log());
        secret.absent_from("the audit log", fs::read(world.gate.audit_file()).unwrap());
    }
}

/// Rotation by SIGHUP while an answer is on its way: it ends as it began, and only what comes later has
/// the new value.
#[test]
fn a_request_under_way_ends_with_the_value_it_began_with() {
    let world = World::new();
    let lines = 160;
    let target = format!("/drip/{lines}");
    let saved = world.home().join("saved");
    let mut slow = world
        .agent("curl")
        .args(["-sSN", "--fail", "--max-time", "120", "-o"])
        .arg(&saved)
        .arg(format!("https://{WEB}{target}"))
        .spawn();
    wait::until_true("the answer begins", || {
        fs::metadata(&saved).is_ok_and(|saved| saved.len() > 0)
    });
    let former = world.web_secret.secret.clone();
    assert_eq!(world.web.received().matches(&former).count(), 1);

    let fresh = canary::Canary::plain();
    let beside = world.gate.dir.join("credentials/web.new");
    host::file(&beside, &fresh.secret, world.gate.uid, 0o600);
    fs::rename(&beside, world.gate.dir.join("credentials/web")).unwrap();
    tests::command::Program::new("kill")
        .args(["-HUP", &world.gate.pid().to_string()])
        .run()
        .ok();
    wait::until_true("the new value is used", || {
        world.curl(&[&format!("https://{WEB}/later")]);
        world.web.received().contains(&fresh.secret)
    });
    let meanwhile = slow.try_wait().unwrap();
    assert!(
        meanwhile.is_none(),
        "control: it was under way all the time"
    );
    let ended = wait::until("the answer ends", || slow.try_wait().unwrap());
    assert!(ended.success(), "{ended}");
    let saved = fs::read_to_string(&saved).unwrap();
    assert_eq!(saved.lines().count(), lines);
    assert!(
        world
            .curl(&[&format!("https://{WEB}/last")])
            .output()
            .ends_with("200")
    );
    let received = world.web.received();
    let last = received.rsplit_once("GET /last ").unwrap().1;
    assert!(last.contains(&fresh.secret) && !last.contains(&former));
    // It was asked once: nothing was sent again for the new value's sake.
    assert_eq!(received.matches(&format!("GET {target} ")).count(), 1);
    wait::until_true(
        "the former value goes with the request that it was for",
        || in_memory(world.gate.pid(), &forms(&world.web_secret)) == 0,
    );
}

/// What a crashed gate leaves, and its metrics, hold no form of the secret.
/// The control is a process that holds it without care.
///
/// Attack: CRD-20
#[test]
fn neither_a_crash_nor_the_metrics_show_the_secret() {
    let mut world = World::new();
    let secret = world.web_secret.clone();
    assert!(
        world
            .curl(&[&format!("https://{WEB}/one")])
            .output()
            .ends_with("200")
    );
    let metrics = world.control().call("GET", "/v1/metrics", None);
    assert_eq!(metrics.status, 200);
    assert!(
        metrics
            .body
            .contains("portcullis_credential_injected_total{credential=\"web\"} 1")
    );
    secret.absent_from("the metrics", &metrics.body);

    let careless = host::scratch();
    let crash = |signal: &str, pid: u32| {
        tests::command::Program::new("kill")
            .args([signal, &pid.to_string()])
            .run()
            .ok();
    };
    let mut control = tests::command::Program::new("sh")
        .in_directory(careless.path())
        .env("HELD", &secret.secret)
        .args(["-c", "ulimit -c unlimited; : > ready; exec sleep 60"])
        .spawn();
    wait::until_true("it is ready", || careless.path().join("ready").exists());
    let environ = fs::read(format!("/proc/{}/environ", control.id())).unwrap();
    assert_eq!(secret.find("its environment", &environ)[0].form, "raw");
    crash("-ABRT", control.id());
    control.wait().unwrap();
    // Where the system keeps cores elsewhere, the control is what the kernel showed of it above.
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    if !pattern.starts_with(['|', '/']) {
        assert!(
            !secret.search(careless.path()).is_empty(),
            "control: a core"
        );
    }

    let (pid, before) = (world.gate.pid(), secret.search(&world.path()).len());
    let home = fs::read_link(format!("/proc/{pid}/cwd")).unwrap();
    let cores = || {
        let names = fs::read_dir(&home).unwrap().flatten();
        names
            .filter(|it| it.file_name().to_string_lossy().starts_with("core"))
            .count()
    };
    let cores_before = cores();
    crash("-ABRT", pid);
    wait::until_true("the gate is gone", || !world.gate.runs());
    assert_eq!(cores(), cores_before, "in {}", home.display());
    assert_eq!(secret.search(&world.path()).len(), before);
    secret.absent_from("the gate's last words", world.gate.log());
}
