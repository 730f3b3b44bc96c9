//! `portcullis up` proves itself, a second one changes nothing, `down --purge` leaves nothing.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tests::binaries;
use tests::command::Program;
use tests::host;
use tests::instance::Instance;

#[test]
fn up_proves_itself_a_second_changes_nothing_and_purge_leaves_nothing() {
    let instance = Instance::claim();
    let range = || fs::read_to_string("/proc/sys/net/ipv4/ping_group_range").unwrap();
    let range_before = range();
    let up = instance.run_up(&[]).ok();
    assert_eq!(range(), "1\t0\n", "no group may open ping sockets");
    for expected in [
        "Gate test passed",
        "destination_not_listed",
        "ref_not_allowed",
        "github",
    ] {
        assert!(up.output().contains(expected), "{expected}: {}", up.shown());
    }
    let status = instance.run_status(&["--json"]);
    assert_eq!(status.code(), 0, "{}", status.shown());
    let status: serde_json::Value = serde_json::from_str(&status.stdout).unwrap();
    assert_eq!(status["ok"], true);
    assert!(
        !traces(&instance.name).is_empty(),
        "the detector sees a running instance"
    );

    // No answer, no log and no file that an agent may read holds the demo's secret.
    let secret = credential(&instance);
    assert!(!up.output().contains(&secret));
    assert!(!status.to_string().contains(&secret));

    // The gate signs its log with a key that `up` made, and that nobody else reads.
    let key = instance.path("var/lib/portcullis/proxy/audit.key");
    let owned = fs::metadata(&key).unwrap();
    let gate = fs::metadata(instance.path("var/lib/portcullis/proxy")).unwrap();
    assert_eq!(owned.mode() & 0o7777, 0o600);
    assert_eq!((owned.uid(), owned.uid() == 0), (gate.uid(), false));
    let public = instance.path("var/lib/portcullis/trust/audit.asc");
    assert_eq!(
        fs::read(&public).unwrap(),
        fs::read(key.with_extension("key.pub")).unwrap()
    );
    let signed = fs::read(&key).unwrap();

    let files = snapshot(&instance.path("etc"));
    let accounts = fs::read_to_string("/etc/passwd").unwrap();
    let again = instance.run_up(&["--no-gate-test"]).ok();
    assert!(
        again.output().contains("nothing was changed"),
        "{}",
        again.shown()
    );
    assert_eq!(files, snapshot(&instance.path("etc")));
    assert_eq!(accounts, fs::read_to_string("/etc/passwd").unwrap());
    assert_eq!(signed, fs::read(&key).unwrap(), "a key is made once");

    instance.run_down(&[]).ok();
    assert_eq!(instance.run_status(&[]).code(), 1);
    let log = instance.path("var/lib/portcullis/proxy/audit");
    let verify = |key: &Path| {
        Program::new(binaries::path("portcullis-proxy"))
            .args(["audit", "verify", "--file"])
            .args([log.as_path(), Path::new("--key"), key])
            .run()
    };
    verify(&public).ok();
    let elsewhere = host::scratch();
    let other = elsewhere.path().join("other.key");
    Program::new(binaries::path("portcullis-proxy"))
        .args(["audit", "keygen", "--key"])
        .arg(&other)
        .run()
        .ok();
    let strange = verify(&other.with_extension("key.pub"));
    assert_eq!(strange.code(), 1, "{}", strange.shown());
    assert!(instance.processes("portcullis").is_empty());
    assert_eq!(
        files,
        snapshot(&instance.path("etc")),
        "down alone removes no configuration"
    );
    instance.run_up(&["--no-gate-test"]).ok();
    assert_eq!(instance.run_status(&[]).code(), 0);

    instance.run_down(&["--purge"]).ok();
    assert_eq!(traces(&instance.name), Vec::<String>::new());
    assert_eq!(range(), range_before);
    assert!(
        !instance.prefix.exists(),
        "{:?}",
        snapshot(&instance.prefix).keys()
    );
    assert!(instance.processes("").is_empty());
    instance.run_down(&["--purge"]).ok();
}

#[test]
fn up_repairs_what_is_broken() {
    let instance = Instance::up();
    let policies = instance.path("etc/portcullis/policies");
    let proxy = instance.processes("portcullis-proxy run");
    assert_eq!(proxy.len(), 1, "{proxy:?}");
    Program::new("nft")
        .args(["delete", "table", "inet", &instance.name])
        .run();
    fs::set_permissions(&policies, fs::Permissions::from_mode(0o700)).unwrap();
    let repaired = instance.run_up(&["--no-gate-test"]).ok();
    assert!(
        !repaired.output().contains("nothing was changed"),
        "{}",
        repaired.shown()
    );
    assert_eq!(fs::metadata(&policies).unwrap().mode() & 0o777, 0o755);
    assert_eq!(instance.run_status(&[]).code(), 0);
}

