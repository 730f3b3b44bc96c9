//! Boots, of a real kernel and systemd: the boundary is there before a network and before an agent, whatever needs it stays
//! down without it, and restarting it disturbs nobody and opens nothing.
//!
//! Packets are counted outside the machine. Its senders have a port each, and root's, which the boundary of scope
//! `agents` lets pass, shows in the same boot that what is sent does arrive.

mod guest;
mod limits;
mod proved;

use tests::machine::{Disk, Machine, PATIENCE};

const PREPARE: &str = include_str!("boot/prepare.sh");

/// Sends as the agent from the first moment on; nothing but the boundary stops it.
const EARLY_AGENT: u16 = 4100;
/// The same as root.
const EARLY_ROOT: u16 = 4200;
/// An agent's unit, which requires the proof.
const AGENT: u16 = 4300;
/// An agent's sender started by a test.
const LATE_AGENT: u16 = 4400;

const AGENT_UID: u64 = 1500;

/// What must not run without a boundary.
const HELD_BACK: [&str; 3] = ["portcullis-proxy", "portcullis-orchestrator", "agent"];

fn boot(words: &[&str]) -> Machine {
    Machine::boot(Disk::provisioned(PREPARE), words)
}

/// When a unit reached a moment of its life, in microseconds since the boot; 0 is never.
fn moment(machine: &mut Machine, unit: &str, property: &str) -> u64 {
    let value = machine.property(unit, property);
    value
        .parse()
        .unwrap_or_else(|_| panic!("{unit} {property}: {value:?}"))
}

/// How many packets of that uid the rules have refused since they were loaded.
fn refused(machine: &mut Machine, uid: u64) -> u64 {
    let answer = machine.run("portcullis boundary counters --json").ok();
    let counters: serde_json::Value = serde_json::from_str(&answer).unwrap();
    let users = counters["users"].as_array().unwrap();
    let user = users.iter().find(|user| user["uid"] == uid);
    user.map_or(0, |user| user["packets"].as_u64().unwrap())
}

fn start_late_agent(machine: &mut Machine) {
    let send = format!("send --every-ms 25 10.0.2.2:{LATE_AGENT} [fec0::2]:{LATE_AGENT}");
    machine
        .run(&format!(
            "systemd-run --quiet --unit late-agent --uid agent --property NoNewPrivileges=yes /usr/local/bin/portcullis-probe {send}"
        ))
        .ok();
}

/// The agent's sender has tried again, and root's has got through again, since this was called.
fn both_go_on(machine: &mut Machine) {
    let before = refused(machine, AGENT_UID);
    machine.wait_for_one_more(EARLY_ROOT);
    tests::wait::until_within(PATIENCE, "another refusal", || {
        (refused(machine, AGENT_UID) > before).then_some(())
    });
}

fn main_pids(machine: &mut Machine) -> Vec<String> {
    HELD_BACK
        .iter()
        .map(|unit| {
            machine.until(
                &format!("{unit} runs"),
                &format!("[ $(systemctl show --value -p MainPID {unit}) != 0 ]"),
            );
            machine.property(unit, "MainPID")
        })
        .collect()
}

