//! What a host keeps for its own users does nothing for a run: set-user-id programs, container
//! engines, other managers, and ways to become root.

use tests::command::{Finished, Program};

use super::Bench;

/// The sockets of whoever could start a process elsewhere on a host that has them all.
const ENGINES: [&str; 6] = [
    "/run/docker.sock",
    "/var/run/docker.sock",
    "/run/podman/podman.sock",
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/buildkit/buildkitd.sock",
];
const MANAGERS: [&str; 4] = [
    "/run/dbus/system_bus_socket",
    "/run/systemd/private",
    "/run/user/1000/bus",
    "/run/user/1000/systemd/private",
];

/// Where a run finds its workspace.
const WORK: &str = "/work";

/// Prints `PATH open` for each of the arguments that can be connected to.
const CONNECT: &str = r#"perl -MSocket -e 'for (@ARGV) {
    socket(S, PF_UNIX, SOCK_STREAM, 0) or die; print "$_ open\n" if connect(S, sockaddr_un($_)) }' "#;

/// Runs these words on a host whose `/run` holds all those sockets, each with somebody who listens.
fn among_sockets(bench: &Bench, words: Vec<String>) -> Finished {
    let listeners = format!(
        "mount -t tmpfs tmpfs /run && chmod 755 /run && mkdir /run/lock && \
         coproc perl -MSocket -MFile::Basename -MFile::Path=make_path -e '$| = 1; for (@ARGV) {{ \
         make_path(dirname($_)); next if -S $_; my $s; socket($s, PF_UNIX, SOCK_STREAM, 0) or die; \
         bind($s, sockaddr_un($_)) or die \"$_: $!\"; chmod(0777, $_); listen($s, 64); push @all, $s }} \
         print \"ready\\n\"; sleep 600' {} {} && read -u \"${{COPROC[0]}}\" ready && \
         test \"$ready\" = ready || exit 99; ",
        ENGINES.join(" "),
        MANAGERS.join(" "),
    );
    let after = "\"$@\"; code=$?; kill $COPROC_PID; exit $code";
    let join = bench.groups.iter().fold(String::new(), |all, group| {
        let group = group.display();
        all + &format!(
            "{{ echo $$ > {group}/supervisor/cgroup.procs; }} 2>/dev/null || echo $$ > {group}/cgroup.procs; "
        )
    });
    Program::new("unshare")
        .args(["--mount", "--propagation", "private", "/bin/bash", "-c"])
        .arg(format!("{listeners} {join} {after}"))
        .arg("bash")
        .args(words)
        .run()
}

/// The same script as the account that starts runs, outside of any.
fn outside(bench: &Bench, script: &str) -> Vec<String> {
    let uid = bench.uid.to_string();
    [
        "setpriv",
        "--reuid",
        &uid,
        "--regid",
        &uid,
        "--clear-groups",
        "/bin/bash",
        "-c",
        script,
    ]
    .map(str::to_owned)
    .to_vec()
}

/// The dynamic loader shows what the kernel told a program about itself, unless the program has
/// gained something by being executed: then it says nothing.
/// Attack: KRN-18
#[test]
fn krn_18_set_user_id_programs_gain_nothing() {
    let bench = Bench::new();
    let script = "find /usr/bin /usr/sbin /usr/lib /usr/libexec -perm /6000 -type f 2>/dev/null | \
                  while read file; do test -x $file || continue; \
                  echo \"$file $(timeout 20 env LD_SHOW_AUXV=1 $file --version </dev/null 2>&1 | \
                  awk '/AT_SECURE|AT_EUID|AT_EGID/ { printf \"%s \", $2 }')\"; done; \
                  grep NoNewPrivs /proc/self/status";
    let inside = bench.run(&[], script).ok().stdout;
    let words = outside(&bench, script);
    let control = Program::new(&words[0]).args(&words[1..]).run().ok().stdout;
    for program in ["/usr/bin/su", "/usr/bin/newuidmap", "/usr/bin/passwd"] {
        let line = format!("{program} 1000 1000 0 \n");
        assert!(inside.contains(&line), "{program}: {inside}");
        let gains = format!("{program} \n");
        assert!(control.contains(&gains), "control: {program}: {control}");
    }
    for line in inside.lines().filter(|line| line.starts_with('/')) {
        assert!(line.ends_with(" 1000 1000 0 "), "{line} gains something");
    }
    assert!(inside.contains("NoNewPrivs:\t1"), "{inside}");
    assert!(control.contains("NoNewPrivs:\t0"), "{control}");
}

