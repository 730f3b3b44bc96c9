//! What scope `guest` names: DHCP, the resolver, administration. Each opens what it says and no more.

use tests::wait;

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
        lab.outside(&["udp_from", HOST4, to, "67"]).run();
        assert_eq!(lab.total("inbound") == inbound, expected, "to port {to}");
    }
}

/// Over IPv6 all servers of the link are asked, and one of them answers from an address of the link.
#[test]
fn a_dhcpv6_lease_is_renewed_and_nothing_else_goes_that_way() {
    let lab = Lab::new("guest");
    let all = "ff02::1:2%wire";
    let named = NAMED.replace("[\"192.0.2.2\"]", "[\"192.0.2.2\", \"2001:db8::2\"]");
    let renewals = [
        ["udp_from", all, "547", "546"],
        ["udp_from", PEER6, "547", "546"],
    ];
    lab.shut();
    for words in renewals {
        let before = lab.received();
        let refused = lab.attempt(0, &words);
        assert_eq!(refused.outcome, "refused", "control: {words:?}");
        assert_eq!(lab.received(), before);
    }
    lab.write_config("guest", &named);
    lab.shut();
    for words in renewals {
        let before = lab.received();
        let sent = lab.attempt(0, &words);
        assert!(lab.received() > before, "{words:?}: {sent:?}");
    }
    for (uid, words) in [
        (0, ["udp_from", all, "547", "5460"]),
        (0, ["udp_from", all, "5470", "546"]),
        (0, ["udp_from", "ff02::1:3%wire", "547", "546"]),
        (0, ["udp_from", "2001:db8::3", "547", "546"]),
        (0, ["udp_from", PEER4, "547", "546"]),
        (AGENT, ["udp_from", all, "547", "5460"]),
    ] {
        let before = lab.received();
        assert_eq!(lab.attempt(uid, &words).outcome, "refused", "{words:?}");
        assert_eq!(lab.received(), before, "{words:?}");
    }
    // An answer comes from the link, or from a server that is named, from its port to the client's.
    second_address(&lab);
    let link_local = link_local(&lab);
    let from = |source: &'static str| {
        lab.peer.ip(&[
            "-6",
            "route",
            "replace",
            "2001:db8::1/128",
            "dev",
            "wire",
            "src",
            source,
        ]);
    };
    for (source, to, words, expected) in [
        (PEER6, link_local.as_str(), ["546", "547"], true),
        (PEER6, HOST6, ["546", "547"], true),
        ("2001:db8::77", HOST6, ["546", "547"], false),
        (PEER6, link_local.as_str(), ["547", "547"], false),
        (PEER6, link_local.as_str(), ["546", "5470"], false),
        (PEER6, HOST6, ["546", "547"], true),
    ] {
        from(source);
        let inbound = lab.total("inbound");
        lab.outside(&["udp_from", to, words[0], words[1]]).run();
        let passed = lab.total("inbound") == inbound;
        assert_eq!(passed, expected, "from {source} to {to} {words:?}");
    }
}

/// One that the peer has beside its own, and sends from when it is told to.
fn second_address(lab: &Lab) {
    let words = "address add 2001:db8::77/64 dev wire nodad preferred_lft 0";
    lab.peer.ip(&words.split(' ').collect::<Vec<_>>());
}

/// This host's address of the link, as the peer writes it.
fn link_local(lab: &Lab) -> String {
    let listed = lab.host.ip(&[
        "-6", "-o", "address", "show", "dev", "wire", "scope", "link",
    ]);
    let words = listed.split_whitespace().collect::<Vec<_>>();
    let at = words.iter().position(|word| *word == "inet6").unwrap();
    let address = words[at + 1].split('/').next().unwrap();
    format!("{address}%wire")
}

/// The kernel knows an error to be about a flow of the gate's, and lets that in alone.
#[test]
fn an_error_about_a_flow_of_the_gate_s_comes_in_and_no_other() {
    let lab = Lab::new("guest");
    lab.shut();
    for (peer, host) in [(PEER4, HOST4), (PEER6, HOST6)] {
        let inbound = lab.total("inbound");
        let told = lab.attempt(super::lab::GATE, &["ask", peer, "4444"]);
        let why = told.errno.as_deref();
        assert_eq!(why, Some("ECONNREFUSED"), "the gate hears of it: {told:?}");
        assert_eq!(lab.total("inbound"), inbound);
        // About a flow that nobody has, which is the only one an agent can have.
        lab.outside(&["unreachable", host, "443", peer, "5555"])
            .run();
        wait::until_true("an error about nobody's flow is dropped", || {
            lab.total("inbound") > inbound
        });
    }
    // Without the rules it is heard by whoever sent: the control of its being well made.
    lab.open();
    for (peer, host) in [(PEER4, HOST4), (PEER6, HOST6)] {
        let waiting = lab.start(AGENT, &["hears", peer, "4445", "5555"], "waits");
        lab.outside(&["unreachable", host, "4445", peer, "5555"])
            .run();
        let told = waiting.finish();
        assert_eq!(told.errno.as_deref(), Some("ECONNREFUSED"), "{told:?}");
    }
}

#[test]
fn administration_comes_in_from_its_sources_to_its_ports() {
    let lab = Lab::new("guest");
    lab.write_config("guest", NAMED);
    lab.peer
        .ip(&["address", "add", "192.0.2.77/24", "dev", "wire"]);
    second_address(&lab);
    let dial = |address: &str, port: &str| lab.outside(&["tcp", address, port]).run().stdout;
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
    for (any, address, other) in [
        ("0.0.0.0", HOST4, "192.0.2.77"),
        ("::", HOST6, "2001:db8::77"),
    ] {
        let sshd = lab.start(0, &["listen", any, "2222"], "listening");
        let host = format!("{address}/{}", if any == "::" { 128 } else { 32 });
        lab.peer
            .ip(&["route", "add", &host, "dev", "wire", "src", other]);
        let strange = dial(address, "2222");
        assert!(!strange.contains("reached"), "{other} is not named");
        lab.peer.ip(&["route", "del", &host, "dev", "wire"]);
        assert!(dial(address, "2222").contains("reached"), "control");
        drop(sshd);
        let _squatter = lab.start(AGENT, &["listen", any, "2222"], "listening");
        let squatted = dial(address, "2222");
        assert!(
            !squatted.contains("reached"),
            "an agent answered: {squatted}"
        );
    }
}