/// The rules were there before a network and before an agent.
fn assert_first(machine: &mut Machine) {
    let rules = machine.run("cat /run/moment/rules").ok();
    assert!(
        rules.contains("table inet portcullis {"),
        "{rules}{}",
        machine.console()
    );
    let links = machine.run("cat /run/moment/links").ok();
    assert!(
        links.lines().all(|link| link.contains("LOOPBACK")),
        "no interface was up: {links}"
    );

    let loaded = moment(
        machine,
        "portcullis-boundary",
        "ActiveEnterTimestampMonotonic",
    );
    assert!(loaded > 0);
    for (unit, property) in [
        ("network-pre.target", "ActiveEnterTimestampMonotonic"),
        ("systemd-networkd", "ExecMainStartTimestampMonotonic"),
        ("sysinit.target", "ActiveEnterTimestampMonotonic"),
        ("portcullis-proxy", "ExecMainStartTimestampMonotonic"),
        ("portcullis-orchestrator", "ExecMainStartTimestampMonotonic"),
        ("agent", "ExecMainStartTimestampMonotonic"),
    ] {
        machine.until(
            &format!("{unit} is reached"),
            &format!("[ $(systemctl show --value -p {property} {unit}) != 0 ]"),
        );
        let reached = moment(machine, unit, property);
        assert!(loaded < reached, "{unit}: {loaded} {reached}");
    }
    let sending = moment(machine, "early-agent", "ExecMainStartTimestampMonotonic");
    assert!(sending > 0 && sending < loaded, "{sending} {loaded}");

    machine.until("everything serves", "portcullis status");
    main_pids(machine);
    let failed = machine.run("systemctl --failed --plain --no-legend").ok();
    assert!(!failed.contains("portcullis"), "{failed}");
}

/// What is below `/etc/sysctl.d` is set before the rules are loaded, which follow it from the first moment on.
fn assert_after_the_settings(machine: &mut Machine, rules: &str) {
    let line = rules
        .lines()
        .find(|line| line.contains("no handshake of nobody's"));
    assert!(line.unwrap().contains("tcp sport >= 1000 "), "{rules}");
    let set = moment(machine, "systemd-sysctl", "ExecMainStartTimestampMonotonic");
    let loaded = moment(
        machine,
        "portcullis-boundary",
        "ExecMainStartTimestampMonotonic",
    );
    assert!(set > 0 && set < loaded, "{set} {loaded}");
}

/// Nothing of a boot undoes what `up` made.
fn assert_up_changes_nothing(machine: &mut Machine) {
    machine.run("mount -o ro /dev/vdb /mnt").ok();
    let again = machine
        .run("portcullis up --binaries /mnt --no-gate-test")
        .ok();
    assert!(again.contains("nothing was changed"), "{again}");
    let range = machine.run("cat /proc/sys/net/ipv4/ping_group_range").ok();
    assert_eq!(range.split_whitespace().collect::<Vec<_>>(), ["1", "0"]);
}

#[test]
fn the_boundary_is_up_before_any_network_and_agent_and_the_limits_and_the_proof_hold() {
    let mut machine = boot(&["settings=late"]);
    assert_first(&mut machine);
    let rules = machine.run("cat /run/moment/rules").ok();
    assert!(rules.contains("1500"), "the agent is named: {rules}");
    assert_after_the_settings(&mut machine, &rules);
    both_go_on(&mut machine);
    assert_up_changes_nothing(&mut machine);
    assert_hardened(&mut machine);
    proved::assert_green_without_the_gate(&mut machine);
    limits::assert_they_hold(&mut machine);
    both_go_on(&mut machine);
    for port in [EARLY_AGENT, AGENT] {
        assert_eq!(machine.left_for(port), 0, "port {port}");
    }
}

/// What `systemd-analyze security` makes of the gate's unit: below 3.0 of 10.
fn assert_hardened(machine: &mut Machine) {
    let exposure = |machine: &mut Machine, unit: &str| -> f32 {
        let verdict = machine
            .run(&format!(
                "systemd-analyze security --no-pager {unit} | tail -n 1"
            ))
            .ok();
        let words = verdict.split_once(": ").map_or("", |(_, score)| score);
        let number = words.split_whitespace().next().unwrap_or_default();
        number
            .parse()
            .unwrap_or_else(|_| panic!("{unit}: {verdict:?}"))
    };
    let gate = exposure(machine, "portcullis-proxy.service");
    assert!(gate < 3.0, "{gate}");
    // There is no manual in a minimal system.
    let verified =
        machine.run("systemd-analyze verify --man=no /etc/systemd/system/portcullis-*.service");
    assert_eq!(verified.ok(), "");
    // The scale is one: an unhardened service is far up.
    let unhardened = exposure(machine, "early-root.service");
    assert!(unhardened > 9.0, "{unhardened}");
}

