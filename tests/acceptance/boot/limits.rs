//! Version 2 control groups, which the host of the other tests may not have: the limits are in the kernel's files, and
//! whoever takes more is stopped, while the same command with room is not.

use tests::machine::{Answer, Machine};

const EAT: &str = "perl -e '$x = \"a\" x (200 << 20); print length $x'";
/// What is said by whoever has eaten all of it.
const EATEN: &str = "209715200";
/// Prints how many of 60 processes could be had.
const FORK: &str = "perl -e 'my $n = 0; for (1..60) { my $p = fork(); last unless defined $p; \
                    if (!$p) { sleep 60; exit } $n++ } print $n'";
/// The code of an `exec` that has not started its command.
const NOT_STARTED: i32 = 125;

pub(super) fn assert_they_hold(machine: &mut Machine) {
    machine
        .run("test -e /sys/fs/cgroup/cgroup.controllers")
        .ok();
    assert_exec_is_limited(machine);
    assert_a_ticket_s_run_is_limited(machine);
}

/// Where what is said beside the command's own output goes: a launcher's remark is no part of an answer.
const ASIDE: &str = "/run/limits-aside";

/// The answer holds what the command printed; when nothing was started, why.
fn exec(machine: &mut Machine, limits: &str, command: &str) -> Answer {
    tests::wait::until_within(tests::machine::PATIENCE, "a container", || {
        machine.until("everything serves", "portcullis status");
        let answer = machine.run(&format!(
            "mkdir -p /srv/project && cd /srv/project && portcullis exec --quiet \
             --policy /etc/portcullis/policies/default.toml {limits} -- {command} 2>{ASIDE} || \
             {{ code=$?; [ $code != {NOT_STARTED} ] || cat {ASIDE}; (exit $code); }}"
        ));
        // An emulated watcher may be late, and then nothing is started.
        let stale = answer.code == NOT_STARTED && answer.output.contains("stale");
        (!stale).then_some(answer)
    })
}

fn assert_exec_is_limited(machine: &mut Machine) {
    let killed = exec(machine, "--memory 64", EAT);
    assert_eq!(killed.code, 137, "{}", killed.output);
    assert!(!killed.output.contains(EATEN), "{}", killed.output);
    assert_eq!(exec(machine, "--memory 512", EAT).ok(), EATEN);

    let few: u32 = exec(machine, "--pids 24", FORK).ok().parse().unwrap();
    assert!(few < 24, "{few}");
    assert_eq!(exec(machine, "--pids 200", FORK).ok(), "60");
}

/// A run of a ticket lies below the orchestrator's own unit. What ends in it for want of memory ends nothing else there.
fn assert_a_ticket_s_run_is_limited(machine: &mut Machine) {
    let agent = format!("echo memory: $({EAT}).; echo processes: $({FORK}).; exec sleep 1000");
    machine
        .run(&format!(
            "set -e; mkdir -p /srv/limited; echo {} | base64 -d >/srv/limited/agent.sh
             cp -a /etc/portcullis/orchestrator.toml /root/orchestrator.toml
             printf '\\n[limits]\\nmemory_mib = 64\\npids = 24\\n' >>/etc/portcullis/orchestrator.toml
             systemctl restart portcullis-orchestrator",
            base64(&agent)
        ))
        .ok();
    machine.until("everything serves", "portcullis status");
    let orchestrator = machine.property("portcullis-orchestrator", "MainPID");
    machine
        .run(
            "set -e; portcullis company create Limited --prefix LIM
             portcullis agent create eater --company Limited --bundle /srv/limited -- /bin/sh /opt/agent/agent.sh
             portcullis ticket create 'Eat' --company Limited --assign eater",
        )
        .ok();
    let log = "portcullis run log $(portcullis run list --ticket LIM-1 --json | grep -o '\"id\": *\"[^\"]*\"' | \
               head -n 1 | cut -d '\"' -f 4)";
    machine.until(
        "the agent's own account of it",
        &format!("{log} | grep -q '^processes:'"),
    );
    let said = machine.run(log).ok();
    let line = |word: &str| -> String {
        let found = said.lines().find_map(|line| line.strip_prefix(word));
        found
            .unwrap_or_else(|| panic!("{word}: {said}"))
            .trim()
            .to_owned()
    };
    assert_eq!(line("memory:"), ".", "{said}");
    let processes: u32 = line("processes:").trim_end_matches('.').parse().unwrap();
    assert!((1..24).contains(&processes), "{said}");

    // Where they are, and that this is below the unit.
    let groups = "cd /sys/fs/cgroup/system.slice/portcullis-orchestrator.service && \
                  for group in $(find . -type d -name 'lxc.payload*'); do \
                  cat $group/memory.max $group/memory.swap.max $group/pids.max; done | tr '\\n' ' '";
    assert_eq!(machine.run(groups).ok(), "67108864 0 24");
    let killed = "cat /sys/fs/cgroup/system.slice/portcullis-orchestrator.service/memory.events | grep '^oom_kill '";
    assert_ne!(machine.run(killed).ok(), "oom_kill 0");
    assert_eq!(
        machine.property("portcullis-orchestrator", "MainPID"),
        orchestrator
    );
    machine
        .run("mv /root/orchestrator.toml /etc/portcullis/orchestrator.toml && systemctl restart portcullis-orchestrator")
        .ok();
    machine.until("everything serves", "portcullis status");
}

fn base64(text: &str) -> String {
    use ::base64::Engine as _;
    ::base64::engine::general_purpose::STANDARD.encode(text)
}