/// Attack: KRN-21
#[test]
fn krn_21_sockets_of_container_engines() {
    let bench = Bench::new();
    let script = format!("{CONNECT} {}", ENGINES.join(" "));
    let control = among_sockets(&bench, outside(&bench, &script)).ok();
    assert_eq!(control.stdout.lines().count(), ENGINES.len(), "control");
    let inside = among_sockets(&bench, bench.line(&[], &format!("{script}; echo over")));
    assert_eq!(inside.ok().stdout, "over\n");
}

/// Attack: KRN-23
#[test]
fn krn_23_other_managers_start_nothing() {
    let bench = Bench::new();
    let script = format!("{CONNECT} {}", MANAGERS.join(" "));
    let control = among_sockets(&bench, outside(&bench, &script)).ok();
    assert_eq!(control.stdout.lines().count(), MANAGERS.len(), "control");
    // Whichever of these programs is there, none of them finds somebody to ask.
    let ask = "export XDG_RUNTIME_DIR=/run/user/1000; \
               for line in 'systemd-run --wait /usr/bin/touch WORK/ran' \
               'systemd-run --user --wait /usr/bin/touch WORK/ran' \
               'busctl --timeout=5 list' 'dbus-send --system --print-reply --dest=org.freedesktop.DBus / \
               org.freedesktop.DBus.ListNames' 'crontab -' 'at -f /dev/stdin now' batch; do \
               echo 'touch WORK/ran' | timeout 30 $line >/dev/null 2>&1 && echo \"$line was heard\"; done; \
               for place in /etc/cron.d /etc/crontab /var/spool/cron /var/spool/cron/crontabs /var/spool/at \
               /etc/systemd/system /run/systemd/system; do \
               for name in $place $place/job; do (: >> $name) 2>/dev/null && echo wrote $name; done; done; \
               test -e WORK/ran && echo something ran it; (: >> WORK/control) && echo wrote WORK/control"
        .replace("WORK", WORK);
    let inside = among_sockets(&bench, bench.line(&[], &format!("{script}; {ask}")));
    assert_eq!(inside.ok().stdout, format!("wrote {WORK}/control\n"));
}

/// Attack: KRN-31
#[test]
fn krn_31_sudo_su_pkexec_and_dangerous_groups() {
    let bench = Bench::new();
    let script = "for line in 'su -c id root' 'su root -c id' 'sudo -n id' 'sudo id' 'pkexec id' 'doas id' \
                  'setpriv --reuid 0 id' 'runuser -u root id' 'newgrp root' 'sg root id'; do \
                  echo password | timeout 20 $line 2>/dev/null </dev/null | grep -E '(uid|gid|egid)=0'; done; \
                  id -G; sed -n 's/^Groups:[[:space:]]*//p' /proc/self/status";
    let inside = bench.run(&[], script).ok().stdout;
    // One group, and what the run was mapped from is in none of the host's.
    assert_eq!(inside.trim_end(), "1000", "{inside}");
    let control = Program::new("/bin/bash").args(["-c", script]).run().ok();
    let became = control.stdout.matches("uid=0").count();
    assert!(became >= 4, "control: {}", control.shown());
    let mapped = bench.ids + 1000;
    let groups = std::fs::read_to_string("/etc/group").unwrap();
    for line in groups.lines() {
        let fields: Vec<&str> = line.split(':').collect();
        assert_ne!(fields[2], mapped.to_string(), "{line}");
        let members: Vec<&str> = fields[3].split(',').collect();
        assert!(!members.contains(&bench.account.as_str()), "{line}");
    }
}
