//! Where a secret is while the gate holds it, and what happens when it changes or is refused.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use tests::canary::{self, Sighting};
use tests::host;
use tests::wait;
use tests::world::{WEB, World};

/// Every sighting in the memory of `pid`, as root sees it. What root cannot read is passed over:
/// that is where secrets belong.
fn in_memory(pid: u32, forms: &[(String, Vec<u8>)]) -> Vec<Sighting> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
    let mut found = Vec::new();
    for line in maps.lines() {
        let range = line.split(' ').next().unwrap();
        let (from, to) = range.split_once('-').unwrap();
        let from = u64::from_str_radix(from, 16).unwrap();
        let to = u64::from_str_radix(to, 16).unwrap();
        let readable = line
            .split(' ')
            .nth(1)
            .is_some_and(|mode| mode.starts_with('r'));
        if !readable || line.ends_with("[vvar]") || line.ends_with("[vsyscall]") {
            continue;
        }
        // Sparse mappings are huge and empty: page by page, in steps.
        const STEP: u64 = 1 << 20;
        let mut at = from;
        let mut carried: Vec<u8> = Vec::new();
        while at < to {
            let len = STEP.min(to - at);
            let mut bytes = vec![0; usize::try_from(len).unwrap()];
            if memory.read_exact_at(&mut bytes, at).is_ok() {
                let mut window = std::mem::take(&mut carried);
                let start = window.len();
                window.extend_from_slice(&bytes);
                for (form, wanted) in forms {
                    let hits = window
                        .windows(wanted.len())
                        .enumerate()
                        .filter(|(index, seen)| index + wanted.len() > start && *seen == wanted)
                        .count();
                    found.extend((0..hits).map(|_| Sighting {
                        place: line.to_owned(),
                        form: form.clone(),
                    }));
                }
                carried = window.split_off(window.len().saturating_sub(255));
            }
            at += len;
        }
    }
    found
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
    assert!(
        !in_memory(std::process::id(), &forms).is_empty(),
        "{}",
        held.len()
    );
    // Without memfd_secret the one locked copy can be read by root.
    let at_rest = usize::from(!sealed(pid));
    assert!(sightings().len() <= at_rest, "at rest: {:#?}", sightings());

    let url = format!("https://{WEB}/one");
    assert!(world.curl(&[&url]).output().ends_with("200"));
    assert!(
        world.web.received().contains(&format!("Bearer {held}"))
            || world.web.received().contains(&held)
    );
    wait::until_true("the request is over and one copy at most is left", || {
        sightings().len() <= at_rest + 1
    });
    for _ in 0..5 {
        assert!(world.curl(&[&url]).output().ends_with("200"));
    }
    wait::until_true("not one more for each request", || {
        sightings().len() <= at_rest + 1
    });
    world.web.stop();
    wait::until_true("none is left when the connection is gone", || {
        sightings().len() <= at_rest
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
