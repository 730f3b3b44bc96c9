//! What scope `guest` names: DHCP, the resolver, administration. Each opens what it says and no more.

use tests::command::Program;

use super::lab::{AGENT, HOST4, HOST6, Lab, MONITOR, PEER4, PEER6};

const NAMED: &str = r#"
[guest.dhcp]
user    = 0
servers = ["192.0.2.2"]
reason  = "the lease"

[guest.resolver]
user    = "lab-monitor"
servers = ["192.0.2.2:53", "[2001:db8::2]:53"]
reason  = "names for the gate"

[[guest.administration]]
sources = ["192.0.2.2", "2001:db8::2"]
ports   = [2222]
reason  = "maintenance"
"#;

#[test]
fn the_resolver_asks_its_servers_and_nobody_else() {
    let lab = Lab::new("guest");
    let asks = [
        ["dns", PEER4, "53"],
        ["dns", PEER6, "53"],
        ["tcp", PEER4, "53"],
        ["tcp", PEER6, "53"],
    ];
    lab.shut();
    for words in asks {
        let shut = lab.attempt(MONITOR, &words);
        assert_eq!(shut.outcome, "refused", "control: {words:?}");
    }
    lab.write_config("guest", NAMED);
    lab.shut();
    for words in asks {
        let open = lab.attempt(MONITOR, &words);
        assert_eq!(open.outcome, "reached", "{words:?}: {open:?}");
        for uid in [AGENT, 0] {
            assert_eq!(
                lab.attempt(uid, &words).outcome,
                "refused",
                "uid {uid}: {words:?}"
            );
        }
    }
    for words in [["udp", PEER4, "443"], ["tcp", PEER6, "443"]] {
        assert_eq!(lab.attempt(MONITOR, &words).outcome, "refused", "{words:?}");
    }
}

/// Renewal goes from one port to another; root gets out by no other.
#[test]
fn dhcp_is_renewed_and_root_gets_no_other_way_out() {
    let lab = Lab::new("guest");
    let renewals = [
        ["udp_from", PEER4, "67", "68"],
        ["udp_from", "255.255.255.255", "67", "68"],
    ];
    lab.shut();
    for words in renewals {
        let before = lab.received();
        assert_eq!(
            lab.attempt(0, &words).outcome,
            "refused",
            "control: {words:?}"
        );
        assert_eq!(lab.received(), before);
    }
    lab.write_config("guest", NAMED);
    lab.shut();
    lab.host
        .ip(&["route", "add", "255.255.255.255", "dev", "wire"]);
    for words in renewals {
        let before = lab.received();
        let sent = lab.attempt(0, &words);
        assert!(lab.received() > before, "{words:?}: {sent:?}");
    }
    for words in [
        &["udp_from", PEER4, "67", "6868"][..],
        &["udp_from", PEER4, "443", "68"],
        &["udp_from", "192.0.2.3", "67", "68"],
        &["tcp", PEER4, "67"],
        &["udp", PEER6, "67"],
    ] {
        let before = lab.received();
        assert_eq!(lab.attempt(0, words).outcome, "refused", "{words:?}");
        assert_eq!(lab.received(), before, "{words:?}");
    }
    // The server's word comes in, and only to the client's port.
    for (to, expected) in [("68", true), ("69", false)] {
        let inbound = lab.total("inbound");
        Program::new("python3")
            .arg(lab.path("attempt.py"))
            .args(["udp_from", HOST4, to, "67"])
            .in_netns(&lab.peer)
            .run();
        assert_eq!(lab.total("inbound") == inbound, expected, "to port {to}");
    }
}

#[test]
fn administration_comes_in_from_its_sources_to_its_ports() {
    let lab = Lab::new("guest");
    lab.write_config("guest", NAMED);
    lab.peer
        .ip(&["address", "add", "192.0.2.77/24", "dev", "wire"]);
    let dial = |address: &str, port: &str| {
        Program::new("python3")
            .arg(lab.path("attempt.py"))
            .args(["tcp", address, port])
            .in_netns(&lab.peer)
            .run()
            .stdout
    };
    for (any, address) in [("0.0.0.0", HOST4), ("::", HOST6)] {
        let _sshd = lab.start(0, &["listen", any, "2222"], "listening");
        let _other = lab.start(0, &["listen", any, "2223"], "listening");
        lab.open();
        for port in ["2222", "2223"] {
            assert!(
                dial(address, port).contains("reached"),
                "control: {address} {port}"
            );
        }
        lab.settle();
        lab.shut();
        assert!(dial(address, "2222").contains("reached"), "{address}");
        assert!(
            !dial(address, "2223").contains("reached"),
            "{address}: another port"
        );
    }
    // From another source, and to an agent that took the port.
    let sshd = lab.start(0, &["listen", "0.0.0.0", "2222"], "listening");
    lab.peer.ip(&[
        "route",
        "add",
        "192.0.2.1/32",
        "dev",
        "wire",
        "src",
        "192.0.2.77",
    ]);
    assert!(
        !dial(HOST4, "2222").contains("reached"),
        "a source that is not named"
    );
    lab.peer
        .ip(&["route", "del", "192.0.2.1/32", "dev", "wire"]);
    assert!(dial(HOST4, "2222").contains("reached"), "control");
    drop(sshd);
    let _squatter = lab.start(AGENT, &["listen", "0.0.0.0", "2222"], "listening");
    assert!(
        !dial(HOST4, "2222").contains("reached"),
        "an agent answered administration"
    );
}
