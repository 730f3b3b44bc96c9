//! New traffic: every kind of socket an agent can open.

use tests::command::Program;
use tests::wait;

use super::lab::{AGENT, Attempt, GATE, HOST4, HOST6, Lab, OTHER_AGENT, PEER4, PEER6, SUBORDINATE};

const SCOPES: [&str; 2] = ["agents", "guest"];

/// With the boundary away it arrives; with it, nothing does, and `uid` is named.
#[track_caller]
fn open_then_shut(lab: &Lab, uid: u32, what: &str, run: impl Fn() -> Attempt) {
    lab.open();
    let before = lab.received();
    let attempt = run();
    assert!(
        lab.received() > before,
        "control: {what} did not reach the peer: {attempt:?}"
    );
    lab.settle();
    lab.shut();
    let (before, refused) = (lab.received(), lab.refused(uid));
    let attempt = run();
    assert_eq!(
        lab.received(),
        before,
        "{what} reached the peer: {attempt:?}"
    );
    assert_eq!(
        attempt.outcome, "refused",
        "{what} must be told, and not hang: {attempt:?}"
    );
    assert!(
        lab.refused(uid) > refused,
        "{what}: uid {uid} is not named in {}",
        lab.counters()
    );
}

/// In both scopes, each of these as the agent.
fn all_shut(attempts: &[&[&str]]) {
    for scope in SCOPES {
        let lab = Lab::new(scope);
        for words in attempts {
            let what = format!("{scope}: {words:?}");
            open_then_shut(&lab, AGENT, &what, || lab.attempt(AGENT, words));
        }
    }
}

/// Attack: KRN-01
#[test]
fn krn_01_direct_tcp_over_ipv4() {
    all_shut(&[&["tcp", PEER4, "443"], &["tcp", PEER4, "7"]]);
}

/// Attack: KRN-02
#[test]
fn krn_02_direct_tcp_over_ipv6() {
    all_shut(&[&["tcp", PEER6, "443"], &["tcp", PEER6, "7"]]);
}

/// Attack: KRN-03
#[test]
fn krn_03_quic_and_arbitrary_udp() {
    all_shut(&[
        &["udp", PEER4, "443"],
        &["udp", PEER6, "443"],
        &["udp", PEER4, "7"],
        &["udp", PEER6, "8443"],
    ]);
}

/// Attack: KRN-04
#[test]
fn krn_04_dns_straight_to_an_outside_resolver() {
    all_shut(&[
        &["dns", PEER4, "53"],
        &["dns", PEER6, "53"],
        &["tcp", PEER4, "53"],
        &["tcp", PEER6, "53"],
        &["tcp", PEER4, "853"],
        &["tcp", PEER6, "853"],
    ]);
}

/// Milliseconds, counted instead of timed: whoever hears a refusal sends the one packet, and whoever does not sends it again
/// and again. Loopback, where the refusal itself travels over what is limited, is no exception.
#[test]
fn a_refused_dial_is_one_packet() {
    for scope in SCOPES {
        let lab = Lab::new(scope);
        lab.shut();
        let dialled = |address: &str| {
            let before = lab.refused(AGENT);
            let attempt = lab.attempt(AGENT, &["tcp", address, "443"]);
            (attempt, lab.refused(AGENT) - before)
        };
        for address in [PEER4, PEER6, HOST4, HOST6, "127.0.0.1", "::1"] {
            let (attempt, packets) = dialled(address);
            let errno = attempt.errno.as_deref();
            assert_eq!(errno, Some("ECONNREFUSED"), "{scope} {address}");
            assert_eq!(packets, 1, "{scope} {address}: {attempt:?}");
        }
        // Control: without the rules that tell, the same dial is sent again.
        for told in ["TCP callers hear it at once", "others hear it at once"] {
            let listed = lab.nft(&["-a", "list", "chain", "inet", "portcullis-lab", "refuse"]);
            let listed = listed.ok().stdout;
            let comment = format!("comment \"{told}\"");
            let rule = listed.lines().find(|line| line.contains(&comment));
            let handle = rule.unwrap().rsplit(' ').next().unwrap();
            let words = [
                "delete",
                "rule",
                "inet",
                "portcullis-lab",
                "refuse",
                "handle",
                handle,
            ];
            lab.nft(&words).ok();
        }
        let (attempt, packets) = dialled(PEER4);
        assert!(packets > 1, "control: {scope}: {packets}: {attempt:?}");
    }
}

