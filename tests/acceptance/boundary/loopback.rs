//! What agents reach on loopback: the gate's port, and nothing else.

use super::lab::{AGENT, GATE, GATE_PORT, Lab, OTHER_AGENT};

const SCOPES: [&str; 2] = ["agents", "guest"];
const LOOPBACK: [&str; 2] = ["127.0.0.1", "::1"];

#[test]
fn agents_reach_the_gate_and_no_other_service() {
    for scope in SCOPES {
        let lab = Lab::new(scope);
        for address in LOOPBACK {
            let _gate = lab.start(GATE, &["listen", address, GATE_PORT], "listening");
            let _other = lab.start(0, &["listen", address, "5432"], "listening");
            lab.open();
            let open = lab.attempt(AGENT, &["tcp", address, "5432"]);
            assert_eq!(open.outcome, "reached", "control: {scope}: {open:?}");
            lab.shut();
            // The reset travels over loopback as well: limiting loopback must not make it a hang.
            let refused = lab.refused(AGENT);
            let shut = lab.attempt(AGENT, &["tcp", address, "5432"]);
            assert_eq!(
                shut.errno.as_deref(),
                Some("ECONNREFUSED"),
                "{scope}: {shut:?}"
            );
            assert!(lab.refused(AGENT) > refused, "{scope}: {}", lab.counters());
            for user in [AGENT, OTHER_AGENT] {
                let gate = lab.attempt(user, &["tcp", address, GATE_PORT]);
                assert_eq!(gate.outcome, "reached", "{scope}: uid {user}: {gate:?}");
            }
        }
    }
}

#[test]
fn a_dead_gate_is_heard_at_once() {
    for scope in SCOPES {
        let lab = Lab::new(scope);
        lab.shut();
        for address in LOOPBACK {
            let attempt = lab.attempt(AGENT, &["tcp", address, GATE_PORT]);
            assert_eq!(
                attempt.errno.as_deref(),
                Some("ECONNREFUSED"),
                "{scope}: {attempt:?}"
            );
        }
    }
}

/// A resolver that may leave would carry what an agent asks it for.
/// Attack: KRN-05
#[test]
fn krn_05_dns_tunnelling_through_a_local_resolver() {
    for scope in SCOPES {
        let lab = Lab::new(scope);
        for address in ["127.0.0.53", "::1"] {
            let _resolver = lab.start(0, &["answer", address, "53"], "listening");
            let _by_tcp = lab.start(0, &["listen", address, "53"], "listening");
            for kind in ["dns", "tcp"] {
                let words = [kind, address, "53"];
                lab.open();
                let open = lab.attempt(AGENT, &words);
                assert_eq!(open.outcome, "reached", "control: {scope}: {open:?}");
                lab.shut();
                let refused = lab.refused(AGENT);
                let shut = lab.attempt(AGENT, &words);
                assert_eq!(shut.outcome, "refused", "{scope}: {words:?}: {shut:?}");
                assert!(lab.refused(AGENT) > refused, "{scope}: {words:?}");
                // What the gate itself asks may answer.
                let gate = lab.attempt(GATE, &words);
                assert_eq!(gate.outcome, "reached", "{scope}: {words:?}: {gate:?}");
            }
        }
    }
}

/// Attack: KRN-24
#[test]
fn krn_24_port_squatting() {
    for scope in SCOPES {
        let lab = Lab::new(scope);
        lab.sysctl("net/ipv4/ip_unprivileged_port_start", "0");
        for address in LOOPBACK {
            let squatter = lab.start(OTHER_AGENT, &["listen", address, GATE_PORT], "listening");
            lab.open();
            let open = lab.attempt(AGENT, &["tcp", address, GATE_PORT]);
            assert_eq!(open.outcome, "reached", "control: {scope}: {open:?}");
            lab.shut();
            let before = lab.total("squatted");
            let shut = lab.attempt(AGENT, &["tcp", address, GATE_PORT]);
            assert_ne!(shut.outcome, "reached", "{scope}: a squatter answered");
            assert!(
                lab.total("squatted") > before,
                "{scope}: {}",
                lab.counters()
            );
            drop(squatter);
            let _gate = lab.start(GATE, &["listen", address, GATE_PORT], "listening");
            let gate = lab.attempt(AGENT, &["tcp", address, GATE_PORT]);
            assert_eq!(gate.outcome, "reached", "{scope}: {gate:?}");
        }
    }
}
