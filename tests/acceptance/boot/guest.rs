//! A machine that exists only for agents: everybody is shut in, root too, and what else it needs is named.
//!
//! A sender to each place runs as whoever may go there and as whoever may not; what leaves is counted outside.

use std::io::{ErrorKind, Read as _};
use std::net::TcpStream;
use std::time::Duration;

use tests::machine::{Machine, PATIENCE};
use tests::wait;

use super::{AGENT, AGENT_UID, EARLY_AGENT, EARLY_ROOT, boot, proved, refused};

/// The gate's user sends there.
const GATE: u16 = 4500;
/// An exception lets root go there by TCP, and nobody else.
const EXCEPTED: u16 = 4600;
/// The resolver's user may ask there, and not at the next port.
const RESOLVER: u16 = 4700;
/// An agent asks the gate to go there.
const THROUGH_THE_GATE: u16 = 4800;
const DHCP_SERVER: u16 = 67;
const RENEW: &str = "networkctl renew $(basename $(dirname /sys/class/net/*/device))";

/// Inbound administration: root's listener, root's on a port that is not named, an agent's on one that is.
const ADMINISTRATION: u16 = 2222;
const NOT_NAMED: u16 = 2323;
const AN_AGENT_S: u16 = 2424;

/// Packets of that user that the rules have refused.
fn refused_of(machine: &mut Machine, user: &str) -> u64 {
    let uid: u64 = machine.run(&format!("id -u {user}")).ok().parse().unwrap();
    refused(machine, uid)
}

fn until_refused(machine: &mut Machine, user: &str) {
    let before = refused_of(machine, user);
    wait::until_within(PATIENCE, &format!("a refusal of {user}"), || {
        (refused_of(machine, user) > before).then_some(())
    });
}

fn send(machine: &mut Machine, user: &str, targets: &str) {
    machine
        .run(&format!(
            "systemd-run --quiet --unit send-{user} --uid {user} --property NoNewPrivileges=yes \
             /usr/local/bin/portcullis-probe send --every-ms 25 {targets}"
        ))
        .ok();
}

#[test]
fn in_scope_guest_the_gate_is_the_only_way_out_and_what_else_may_pass_is_named() {
    let mut machine = boot(&["boundary=guest"]);
    super::assert_first(&mut machine);
    machine.until("everything serves", "portcullis status");
    proved::assert_green(&mut machine);
    assert_nobody_leaves_but_whoever_is_named(&mut machine);
    assert_agents_leave_through_the_gate(&mut machine);
    assert_the_lease_is_renewed(&mut machine);
    assert_administration_comes_in(&mut machine);
    for port in [EARLY_AGENT, EARLY_ROOT, AGENT, RESOLVER + 1, EXCEPTED + 1] {
        assert_eq!(machine.left_for(port), 0, "port {port}");
    }
    assert_without_their_sections_neither_passes(&mut machine);
}

fn assert_nobody_leaves_but_whoever_is_named(machine: &mut Machine) {
    for (user, port) in [
        ("root", EXCEPTED),
        ("resolver", RESOLVER),
        ("portcullis-proxy", GATE),
    ] {
        send(
            machine,
            user,
            &format!("10.0.2.2:{port} 10.0.2.2:{}", port + 1),
        );
    }
    for port in [EXCEPTED, RESOLVER, GATE, GATE + 1] {
        machine.wait_for_one_more(port);
    }
    // By TCP and not by UDP.
    let frames = machine.frames();
    assert!(
        frames
            .iter()
            .all(|frame| frame.port != EXCEPTED || frame.tcp)
    );
    for user in ["agent", "root", "resolver"] {
        until_refused(machine, user);
    }
    // A restart opens nothing.
    machine.run("systemctl restart portcullis-boundary").ok();
    for user in ["agent", "root", "resolver"] {
        until_refused(machine, user);
    }
    machine.wait_for_one_more(GATE);
    assert_eq!(refused_of(machine, "portcullis-proxy"), 0);
    machine
        .run("systemctl stop send-portcullis-proxy send-resolver send-root")
        .ok();
}

fn assert_agents_leave_through_the_gate(machine: &mut Machine) {
    let policy = format!(
        "version = 1\n[[service]]\nkind = \"http\"\nhost = \"outside.test\"\nscheme = \"http\"\nport = {THROUGH_THE_GATE}\n\
         address = \"10.0.2.2:{THROUGH_THE_GATE}\"\nallow = [\"GET /**\"]\nwhy = \"the way out\"\n"
    );
    let exec = |machine: &mut Machine, command: &str| {
        machine.run(&format!(
            "mkdir -p /srv/project && cd /srv/project && cat >/root/outside.toml <<'POLICY'\n{policy}POLICY\n\
             portcullis exec --quiet --policy /root/outside.toml -- {command}"
        ))
    };
    let direct =
        format!("curl --silent --noproxy '*' --max-time 5 http://10.0.2.2:{THROUGH_THE_GATE}/");
    let answer = exec(machine, &direct);
    assert_eq!(answer.code, 7, "no connection: {}", answer.output);
    assert_eq!(machine.left_for(THROUGH_THE_GATE), 0);
    // Nobody answers out there, which the gate says; but it has gone there.
    wait::until_within(PATIENCE, "the gate's way out", || {
        let url = format!("http://outside.test:{THROUGH_THE_GATE}/");
        let answer = exec(
            machine,
            &format!("curl --silent --show-error --max-time 60 {url}"),
        );
        let gone = machine.left_for(THROUGH_THE_GATE) > 0;
        gone.then(|| assert!(answer.output.contains("upstream"), "{}", answer.output))
    });
}