#[test]
fn every_other_kind_of_socket_is_shut() {
    all_shut(&[
        &["mptcp", PEER4, "443"],
        &["mptcp", PEER6, "443"],
        &["fastopen", PEER4, "443"],
        &["fastopen", PEER6, "443"],
        &["udplite", PEER4, "443"],
        &["udplite", PEER6, "443"],
        &["icmp", PEER4],
        &["icmp", PEER6],
    ]);
}

/// Attack: KRN-02
#[test]
fn krn_02_link_local_addresses_with_their_scope() {
    for scope in SCOPES {
        let lab = Lab::new(scope);
        let listed = lab.peer.ip(&[
            "-j", "-6", "address", "show", "dev", "wire", "scope", "link",
        ]);
        let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
        let found = listed
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|link| link["addr_info"].as_array().into_iter().flatten())
            .find_map(|address| address["local"].as_str())
            .unwrap_or_else(|| panic!("{listed}"));
        let address = format!("{found}%wire");
        let words = ["tcp", address.as_str(), "443"];
        wait::until_true("the link-local address is usable", || {
            lab.attempt(0, &words).outcome == "reached"
        });
        for kind in ["tcp", "udp"] {
            let words = [kind, address.as_str(), "443"];
            let what = format!("{scope}: {words:?}");
            open_then_shut(&lab, AGENT, &what, || lab.attempt(AGENT, &words));
        }
    }
}

/// An agent may make a network namespace of its own and rule there; it leads nowhere.
/// Attack: KRN-13
#[test]
fn krn_13_user_plus_network_namespace() {
    for scope in SCOPES {
        let lab = Lab::new(scope);
        lab.shut();
        for address in [PEER4, PEER6] {
            let mut all = lab.attempt_words(AGENT, &[]);
            all.truncate(all.len() - 2);
            all.extend(
                [
                    "unshare",
                    "-Urn",
                    "sh",
                    "-c",
                    "nft flush ruleset && exec \"$@\"",
                    "sh",
                ]
                .map(str::to_owned),
            );
            all.extend(lab.script(&["tcp", address, "443"]));
            let before = lab.received();
            let finished = lab.on_host(all).run();
            let (text, shown) = (&finished.stdout, finished.shown());
            // No route (IPv4), no address to send from (IPv6).
            assert!(
                text.contains("ENETUNREACH") || text.contains("EADDRNOTAVAIL"),
                "{shown}"
            );
            assert_eq!(lab.received(), before);
        }
        lab.boundary(&["verify"]).ok();
    }
}

/// Raw and packet sockets take a capability; an ICMP datagram socket is the sysctl's to give, and leads
/// nowhere even when it is wide open (the control in `every_other_kind_of_socket_is_shut`).
/// Attack: KRN-15
#[test]
fn krn_15_raw_packet_and_icmp_datagram_sockets() {
    for scope in SCOPES {
        let lab = Lab::new(scope);
        lab.open();
        for words in [["raw", PEER4], ["raw", PEER6], ["packet", "wire"]] {
            let before = lab.received();
            lab.attempt(0, &words);
            assert!(
                lab.received() > before,
                "control: {words:?} as root did not arrive"
            );
        }
        lab.shut();
        for words in [["raw", PEER4], ["raw", PEER6], ["packet", "wire"]] {
            let before = lab.received();
            let attempt = lab.attempt(AGENT, &words);
            assert_eq!(
                attempt.errno.as_deref(),
                Some("EPERM"),
                "{words:?}: {attempt:?}"
            );
            assert_eq!(lab.received(), before, "{words:?}");
        }
        for address in [PEER4, PEER6] {
            let (before, refused) = (lab.received(), lab.refused(AGENT));
            let attempt = lab.attempt(AGENT, &["icmp", address]);
            assert_eq!(attempt.outcome, "refused", "{scope} {address}: {attempt:?}");
            assert_eq!(lab.received(), before, "{scope} {address}");
            assert!(lab.refused(AGENT) > refused, "{scope} {address}");
        }
        // What the shipped sysctl does: nobody gets such a socket.
        lab.sysctl("net/ipv4/ping_group_range", "1 0");
        for address in [PEER4, PEER6] {
            let attempt = lab.attempt(AGENT, &["icmp", address]);
            assert_eq!(attempt.errno.as_deref(), Some("EACCES"), "{attempt:?}");
        }
    }
}

