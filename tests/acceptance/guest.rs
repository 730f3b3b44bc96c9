//! A guest becomes a sealed agent machine by one command, is proven, broken, repaired and made anew on its data, in a real
//! LXD with a real systemd inside.

use serde_json::Value;
use tests::lxd::Lxd;

const GUEST: &str = "agents";
const VOLUME: &str = "agents-data";

#[test]
fn a_guest_is_made_provisioned_proven_broken_remade_and_removed_and_its_data_stays() {
    let lxd = Lxd::start();
    let root = Lxd::root();
    let root = root.to_str().unwrap();
    lxd.guest(&["create", GUEST, "--rootfs", root]).ok();
    assert_sealed_in(&lxd);
    assert_names_are_kept_apart(&lxd, root);

    assert_killed_at_every_step_the_next_run_completes(&lxd);
    assert_proven(&lxd);
    assert_broken_is_repaired(&lxd);
    assert_remade_on_the_same_data(&lxd);
    assert_removed_without_its_data(&lxd);
}

/// Unprivileged, nested, with its own system, and its data on a volume.
fn assert_sealed_in(lxd: &Lxd) {
    let seen = lxd.ask("GET", "/1.0/instances/agents", &Value::Null);
    assert_eq!(seen["type"], "container");
    assert_eq!(seen["expanded_config"]["security.privileged"], "false");
    assert_eq!(seen["expanded_config"]["security.nesting"], "true");
    assert_eq!(seen["expanded_devices"]["data"]["source"], VOLUME);
    assert_eq!(seen["expanded_devices"]["eth0"]["nictype"], "p2p");
    let map = lxd
        .inside(
            GUEST,
            "read -r inside outside _ </proc/self/uid_map; echo $inside $outside",
        )
        .ok();
    let (inside, outside) = map.stdout.trim().split_once(' ').unwrap();
    assert_eq!(inside, "0");
    assert_ne!(outside, "0", "its root is nobody's here");
    lxd.inside(
        GUEST,
        "mountpoint -q /var/lib/portcullis && [ $(cat /proc/1/comm) = systemd ]",
    )
    .ok();
    let listed: Value = serde_json::from_str(&lxd.guest(&["list", "--json"]).ok().stdout).unwrap();
    assert_eq!(listed[0]["name"], GUEST);
    assert_eq!(listed[0]["data"], VOLUME);
    assert_eq!(listed[0]["unprivileged"], true);
}

/// A name that is taken, a volume that is in use, and a guest of somebody else's.
fn assert_names_are_kept_apart(lxd: &Lxd, root: &str) {
    let again = lxd.guest(&["create", GUEST, "--rootfs", root]);
    assert_eq!(again.code(), 2, "{}", again.shown());
    assert!(
        again.stderr.contains("recreate agents"),
        "{}",
        again.shown()
    );
    let taken = lxd.guest(&["create", "other", "--rootfs", root, "--data", VOLUME]);
    assert_eq!(taken.code(), 2, "{}", taken.shown());
    assert!(
        taken.stderr.contains("is in use by agents"),
        "{}",
        taken.shown()
    );
    let instances = lxd.ask("GET", "/1.0/instances", &Value::Null);
    assert_eq!(instances.as_array().unwrap().len(), 1, "{instances}");
    let somebodys = serde_json::json!({
        "name": "somebodys", "type": "container", "profiles": [], "source": {"type": "none"},
        "devices": {"root": {"type": "disk", "pool": "default", "path": "/"}},
    });
    lxd.ask("POST", "/1.0/instances", &somebodys);
    tests::wait::until_true("somebody's instance", || {
        let there = lxd.ask("GET", "/1.0/instances", &Value::Null);
        there.as_array().is_some_and(|there| there.len() == 2)
    });
    for command in ["destroy", "recreate", "provision"] {
        let refused = lxd.guest(&[command, "somebodys"]);
        assert_eq!(refused.code(), 2, "{}", refused.shown());
        assert!(
            refused.stderr.contains("was not made by"),
            "{}",
            refused.shown()
        );
    }
    let instances = lxd.ask("GET", "/1.0/instances", &Value::Null);
    assert_eq!(instances.as_array().unwrap().len(), 2, "{instances}");
}

