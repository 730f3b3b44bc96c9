//! Run containers: rootless, one range of host ids each, nothing of the host's inside, limits that
//! hold, and a system call list that refuses what has no business there.
//!
//! Each test makes an account with subordinate ids and a control group subtree of its own, as
//! `portcullis up` does for the orchestrator, and starts real containers as that account.

mod calls;
mod direct;
mod exec;
mod helpers;
mod network;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use tests::command::{Finished, Program};
use tests::{binaries, host, wait};

/// Ids that one run gets.
const SLICE: u32 = 1024;

struct Bench {
    uid: u32,
    account: String,
    ids: u32,
    groups: Vec<PathBuf>,
    directory: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let uid = host::uid();
        let account = format!("pct{uid}");
        let ids = 1_200_000_000 + uid % 4000 * 65_536;
        let range = format!("{ids}-{}", ids + 65_535);
        let (number, name) = (uid.to_string(), account.as_str());
        wait::until_true("a group", || {
            let group = Program::new("groupadd").args(["-g", &number, name]);
            group.run().status.success()
        });
        wait::until_true("an account", || {
            Program::new("useradd")
                .args(["-r", "-M", "-d", "/nonexistent", "-s", "/usr/sbin/nologin"])
                .args(["-u", &number, "-g", &number, name])
                .run()
                .status
                .success()
        });
        // The files are locked while another test writes them.
        wait::until_true("subordinate ids", || {
            Program::new("usermod")
                .args(["--add-subuids", &range, "--add-subgids", &range, name])
                .run()
                .status
                .success()
        });
        let groups = subtree(name, uid);
        let directory = host::scratch();
        host::directory(&directory.path().join("state"), uid, 0o711);
        host::directory(&directory.path().join("gate"), 0, 0o711);
        Self {
            uid,
            account,
            ids,
            groups,
            directory,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The command line of a container, ready for a shell that first joins the subtree.
    fn line(&self, options: &[&str], script: &str) -> Vec<String> {
        let uid = self.uid.to_string();
        let mut words: Vec<String> = [
            "setpriv",
            "--reuid",
            &uid,
            "--regid",
            &uid,
            "--clear-groups",
        ]
        .map(String::from)
        .into();
        words.push(
            binaries::path("portcullis-orchestrator")
                .display()
                .to_string(),
        );
        let state = self.path("state").display().to_string();
        words.extend(["container", "--state", &state].map(String::from));
        words.extend(options.iter().map(|word| (*word).to_owned()));
        words.extend(["--", "/bin/bash", "-c", script].map(String::from));
        words
    }

    fn inside(&self, before: &str) -> Program {
        let mut join = String::new();
        for group in &self.groups {
            let group = group.display();
            // With version 2, whoever came first has made a leaf for processes like itself.
            join.push_str(&format!(
                "{{ echo $$ > {group}/supervisor/cgroup.procs; }} 2>/dev/null \
                 || echo $$ > {group}/cgroup.procs; "
            ));
        }
        let shell = format!("{join} {before} exec \"$@\"");
        Program::new("/bin/bash").args(["-c", &shell, "bash"])
    }

    /// Runs `script` in a container.
    fn run(&self, options: &[&str], script: &str) -> Finished {
        self.inside("").args(self.line(options, script)).run()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for group in self.groups.iter().chain(&named(&self.account)) {
            remove_group(group);
        }
        // As above; whatever fails here must not hide why a test failed.
        for tool in ["userdel", "groupdel"] {
            let known = |database: &str| {
                let entry = Program::new("getent").args([database, &self.account]);
                entry.run().status.success()
            };
            for _attempt in 0..100 {
                Program::new(tool).arg(&self.account).run();
                if !known(if tool == "userdel" { "passwd" } else { "group" }) {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
        }
    }
}

/// A control group subtree that belongs to `uid`, under each hierarchy that has a controller for
/// the limits.
fn subtree(name: &str, uid: u32) -> Vec<PathBuf> {
    let unified = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    let parents: Vec<PathBuf> = if unified {
        vec!["/sys/fs/cgroup".into()]
    } else {
        vec!["/sys/fs/cgroup/memory".into(), "/sys/fs/cgroup/pids".into()]
    };
    let mut groups = Vec::new();
    for parent in parents {
        let group = parent.join(name);
        fs::create_dir(&group).unwrap();
        for file in [
            "",
            "cgroup.procs",
            "tasks",
            "cgroup.subtree_control",
            "cgroup.threads",
        ] {
            let path = group.join(file);
            if path.exists() {
                chown(&path, Some(uid), Some(uid)).unwrap();
            }
        }
        groups.push(group);
    }
    groups
}

/// Groups of this name anywhere: where `exec` makes them depends on where the test itself runs.
fn named(name: &str) -> Vec<PathBuf> {
    let found = Program::new("find")
        .args(["/sys/fs/cgroup", "-type", "d", "-name", name])
        .run();
    found.stdout.lines().map(PathBuf::from).collect()
}

fn remove_group(group: &Path) {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            remove_group(&entry.path());
        }
    }
    let _left_behind = fs::remove_dir(group);
}

/// A gate's socket that tells who connected and what was said, and answers.
fn listen(directory: &Path) -> mpsc::Receiver<(u32, String)> {
    let path = directory.join("gate.sock");
    let listener = UnixListener::bind(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    let (told, heard) = mpsc::channel();
    std::thread::spawn(move || {
        while let Ok((mut client, _)) = listener.accept() {
            let uid = getsockopt(&client, PeerCredentials).unwrap().uid();
            let mut line = [0; 6];
            client.read_exact(&mut line).unwrap();
            client.write_all(b"answer").unwrap();
            if told
                .send((uid, String::from_utf8_lossy(&line).into_owned()))
                .is_err()
            {
                break;
            }
        }
    });
    heard
}

#[test]
fn each_run_reaches_the_gate_as_a_host_id_of_its_own_and_nothing_else() {
    let bench = Bench::new();
    let heard = listen(&bench.path("gate"));
    let gate = bench.path("gate").display().to_string();
    // The first run stays until the second has spoken, so that both exist at once.
    let talk = "exec 3<>/dev/tcp/127.0.0.1/3128; printf hello! >&3; head -c 6 <&3; ";
    let first = format!("{talk} read line");
    let mut staying = bench
        .inside("")
        .args(bench.line(&["--gate", &gate], &first))
        .spawn();
    let (one, said) = heard
        .recv_timeout(std::time::Duration::from_secs(60))
        .unwrap();
    assert_eq!(said, "hello!");
    let second = bench.run(&["--gate", &gate], talk).ok();
    assert_eq!(second.stdout, "answer");
    let (two, _) = heard
        .recv_timeout(std::time::Duration::from_secs(60))
        .unwrap();
    drop(staying.stdin.take());
    assert!(staying.wait().unwrap().success() || staying.wait().unwrap().code() == Some(1));
    assert_eq!((one, two), (bench.ids + 1000, bench.ids + SLICE + 1000));

    let network = bench.run(
        &[],
        "ls /sys/class/net; tail -n +2 /proc/net/route | wc -l; \
         (exec 3<>/dev/tcp/192.0.2.1/80) 2>&1 | grep -om1 'Network is unreachable'; \
         (exec 3<>/dev/udp/192.0.2.1/53) 2>&1 | grep -om1 'Network is unreachable'",
    );
    let lines: Vec<&str> = network.stdout.lines().collect();
    assert_eq!(
        lines,
        [
            "lo",
            "0",
            "Network is unreachable",
            "Network is unreachable"
        ],
        "{}",
        network.shown()
    );
}

/// Attack: KRN-10
#[test]
fn every_namespace_is_the_runs_own_and_nothing_is_inherited() {
    let bench = Bench::new();
    let kinds = ["user", "net", "pid", "mnt", "ipc", "uts", "cgroup"];
    let script = "for k in user net pid mnt ipc uts cgroup; do readlink /proc/self/ns/$k; done; \
                  echo --; ls /proc/self/fd | wc -l; readlink /proc/1/exe; ls /proc/1/fd; id -u; \
                  grep -E 'NoNewPrivs|Seccomp:|CapBnd|CapEff' /proc/self/status";
    // Descriptors that a careless parent leaves open to what it starts.
    let careless = "exec 9</etc/passwd 8<>/dev/null;";
    let finished = bench.inside(careless).args(bench.line(&[], script)).run();
    let (namespaces, rest) = finished.stdout.split_once("--\n").unwrap();
    for (kind, inside) in kinds.iter().zip(namespaces.lines()) {
        let outside = fs::read_link(format!("/proc/self/ns/{kind}")).unwrap();
        assert_ne!(outside.to_string_lossy(), inside, "{kind}");
    }
    // Three streams and the directory that is being listed.
    assert_eq!(rest.lines().next(), Some("4"), "{}", finished.shown());
    let control = bench
        .inside(careless)
        .args(["/bin/bash", "-c", "ls /proc/self/fd"])
        .run();
    let leaked = control
        .stdout
        .lines()
        .filter(|fd| ["8", "9"].contains(fd))
        .count();
    assert_eq!(leaked, 2, "an ordinary start does inherit them");
    assert!(
        finished.stderr.contains("/proc/1/fd"),
        "pid 1 cannot be looked into"
    );
    for expected in [
        "\n1000\n",
        "CapBnd:\t0000000000000000",
        "CapEff:\t0000000000000000",
        "NoNewPrivs:\t1",
        "Seccomp:\t2",
    ] {
        assert!(rest.contains(expected), "{expected}: {}", finished.shown());
    }
}

#[test]
fn ssh_is_refused_with_its_remedy_and_without_a_try() {
    let bench = Bench::new();
    let refused = bench.run(
        &[],
        "git ls-remote ssh://git@other.portcullis.test:22/acme/web 2>&1; echo code $?; git config --system core.sshCommand",
    );
    let said = refused.ok().stdout;
    for part in [
        "Portcullis: ssh (port 22) is refused",
        "hint: use https://HOST/",
        "code 128",
        "sh -c",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn the_system_is_read_only_and_nothing_of_the_host_is_in_it() {
    let bench = Bench::new();
    let refused = bench.run(
        &[],
        "for d in / /usr /usr/bin /etc /opt /opt/agent /run /run/portcullis /var /root /home /sys /proc/sys; do \
         (: > $d/x) 2>/dev/null && echo wrote $d; done; \
         for d in /work /home/agent /tmp /dev/shm; do : > $d/x || echo cannot write $d; done",
    );
    assert_eq!(refused.ok().stdout, "");
    let seen = bench.run(
        &[],
        "cut -d' ' -f5,6 /proc/self/mountinfo; echo --; ls -A /root /home /srv /mnt /var/lib /etc/ssl/private \
         /etc/shadow /run/docker.sock /var/run/docker.sock /run/systemd /etc/ssh 2>/dev/null; echo --; \
         hostname; cat /etc/passwd",
    );
    let parts: Vec<&str> = seen.stdout.split("--\n").collect();
    let expected = [
        "/",
        "/dev",
        "/proc",
        "/sys",
        "/usr",
        "/work",
        "/tmp",
        "/home/agent",
        "/run/portcullis",
        "/opt/portcullis/relay",
        "/opt/portcullis/trust",
        "/etc/gitconfig",
        "/etc/ssl/certs/ca-certificates.crt",
    ];
    for line in parts[0].lines() {
        let (mount, options) = line.split_once(' ').unwrap();
        let known = expected.contains(&mount)
            || ["/dev/", "/proc/", "/usr/"]
                .iter()
                .any(|start| mount.starts_with(start));
        assert!(known, "unexpected mount {mount}");
        // The kernel's own trees and devices hold no set-user-id files, and none can be made there.
        let own =
            mount.starts_with("/dev") || mount.starts_with("/sys") || mount.starts_with("/proc");
        assert!(own || options.contains("nosuid,nodev"), "{line}");
    }
    assert_eq!(
        parts[1].trim(),
        "/home:\nagent\n\n/mnt:\n\n/root:\n\n/srv:\n\n/var/lib:",
        "{}",
        seen.shown()
    );
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert!(
        !parts[2].contains(name.trim()) && parts[2].contains("agent:x:1000"),
        "{}",
        parts[2]
    );
}

#[test]
fn memory_and_process_limits_hold() {
    let bench = Bench::new();
    let eat = "perl -e '$x = \"a\" x (200 << 20); print length $x'";
    let killed = bench.run(&["--memory", "64"], &format!("exec {eat}"));
    assert_eq!(
        (killed.code(), killed.stdout.as_str()),
        (137, ""),
        "{}",
        killed.shown()
    );
    let fits = bench.run(&["--memory", "1024"], eat).ok();
    assert_eq!(fits.stdout, "209715200");

    let fork = "perl -e 'my $n = 0; for (1..60) { my $p = fork(); last unless defined $p; \
                if (!$p) { sleep 30; exit } $n++ } print $n; kill 9, -getpgrp if 0; '; kill $(jobs -p) 2>/dev/null; true";
    let few: u32 = bench
        .run(&["--pids", "24"], fork)
        .stdout
        .trim()
        .parse()
        .unwrap();
    assert!(few < 24, "{few}");
    let many = bench.run(&["--pids", "200"], fork);
    assert_eq!(many.stdout.trim(), "60", "{}", many.shown());
}

#[test]
fn a_run_whose_limits_cannot_be_set_is_refused() {
    let bench = Bench::new();
    let words = bench.line(&[], "touch ran; echo ran");
    // The same command, started outside the subtree that was handed over.
    let refused = Program::new(&words[0]).args(&words[1..]).run();
    assert_eq!(
        (refused.code(), refused.stdout.as_str()),
        (125, ""),
        "{}",
        refused.shown()
    );
    assert!(
        refused.stderr.contains("limits cannot be set"),
        "{}",
        refused.shown()
    );
    assert!(refused.stderr.contains("hint:"), "{}", refused.shown());
    assert_eq!(bench.run(&[], "echo ran").ok().stdout, "ran\n");
}

#[test]
fn output_is_logged_line_by_line_and_the_exit_code_is_the_commands() {
    let bench = Bench::new();
    let log = bench.path("state/log");
    let options = ["--log", log.to_str().unwrap()];
    let finished = bench.run(&options, "echo out; echo err > /dev/stderr; exit 42");
    assert_eq!(finished.code(), 42, "{}", finished.shown());
    let text = fs::read_to_string(&log).unwrap();
    let mut lines: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    lines.sort_by_key(|line| line["stream"].to_string());
    let said = |index: usize| {
        (
            lines[index]["stream"].as_str(),
            lines[index]["chunk"].as_str(),
        )
    };
    assert_eq!(said(0), (Some("stderr"), Some("err\n")));
    assert_eq!(said(1), (Some("stdout"), Some("out\n")));
    assert_eq!(bench.run(&[], "kill -9 $$").code(), 137);
    assert_eq!(bench.run(&[], "exec /nonexistent").code(), 127);
}

#[test]
fn a_workspace_goes_with_everything_in_it_and_nothing_beside_it() {
    let bench = Bench::new();
    let precious = bench.path("precious");
    host::directory(&precious, 0, 0o777);
    host::file(&precious.join("file"), "kept", 0, 0o666);
    let plant = format!(
        "ln -s {0} out; ln -s {0}/file link; mkdir -p a/b; echo x > a/b/c; mkfifo p; chmod 000 a/b a; \
         truncate -s 1T sparse; ls | wc -l",
        precious.display()
    );
    let kept = bench.run(&["--keep", "--run", "kept"], &plant).ok();
    assert_eq!(kept.stdout, "5\n");
    let workspace = bench.path("state/workspaces/kept");
    assert_eq!(workspace.metadata().unwrap().uid(), bench.ids + 1000);
    let gone = bench.run(&["--run", "gone"], &plant).ok();
    assert_eq!(gone.stdout, "5\n");
    assert!(!bench.path("state/workspaces/gone").exists());
    assert_eq!(fs::read_to_string(precious.join("file")).unwrap(), "kept");
}

#[test]
fn when_its_starter_is_killed_a_run_ends_and_its_ids_wait_for_proof() {
    let bench = Bench::new();
    let line = bench.line(&["--run", "orphan"], "echo started; sleep 1000");
    let mut starter = bench.inside("").args(line).spawn();
    let mut word = [0; 8];
    starter
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut word)
        .unwrap();
    assert_eq!(&word, b"started\n");
    let groups: Vec<PathBuf> = bench
        .groups
        .iter()
        .map(|group| group.join("run-orphan"))
        .collect();
    assert!(groups.iter().all(|group| group.is_dir()));
    let evidence = bench.path("state/runs/orphan/evidence.json");
    assert!(
        evidence.exists(),
        "what was started is on disk before the command runs"
    );
    let lock = bench
        .path("state/slices")
        .join(format!("slice-{}.lock", bench.ids));
    assert_eq!(fs::read_to_string(&lock).unwrap(), "orphan");

    starter.kill().unwrap();
    starter.wait().unwrap();
    wait::until_true("the run has ended", || {
        groups.iter().all(|group| processes(group) == 0)
    });
    assert_eq!(
        fs::read_to_string(&lock).unwrap(),
        "orphan",
        "its ids are in quarantine"
    );
    // The next start proves the old run gone, and only then uses its ids.
    let next = bench.run(&[], "true");
    assert_eq!(next.code(), 0, "{}", next.shown());
    assert_eq!(fs::read_to_string(&lock).unwrap(), "");
    assert!(groups.iter().all(|group| !group.exists()) && !evidence.exists());
}

fn processes(group: &Path) -> usize {
    let mut found = fs::read_to_string(group.join("cgroup.procs"))
        .unwrap_or_default()
        .lines()
        .count();
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            found += processes(&entry.path());
        }
    }
    found
}