#[test]
fn in_a_guest_root_is_shut_too_raw_sockets_included() {
    let lab = Lab::new("guest");
    for words in [
        &["tcp", PEER4, "443"][..],
        &["udp", PEER6, "443"],
        &["raw", PEER4],
        &["raw", PEER6],
    ] {
        open_then_shut(&lab, 0, &format!("root: {words:?}"), || {
            lab.attempt(0, words)
        });
    }
    let elsewhere = Lab::new("agents");
    elsewhere.shut();
    let attempt = elsewhere.attempt(0, &["tcp", PEER4, "443"]);
    assert_eq!(
        attempt.outcome, "reached",
        "scope agents leaves everybody else alone"
    );
}

/// Attack: KRN-11
#[test]
fn krn_11_user_namespace_root() {
    for scope in SCOPES {
        let lab = Lab::new(scope);
        for words in [
            ["tcp", PEER4, "443"],
            ["tcp", PEER6, "443"],
            ["udp", PEER4, "443"],
            ["udp", PEER6, "443"],
        ] {
            open_then_shut(&lab, AGENT, &format!("{scope}: userns {words:?}"), || {
                let mut all = lab.attempt_words(AGENT, &[]);
                all.truncate(all.len() - 2);
                all.extend(["unshare", "-Ur"].map(str::to_owned));
                all.extend(lab.script(&words));
                let finished = lab.on_host(all).run();
                serde_json::from_str(&finished.stdout)
                    .unwrap_or_else(|_| panic!("{}", finished.shown()))
            });
        }
    }
}

/// `newuidmap` gives an agent another uid. It is shut as well, because it is the agent's.
#[test]
fn a_subordinate_uid_is_still_the_agent() {
    for scope in SCOPES {
        let lab = Lab::new(scope);
        for address in [PEER4, PEER6] {
            open_then_shut(
                &lab,
                SUBORDINATE + 7,
                &format!("{scope}: newuidmap to {address}"),
                || subordinate(&lab, &["tcp", address, "443"]),
            );
        }
    }
}

fn subordinate(lab: &Lab, words: &[&str]) -> Attempt {
    let mut all = lab.attempt_words(AGENT, &[]);
    all.truncate(all.len() - 2);
    let map = format!("{SUBORDINATE},0,1000");
    let maps = [format!("--map-users={map}"), format!("--map-groups={map}")];
    all.extend(["unshare", "-U"].map(str::to_owned));
    all.extend(maps);
    all.extend(["-S", "7", "-G", "7"].map(str::to_owned));
    all.extend(lab.script(words));
    let finished = lab.on_host(all).run();
    serde_json::from_str(&finished.stdout).unwrap_or_else(|_| panic!("{}", finished.shown()))
}

/// The rules cannot name a uid they do not know of: then there are no rules to load.
#[test]
fn an_uncovered_subordinate_range_stops_apply_and_verify() {
    let lab = Lab::new("agents");
    lab.shut();
    lab.boundary(&["verify"]).ok();
    lab.write_config_with("agents", "agents = [\"61500-61599\"]", "");
    for verb in ["apply", "verify"] {
        let finished = lab.boundary(&[verb]);
        assert_eq!(finished.code(), 2, "{}", finished.shown());
        assert!(
            finished.stderr.contains("700000-700999"),
            "{}",
            finished.shown()
        );
        assert!(finished.stderr.contains("hint:"), "{}", finished.shown());
    }
    lab.write_accounts(false);
    lab.boundary(&["apply"]).ok();
    lab.boundary(&["verify"]).ok();
}

