//! Listeners whose SYN-ACK has no socket, hence no uid: SYN cookies.
//!
//! The kernel sends them when a listener's queue is full, and any program can see to that: `listen`
//! with backlog 0, or a small one, and a dial or two that are not answered. The connection that begins so has no uid until it is
//! accepted, and none again once it is closed. A Fast Open that is answered begins the same way.

use tests::command::Program;
use tests::wait;

use super::lab::{
    AGENT, Attempt, GATE_PORT, HOST4, HOST6, Lab, OTHER_AGENT, PEER4, PEER6, Running,
};

const SCOPES: [&str; 2] = ["agents", "guest"];
const LED: &str = "[redirect]\nport = 3129\n[resolver]\nport = 3153\n";
const ADMINISTRATION: &str = "[[guest.administration]]\nsources = [\"192.0.2.2\", \"2001:db8::2\"]\n\
                              ports = [2222]\nreason = \"looking after it\"\n";
/// A backlog, and how many unanswered dials fill it.
const FULL: [(&str, &str); 2] = [("0", "1"), ("1", "2")];
const TCP: &str = "0";
const MPTCP: &str = "262";

/// Each port of the gate: where a squatter listens, and what a victim dials.
const SQUATS: [[&str; 4]; 6] = [
    ["127.0.0.1", GATE_PORT, "127.0.0.1", GATE_PORT],
    ["::1", GATE_PORT, "::1", GATE_PORT],
    ["127.0.0.1", "3129", PEER4, "443"],
    ["::1", "3129", PEER6, "443"],
    ["127.0.0.1", "3153", PEER4, "53"],
    ["::1", "3153", PEER6, "53"],
];

/// What counts a SYN-ACK without a uid: in a guest it is one of the many packets without one.
fn counter(scope: &str) -> &'static str {
    match scope {
        "agents" => "handshakes",
        _ => "refused",
    }
}

/// Loads the same rules as they would be if a SYN-ACK without a uid were like any other packet.
fn careless(lab: &Lab, scope: &str) {
    let text = lab.boundary(&["render"]).ok().stdout;
    let looks = |line: &&str| !line.contains("no handshake of nobody's listener");
    let less = match scope {
        "agents" => text
            .lines()
            .filter(looks)
            .map(|line| format!("{line}\n"))
            .collect(),
        _ => text.replace("tcp flags & (syn | ack) != syn | ack ", ""),
    };
    assert_ne!(less, text, "{scope}");
    lab.host.nft(&less);
}

/// The kernel sends cookies whatever the queue, for a listener whose unanswered dials do not stay in
/// it: the resets of the refused SYN-ACKs end them. On older kernels backlog 0 does the same.
fn always(lab: &Lab) {
    lab.sysctl("net/ipv4/tcp_syncookies", "2");
}

fn from_peer(lab: &Lab, words: &[&str]) -> Attempt {
    let program = Program::new("python3").arg(lab.path("attempt.py"));
    Attempt::of(&program.args(words).in_netns(&lab.peer).run())
}

/// Attack: KRN-24
#[test]
fn krn_24_squatting_with_handshakes_that_have_no_uid() {
    std::thread::scope(|threads| {
        for scope in SCOPES {
            for (backlog, crowd) in FULL {
                threads.spawn(move || squat(scope, backlog, crowd));
            }
        }
    });
}

fn squat(scope: &str, backlog: &str, crowd: &str) {
    let lab = Lab::new(scope);
    lab.write_config(scope, LED);
    for [address, port, target, dialled] in SQUATS {
        let what = format!("{scope}: backlog {backlog}: {address} {port}");
        let mut listen = vec!["nobody", address, port, backlog, TCP];
        // Its own dials reach it like everybody's, and are never answered.
        listen.extend([target, dialled, crowd]);
        let dial = ["tcp", target, dialled];

        careless(&lab, scope);
        let squatter = lab.start(OTHER_AGENT, &listen, "listening");
        let open = lab.attempt(AGENT, &dial);
        assert_eq!(open.outcome, "reached", "control: {what}: {open:?}");
        assert!(
            squatter.until("heard").contains("attempt"),
            "control: {what}"
        );
        drop(squatter);

        lab.shut();
        lab.boundary(&["verify"]).ok();
        let refused = lab.total(counter(scope));
        let squatter = lab.start(OTHER_AGENT, &listen, "listening");
        let shut = lab.attempt(AGENT, &dial);
        assert_eq!(shut.outcome, "hung", "{what}: {shut:?}");
        assert!(
            lab.total(counter(scope)) > refused,
            "{what}: {}",
            lab.counters()
        );
        drop(squatter);
    }
}