/// Asks for the lease anew, which goes by an ordinary socket of the network manager's user. qemu answers to everybody, which
/// that socket, bound to the machine's address, does not hear; another one does.
fn assert_the_lease_is_renewed(machine: &mut Machine) {
    machine
        .run(
            "systemd-run --quiet --unit hear-answers perl -MIO::Socket::INET -e \
             'IO::Socket::INET->new(LocalPort => 68, Proto => \"udp\", ReuseAddr => 1)->recv(my $answer, 600); \
             open my $file, \">\", \"/run/heard\"'",
        )
        .ok();
    machine.until(
        "a listener",
        "ss --listening --udp --numeric --no-header 'sport = :68' | grep -q 0.0.0.0:68",
    );
    let asked = machine.left_for(DHCP_SERVER);
    machine.run(RENEW).ok();
    machine.until("the server's answer", "test -e /run/heard");
    assert!(machine.left_for(DHCP_SERVER) > asked);
    assert_eq!(refused_of(machine, "systemd-network"), 0);
}

fn listen(machine: &mut Machine, user: &str, port: u16) {
    machine
        .run(&format!(
            "systemd-run --quiet --unit listen-{port} --uid {user} --property NoNewPrivileges=yes \
             /usr/local/sbin/listen {port}"
        ))
        .ok();
    machine.until(
        "a listener",
        &format!("ss --listening --numeric --no-header 'sport = :{port}' | grep -q LISTEN"),
    );
}

/// What a caller from outside has heard so far.
fn heard(stream: &mut TcpStream) -> String {
    let mut said = [0; 64];
    match stream.read(&mut said) {
        Ok(length) => String::from_utf8_lossy(&said[..length]).into_owned(),
        Err(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => {
            String::new()
        }
        // Cut by qemu, whose own dial was given up.
        Err(_) => String::new(),
    }
}

fn assert_comes_in(machine: &Machine) {
    wait::until_within(PATIENCE, "the administrator's way in", || {
        let mut stream = machine.dial(ADMINISTRATION);
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        (heard(&mut stream) == "hello\n").then_some(())
    });
}

/// Packets that came unasked and were dropped.
fn inbound(machine: &mut Machine) -> u64 {
    let answer = machine.run("portcullis boundary counters --json").ok();
    let counters: serde_json::Value = serde_json::from_str(&answer).unwrap();
    let totals = counters["totals"].as_array().unwrap();
    let inbound = totals.iter().find(|total| total["name"] == "inbound");
    inbound.unwrap()["packets"].as_u64().unwrap()
}

/// The packet is dropped, and the caller hears nothing.
fn assert_shut(machine: &mut Machine, port: u16) {
    let before = inbound(machine);
    let mut stream = machine.dial(port);
    stream.set_nonblocking(true).unwrap();
    wait::until_within(PATIENCE, "a packet that is dropped", || {
        (inbound(machine) > before).then_some(())
    });
    assert_eq!(heard(&mut stream), "");
}

fn assert_administration_comes_in(machine: &mut Machine) {
    listen(machine, "root", ADMINISTRATION);
    listen(machine, "root", NOT_NAMED);
    listen(machine, "agent", AN_AGENT_S);
    assert_comes_in(machine);
    assert_shut(machine, NOT_NAMED);
    // An agent at a port that is named is not let answer.
    let before = refused(machine, AGENT_UID);
    let mut stream = machine.dial(AN_AGENT_S);
    stream.set_nonblocking(true).unwrap();
    wait::until_within(PATIENCE, "the agent's answer is refused", || {
        (refused(machine, AGENT_UID) > before).then_some(())
    });
    assert_eq!(heard(&mut stream), "");
    assert_comes_in(machine);
}

fn assert_without_their_sections_neither_passes(machine: &mut Machine) {
    machine
        .run("sed -i '/^# Named:/,$d' /etc/portcullis/boundary.toml && systemctl restart portcullis-boundary")
        .ok();
    assert_shut(machine, ADMINISTRATION);
    let before = refused_of(machine, "systemd-network");
    machine.run(RENEW);
    wait::until_within(PATIENCE, "the network manager is refused", || {
        (refused_of(machine, "systemd-network") > before).then_some(())
    });
}