#[test]
fn a_killed_service_comes_back() {
    let instance = Instance::up();
    let find = || instance.processes("portcullis-proxy run");
    let before = find();
    assert_eq!(before.len(), 1, "{before:?}");
    Program::new("kill")
        .args(["-KILL", &before[0].to_string()])
        .run()
        .ok();
    tests::wait::until_true("the gate is started anew", || {
        let now = find();
        now.len() == 1 && now != before && instance.run_status(&[]).code() == 0
    });
}

#[test]
fn mistakes_are_answered_with_their_remedy_and_exit_2() {
    let portcullis = binaries::path("portcullis");
    let uid = host::uid();
    let readable = host::scratch();
    let copy = readable.path().join("portcullis");
    fs::copy(&portcullis, &copy).unwrap();
    let unprivileged = Program::new(&copy)
        .args(["up", "--prefix", "/tmp/never"])
        .as_uid(uid)
        .run();
    assert_eq!(unprivileged.code(), 2, "{}", unprivileged.shown());
    assert!(
        unprivileged.stderr.contains("hint:"),
        "{}",
        unprivileged.shown()
    );

    for arguments in [
        &["up", "--prefix", "relative"][..],
        &["up", "--prefix", "/tmp/never", "--name", "Not A Name"],
        &["up", "--prefix", "/tmp/never", "--repo", "acme/web"],
        &["uup"],
    ] {
        let refused = Program::new(&portcullis)
            .env("HOME", "/root")
            .args(arguments)
            .run();
        assert_eq!(refused.code(), 2, "{arguments:?}: {}", refused.shown());
        assert!(
            refused.stderr.contains("hint:"),
            "{arguments:?}: {}",
            refused.shown()
        );
    }
    assert!(!Path::new("/tmp/never").exists());
    Program::new(&portcullis).arg("--help").run().ok();
}

/// The demo's upstream secret, as only root and the gate can read it.
fn credential(instance: &Instance) -> String {
    let folder = instance.path("etc/portcullis/credentials");
    let entry = fs::read_dir(folder)
        .unwrap()
        .flatten()
        .next()
        .expect("one demo credential");
    let secret = fs::read_to_string(entry.path()).unwrap().trim().to_owned();
    assert!(secret.len() > 15);
    secret
}

/// What an instance leaves on the host outside its prefix.
fn traces(name: &str) -> Vec<String> {
    let mut found = Vec::new();
    for file in ["/etc/passwd", "/etc/group", "/etc/subuid", "/etc/subgid"] {
        let text = fs::read_to_string(file).unwrap_or_default();
        let lines = text.lines().filter(|line| line.starts_with(name));
        found.extend(lines.map(|line| format!("{file}: {line}")));
    }
    let tables = Program::new("nft").args(["list", "tables"]).run().stdout;
    found.extend(
        tables
            .lines()
            .filter(|line| line.contains(&format!(" {name}")))
            .map(str::to_owned),
    );
    let mut open = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_symlink() || !path.is_dir() {
                continue;
            }
            if entry.file_name().to_string_lossy().starts_with(name) {
                found.push(path.display().to_string());
            } else {
                open.push(path);
            }
        }
    }
    for folder in [
        "/run/netns",
        "/etc/netns",
        "/etc/systemd/system",
        "/etc/sysctl.d",
    ] {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            // Namespaces of other tests carry a dash; settings a number in front.
            let file = entry.file_name().to_string_lossy().into_owned();
            let file = file.trim_start_matches("90-");
            if file.starts_with(name) && !file.starts_with("pt-") {
                found.push(entry.path().display().to_string());
            }
        }
    }
    found.sort();
    found
}

/// Path, mode, owner, change time and content length of everything below `root`.
fn snapshot(root: &Path) -> BTreeMap<PathBuf, (u32, u32, i64, u64)> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(path) = open.pop() {
        let Ok(meta) = fs::symlink_metadata(&path) else {
            continue;
        };
        found.insert(
            path.clone(),
            (meta.mode(), meta.uid(), meta.mtime_nsec(), meta.len()),
        );
        if meta.is_dir() {
            open.extend(
                fs::read_dir(&path)
                    .into_iter()
                    .flatten()
                    .flatten()
                    .map(|it| it.path()),
            );
        }
    }
    found
}