/// Attack: KRN-33
#[test]
fn without_the_boundary_the_same_packets_leave_and_what_requires_it_stays_down() {
    let mut machine = boot(&["module_blacklist=nf_tables"]);
    for port in [EARLY_AGENT, EARLY_ROOT] {
        for (family, tcp) in [(4, false), (4, true), (6, false), (6, true)] {
            tests::wait::until_within(PATIENCE, &format!("{port} {family} {tcp}"), || {
                let frames = machine.frames();
                frames
                    .iter()
                    .any(|frame| (frame.port, frame.family, frame.tcp) == (port, family, tcp))
                    .then_some(())
            });
        }
    }
    assert_held_back(&mut machine, "no nf_tables");
    assert_console_says(&machine, "nf_tables");
    proved::assert_red(&mut machine);
    // The sender of the restart test would be seen too.
    start_late_agent(&mut machine);
    machine.wait_for_one_more(LATE_AGENT);
}

fn assert_held_back(machine: &mut Machine, case: &str) {
    for unit in HELD_BACK {
        let started = moment(machine, unit, "ExecMainStartTimestampMonotonic");
        assert_eq!(started, 0, "{case}: {unit} was started");
        assert_ne!(machine.property(unit, "ActiveState"), "active", "{case}");
    }
    machine.wait_for_one_more(EARLY_ROOT);
    assert_eq!(machine.left_for(AGENT), 0, "{case}");
}

fn assert_console_says(machine: &Machine, why: &str) {
    let console = machine.console();
    for words in [why, "the gate, the orchestrator and agents stay down"] {
        assert!(console.contains(words), "{words}: {console}");
    }
}

/// Attack: KRN-33
#[test]
fn a_broken_boundary_keeps_everything_down_and_once_repaired_it_is_restarted_without_a_gap() {
    let config = "/etc/portcullis/boundary.toml";
    let binary = "/usr/local/lib/portcullis/portcullis-boundary";
    let mut machine = boot(&["spoil=broken-config"]);
    assert_held_back(&mut machine, "broken configuration");
    assert_console_says(&machine, config);
    // Starting them by hand is no way round, nor without any file, nor without a program.
    let start = format!("systemctl start {}", HELD_BACK.join(" "));
    assert_ne!(machine.run(&start).code, 0);
    machine.run(&format!("mv {config} {config}.away")).ok();
    assert_ne!(machine.run(&start).code, 0);
    assert_held_back(&mut machine, "no configuration");
    let repair = format!("mv {config}.away {config} && sed -i '$d' {config}");
    machine.run(&repair).ok();
    machine.run(&format!("mv {binary} {binary}.away")).ok();
    assert_ne!(machine.run(&start).code, 0);
    assert_held_back(&mut machine, "no program");
    assert_console_says(&machine, &format!("{binary} is not there"));
    machine.run(&format!("mv {binary}.away {binary}")).ok();
    // Once it is repaired, that one command starts all of it.
    machine.until("that starts all of it", &start);
    machine.until("everything serves", "portcullis status");
    main_pids(&mut machine);
    both_go_on(&mut machine);
    // What had no boundary to stop it has one from now on.
    let before = machine.left_for(EARLY_AGENT);
    assert!(before > 0);
    assert_restarts_disturb_nobody(&mut machine);
    assert_eq!(machine.left_for(EARLY_AGENT), before);
    for port in [AGENT, LATE_AGENT] {
        assert_eq!(machine.left_for(port), 0, "port {port}");
    }
    assert_a_firewall_manager_is_noticed(&mut machine);
}