/// The run is killed when it has begun each step in turn; the last one is completed, and the one after it changes nothing.
fn assert_killed_at_every_step_the_next_run_completes(lxd: &Lxd) {
    let planned = lxd.guest(&["provision", GUEST, "--plan"]);
    assert_eq!(planned.code(), 1, "{}", planned.shown());
    let untouched = lxd.inside(
        GUEST,
        "! test -e /etc/portcullis && ! getent passwd portcullis-proxy",
    );
    untouched.ok();
    let killed = lxd
        .inside(
            GUEST,
            "cd /root/portcullis-programs
             run() { ./portcullis guest provision --binaries . 2>&1; }
             count=$(./portcullis guest provision --binaries . --plan 2>&1 | sed -n 's/^[0-9]* of \\([0-9]*\\) steps.*/\\1/p')
             for step in $(seq \"$count\"); do
                 run | while read -r line; do
                     case $line in '['*\" $step/$count]\"* | \"[$step/$count]\"*) pkill -KILL -x portcullis; echo killed; break ;; esac
                 done
             done",
        )
        .ok();
    let times = killed
        .stdout
        .lines()
        .filter(|line| *line == "killed")
        .count();
    assert!(times > 15, "{times}: {}", killed.shown());
    lxd.guest(&["provision", GUEST]).ok();
    let again = lxd.guest(&["provision", GUEST]).ok();
    assert!(again.stderr.contains("0 changed"), "{}", again.shown());
    let verified = lxd.guest(&["provision", GUEST, "--verify"]).ok();
    assert!(
        !verified.stderr.contains("DOES NOT HOLD"),
        "{}",
        verified.shown()
    );
    assert_eq!(lxd.guest(&["provision", GUEST, "--plan"]).code(), 0);
    lxd.inside(
        GUEST,
        "portcullis status && grep -qx 'scope = \"guest\"' /etc/portcullis/boundary.toml",
    )
    .ok();
}

fn assert_proven(lxd: &Lxd) {
    let proven = lxd.inside(GUEST, "portcullis prove --format json 2>/dev/null");
    assert_eq!(proven.code(), 0, "{}", proven.shown());
    let report: Value = serde_json::from_str(&proven.stdout).unwrap();
    let proofs = report["proofs"].as_array().unwrap();
    let hold = proofs
        .iter()
        .filter(|proof| proof["status"] == "holds")
        .count();
    assert!(hold > 100, "{hold}");
}

/// What is taken away is told by `--verify` and put back by the next run; a step can be stopped at.
fn assert_broken_is_repaired(lxd: &Lxd) {
    lxd.inside(GUEST, "rm /etc/systemd/system/portcullis-proxy.service; systemctl stop portcullis-proxy; chmod 0755 /var/lib/portcullis/proxy").ok();
    let verified = lxd.guest(&["provision", GUEST, "--verify"]);
    assert_eq!(verified.code(), 1, "{}", verified.shown());
    for step in [
        "directories: DOES NOT HOLD",
        "systemd units: DOES NOT HOLD",
        "service proxy: DOES NOT HOLD",
    ] {
        assert!(
            verified.stderr.contains(step),
            "{step}: {}",
            verified.shown()
        );
    }
    lxd.guest(&["provision", GUEST, "--until", "directories"])
        .ok();
    lxd.inside(GUEST, "[ $(stat -c %a /var/lib/portcullis/proxy) = 700 ] && ! test -e /etc/systemd/system/portcullis-proxy.service").ok();
    let unknown = lxd.guest(&["provision", GUEST, "--until", "directory"]);
    assert_ne!(unknown.code(), 0);
    assert!(
        unknown
            .stderr
            .contains("the steps are instance record, users"),
        "{}",
        unknown.shown()
    );
    lxd.guest(&["provision", GUEST]).ok();
    lxd.inside(GUEST, "portcullis status").ok();
}

/// Tickets, authority, log and an edited policy outlive the system they were made on.
fn assert_remade_on_the_same_data(lxd: &Lxd) {
    lxd.inside(
        GUEST,
        "set -e; portcullis company create Kept --prefix KEP
         portcullis ticket create 'Outlives' --company Kept
         echo '# mine' >>/etc/portcullis/policies/default.toml
         touch /root/expendable",
    )
    .ok();
    let authority = "sha256sum </var/lib/portcullis/proxy/ca/ca.pem";
    let before = lxd.inside(GUEST, authority).ok().stdout;
    let remade = lxd.guest(&["recreate", GUEST]).ok();
    let hashes: Vec<&str> = remade
        .stderr
        .lines()
        .filter_map(|line| line.strip_prefix("agents-data: sha256 "))
        .collect();
    assert_eq!(hashes.len(), 2, "{}", remade.shown());
    assert_eq!(hashes[0], hashes[1]);
    assert_eq!(hashes[0].len(), 64);
    lxd.inside(
        GUEST,
        "! test -e /root/expendable && ! getent passwd portcullis-proxy",
    )
    .ok();
    lxd.guest(&["provision", GUEST]).ok();
    assert_eq!(lxd.inside(GUEST, authority).ok().stdout, before);
    lxd.inside(
        GUEST,
        "portcullis status && portcullis ticket show KEP-1 | grep -q Outlives &&
         grep -qx '# mine' /etc/portcullis/policies/default.toml && portcullis audit verify",
    )
    .ok();
}

fn assert_removed_without_its_data(lxd: &Lxd) {
    lxd.guest(&["destroy", GUEST]).ok();
    let there = lxd.ask("GET", "/1.0/instances", &Value::Null);
    assert_eq!(there, serde_json::json!(["/1.0/instances/somebodys"]));
    let volume = lxd.ask(
        "GET",
        "/1.0/storage-pools/default/volumes/custom/agents-data",
        &Value::Null,
    );
    assert_eq!(volume["used_by"], serde_json::json!([]));
    let again = lxd.guest(&["destroy", GUEST]);
    assert_eq!(again.code(), 2, "{}", again.shown());
    assert!(
        again.stderr.contains("there is no guest agents"),
        "{}",
        again.shown()
    );
}