/// The answer to a Fast Open is sent for a connection that nobody has accepted yet.
/// Attack: KRN-24
#[test]
fn krn_24_squatting_by_fast_open() {
    for scope in SCOPES {
        let lab = Lab::new(scope);
        // Both sides, without asking for the other's cookie first.
        lab.sysctl("net/ipv4/tcp_fastopen", "1543");
        for address in ["127.0.0.1", "::1"] {
            let listen = ["nobody", address, GATE_PORT, "16", TCP];
            let dial = ["fastopen", address, GATE_PORT];
            careless(&lab, scope);
            let squatter = lab.start(OTHER_AGENT, &listen, "listening");
            let open = lab.attempt(AGENT, &dial);
            assert_eq!(open.outcome, "reached", "control: {scope}: {open:?}");
            drop(squatter);

            lab.shut();
            let _squatter = lab.start(OTHER_AGENT, &listen, "listening");
            let shut = lab.attempt(AGENT, &dial);
            assert_ne!(shut.outcome, "reached", "{scope}: {address}: {shut:?}");
        }
    }
}

/// In a guest the one port that may be reached from outside is an administrator's.
#[test]
fn an_agents_listener_without_a_uid_is_not_a_channel() {
    std::thread::scope(|threads| {
        for (scope, more, port) in [("agents", "", "8080"), ("guest", ADMINISTRATION, "2222")] {
            for backlog in ["0", "16"] {
                threads.spawn(move || listener(scope, more, port, backlog));
            }
        }
    });
}

fn listener(scope: &str, more: &str, port: &str, backlog: &str) {
    let lab = Lab::new(scope);
    always(&lab);
    lab.write_config(scope, more);
    for (any, address) in [("0.0.0.0", HOST4), ("::", HOST6)] {
        let what = format!("{scope}: backlog {backlog}: {any} {port}");
        let listen = ["nobody", any, port, backlog, TCP];
        let knock = ["knock", address, port, "0"];

        careless(&lab, scope);
        let agent = lab.start(AGENT, &listen, "listening");
        let (before, open) = (lab.received(), from_peer(&lab, &knock));
        assert_eq!(open.outcome, "reached", "control: {what}: {open:?}");
        assert!(agent.until("heard").contains("attempt"), "control: {what}");
        assert!(lab.received() > before, "control: {what}");
        drop(agent);
        lab.settle();

        lab.shut();
        lab.boundary(&["verify"]).ok();
        let agent = lab.start(AGENT, &listen, "listening");
        let (before, refused) = (lab.received(), lab.total(counter(scope)));
        let shut = from_peer(&lab, &knock);
        assert_ne!(shut.outcome, "reached", "{what}: {shut:?}");
        assert_eq!(lab.received(), before, "{what}: {shut:?}");
        assert!(
            lab.total(counter(scope)) > refused,
            "{what}: {}",
            lab.counters()
        );
        drop(agent);
        lab.settle();
    }
}

/// What the rule costs a host that does other things, and what it does not.
#[test]
fn services_of_the_host_keep_their_handshakes_and_low_ports_their_cookies() {
    let lab = Lab::new("agents");
    lab.shut();
    for (any, address) in [("0.0.0.0", HOST4), ("::", HOST6)] {
        for (port, cookies, protocol, outcome) in [
            ("8443", "1", TCP, "reached"),
            ("8443", "1", MPTCP, "reached"),
            ("1023", "2", TCP, "reached"),
            ("1024", "2", TCP, "hung"),
        ] {
            lab.sysctl("net/ipv4/tcp_syncookies", cookies);
            let service = lab.start(0, &["nobody", any, port, "16", protocol], "listening");
            for client in [TCP, protocol] {
                let dial = from_peer(&lab, &["knock", address, port, "0", client]);
                assert_eq!(dial.outcome, outcome, "{any} {port} {cookies}: {dial:?}");
            }
            drop(service);
            lab.settle();
        }
    }
}

/// A host may let every program have low ports: the rule then holds for these too.
#[test]
fn the_ports_that_agents_may_bind_are_those_whose_cookies_are_dropped() {
    let lab = Lab::new("agents");
    always(&lab);
    lab.shut();
    let _watch = Running::start(lab.boundary_program(&["watch"]), "stands");
    lab.sysctl("net/ipv4/ip_unprivileged_port_start", "80");
    wait::until_true("the watcher follows", || {
        lab.boundary(&["verify"]).code() == 0
    });
    for (any, address) in [("0.0.0.0", HOST4), ("::", HOST6)] {
        let _agent = lab.start(AGENT, &["nobody", any, "80", "0", TCP], "listening");
        let shut = from_peer(&lab, &["knock", address, "80", "0"]);
        assert_ne!(shut.outcome, "reached", "{shut:?}");
        let _service = lab.start(0, &["nobody", any, "79", "0", TCP], "listening");
        let open = from_peer(&lab, &["knock", address, "79", "0"]);
        assert_eq!(open.outcome, "reached", "control: {open:?}");
    }
}