/// Debian's own manager of rules, which begins by throwing away everybody's: what it did is put right, told with its name, and
/// nothing has to be restarted for it.
fn assert_a_firewall_manager_is_noticed(machine: &mut Machine) {
    let file = machine.run("cat /etc/nftables.conf").ok();
    assert!(file.contains("flush ruleset"), "{file}");
    // When rules were put back last, and in which words it is told.
    let last = |machine: &mut Machine| {
        let status = machine.run("cat /run/portcullis/boundary/status.json").ok();
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        let mut events = status["events"].as_array().unwrap().iter().rev();
        let found = events.find(|event| event["kind"] == "reasserted")?;
        let text = found["text"].as_str().unwrap().to_owned();
        Some((found["boottime_ms"].as_u64().unwrap(), text))
    };
    let before = main_pids(machine);
    let mut known = last(machine).map_or(0, |(at, _)| at);
    for command in ["start", "restart", "reload"] {
        machine.run(&format!("systemctl {command} nftables")).ok();
        let (at, told) = tests::wait::until_within(PATIENCE, "the rules are put back", || {
            last(machine).filter(|(at, _)| *at > known)
        });
        known = at;
        assert!(told.contains("nft (pid "), "{command}: {told}");
        machine.run("portcullis boundary verify").ok();
        // Its own rules are there beside ours.
        let rules = machine.run("nft list ruleset").ok();
        for table in ["table inet filter", "table inet portcullis"] {
            assert!(rules.contains(table), "{command}: {table}: {rules}");
        }
        both_go_on(machine);
        machine.until("everything serves", "portcullis status");
        assert_eq!(main_pids(machine), before, "{command}");
    }
}

fn assert_restarts_disturb_nobody(machine: &mut Machine) {
    start_late_agent(machine);
    both_go_on(machine);
    let before = main_pids(machine);
    let watcher = machine.property("portcullis-boundary-watch", "MainPID");
    for command in [
        "systemctl restart portcullis-boundary",
        "systemctl reload portcullis-boundary",
        "systemctl restart portcullis-boundary-watch",
        "systemctl restart portcullis-boundary portcullis-boundary-watch",
        // Another ruleset: one more account, under the sender's feet.
        "sed -i 's/^agents = \\[/agents = [\"1600-1609\", /' /etc/portcullis/boundary.toml && systemctl restart portcullis-boundary",
        "! systemctl restart portcullis-boundary-proof && ! systemctl stop portcullis-boundary-proof",
    ] {
        machine.run(command).ok();
        assert_eq!(main_pids(machine), before, "{command}");
        machine.until("everything serves", "portcullis status");
        both_go_on(machine);
    }
    assert_ne!(
        watcher,
        machine.property("portcullis-boundary-watch", "MainPID")
    );
    let rules = machine.run("nft list table inet portcullis").ok();
    assert!(
        rules.contains("1600-1609"),
        "the new rules are in force: {rules}"
    );

    // Killed, it is started again, and the gate needs no restart for that.
    let watcher = machine.property("portcullis-boundary-watch", "MainPID");
    machine.run(&format!("kill -KILL {watcher}")).ok();
    machine.until(
        "another watcher",
        &format!("pid=$(systemctl show --value -p MainPID portcullis-boundary-watch); [ $pid != 0 ] && [ $pid != {watcher} ]"),
    );
    machine.until("everything serves", "portcullis status");
    assert_eq!(main_pids(machine), before);

    // Stopped for good, the rules stay, the gate stays and says that it serves nothing.
    machine
        .run("systemctl stop portcullis-boundary portcullis-boundary-watch")
        .ok();
    machine.until("status notices", "! portcullis status");
    machine.until(
        "the gate notices",
        "portcullis gate status --json | grep -q 'boundary status is stale'",
    );
    assert_eq!(main_pids(machine), before);
    let rules = machine.run("nft list table inet portcullis").ok();
    assert!(rules.contains("1500"), "{rules}");
    machine.wait_for_one_more(EARLY_ROOT);
    machine
        .run("systemctl start portcullis-boundary-watch")
        .ok();
    machine.until("everything serves", "portcullis status");
    assert_eq!(main_pids(machine), before);
    both_go_on(machine);
}