/// A program with a capability of its file (`ping`) is judged by its caller. One that is another user by its file is
/// judged as that user: `no_new_privs` keeps it the agent.
/// Attack: KRN-18
#[test]
fn krn_18_helpers_with_file_capabilities_or_another_user() {
    for scope in SCOPES {
        let lab = Lab::new(scope);
        let helper = |name: &str| {
            let path = lab.path(name);
            std::fs::copy("/usr/bin/python3", &path).unwrap();
            path.display().to_string()
        };
        let (capable, root) = (helper("capable"), helper("root"));
        let program = Program::new("setcap").args(["cap_net_raw+ep", &capable]);
        program.run().ok();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o4755);
        std::fs::set_permissions(&root, mode).unwrap();
        let run = |helper: &str, flag: bool, words: &[&str]| {
            let mut all = lab.attempt_words(AGENT, &[]);
            all.truncate(all.len() - 2);
            all.extend(flag.then(|| "--no-new-privs".to_owned()));
            all.push(helper.to_owned());
            all.extend(lab.script(words).into_iter().skip(1));
            Attempt::of(&lab.on_host(all).run())
        };
        for address in [PEER4, PEER6] {
            let what = format!("{scope}: a raw socket to {address}");
            open_then_shut(&lab, AGENT, &what, || {
                run(&capable, false, &["raw", address])
            });
            // With the flag the file's capability is worth nothing.
            let attempt = run(&capable, true, &["raw", address]);
            assert_eq!(attempt.errno.as_deref(), Some("EPERM"), "{attempt:?}");

            let words = ["tcp", address, "443"];
            let what = format!("{scope}: a set-user-id program to {address}");
            open_then_shut(&lab, AGENT, &what, || run(&root, true, &words));
            // Root itself leaves in one scope and not in the other: so much depends on the flag.
            let gained = run(&root, false, &words).outcome;
            let expected = if scope == "agents" {
                "reached"
            } else {
                "refused"
            };
            assert_eq!(gained, expected, "control: {scope}: {address}");
            lab.settle();
        }
    }
}

/// A socket carries the uid of whoever opened it.
/// Attack: KRN-10
#[test]
fn krn_10_a_descriptor_inherited_across_the_drop() {
    for (scope, opener) in [
        ("agents", OTHER_AGENT),
        ("guest", OTHER_AGENT),
        ("guest", 0),
    ] {
        let lab = Lab::new(scope);
        for address in [PEER4, PEER6] {
            let what = format!("{scope}: descriptor of {opener} to {address}");
            let user = if opener == 0 { AGENT } else { opener };
            let user = user.to_string();
            for kind in ["tcp", "udp"] {
                let words = ["inherit", address, "443", &user, kind];
                open_then_shut(&lab, opener, &format!("{what} by {kind}"), || {
                    lab.attempt(opener, &words)
                });
            }
        }
    }
}

/// A refusal travels to the packet's source. An agent may choose that (IPV6_FREEBIND), and must
/// not be able to make the kernel carry its bytes there.
#[test]
fn a_refusal_is_never_sent_to_a_source_that_is_not_ours() {
    for scope in SCOPES {
        let lab = Lab::new(scope);
        for kind in ["udp", "tcp"] {
            // To an address of ours, with the peer's as source: an answer goes to the peer.
            for target in [PEER6, HOST6] {
                let words = ["spoof", target, "443", "2001:db8::3", kind];
                lab.peer.ip(&[
                    "address",
                    "replace",
                    "2001:db8::3/64",
                    "dev",
                    "wire",
                    "nodad",
                ]);
                lab.open();
                let before = lab.received();
                let attempt = lab.attempt(AGENT, &words);
                assert!(lab.received() > before, "control: {words:?}: {attempt:?}");
                lab.settle();
                lab.shut();
                let (before, refused) = (lab.received(), lab.refused(AGENT));
                let attempt = lab.attempt(AGENT, &words);
                assert_eq!(lab.received(), before, "{scope}: {words:?}: {attempt:?}");
                assert!(lab.refused(AGENT) > refused, "{scope}: {words:?}");
            }
        }
    }
}

#[test]
fn the_gate_leaves_by_every_way_it_needs() {
    for scope in SCOPES {
        let lab = Lab::new(scope);
        lab.shut();
        for words in [
            ["tcp", PEER4, "443"],
            ["tcp", PEER6, "443"],
            ["udp", PEER4, "53"],
            ["udp", PEER6, "53"],
        ] {
            assert_eq!(
                lab.attempt(GATE, &words).outcome,
                "reached",
                "{scope}: {words:?}"
            );
        }
        // Twenty closes leave nothing behind: closing handshakes have no uid any more.
        for _ in 0..10 {
            assert_eq!(lab.attempt(GATE, &["tcp", PEER4, "443"]).outcome, "reached");
            assert_eq!(lab.attempt(GATE, &["tcp", PEER6, "443"]).outcome, "reached");
        }
        // The peer would wait in LAST-ACK for what did not get through.
        lab.settle();
        assert_eq!(lab.refused(GATE), 0, "{scope}: {}", lab.counters());
        // Neighbour discovery has no uid either.
        lab.host.ip(&["-6", "neighbour", "flush", "dev", "wire"]);
        assert_eq!(
            lab.attempt(GATE, &["tcp", PEER6, "443"]).outcome,
            "reached",
            "{scope}"
        );
    }
}
