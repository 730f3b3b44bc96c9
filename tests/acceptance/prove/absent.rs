//! Machines without a boundary, however it is missing: `prove` is never green there.

use std::thread;

use super::SCOPES;
use super::lab::{Lab, TABLE};
use tests::host;

/// What a hurried reader of the exit status would rely on.
const LIST: &[&str] = &[
    "KRN-01",
    "KRN-01-root",
    "KRN-01-stranger",
    "KRN-03-udp",
    "KRN-15-packet",
    "OWN-inbound",
    "OPN-gate-tcp",
    "OPN-gate-port",
    "OPN-stranger",
];

#[test]
fn it_never_passes_where_the_boundary_is_absent() {
    // Side by side, each on a host of its own: most of it is waiting.
    thread::scope(|threads| {
        for scope in SCOPES {
            for missing in [never_there, gone_again, somebody_elses] {
                threads.spawn(move || missing(scope));
            }
        }
    });
}

#[track_caller]
fn passes_not(lab: &Lab, scope: &str, what: &str) {
    let proven = lab.prove_only(LIST, "");
    assert_ne!(proven.code, 0, "{scope}: {what}: {}", proven.shown());
}

fn never_there(scope: &'static str) {
    let lab = Lab::new(scope);
    passes_not(&lab, scope, "never loaded");
    lab.nft(&["add", "table", "inet", TABLE]);
    passes_not(&lab, scope, "a table without chains");
    lab.nft(&["delete", "table", "inet", TABLE]);
    let empty = format!(
        "table inet {TABLE} {{\n chain output {{\n type filter hook output priority 0; policy accept;\n }}\n}}"
    );
    lab.netns.nft(&empty);
    passes_not(&lab, scope, "a chain without rules");
}

fn gone_again(scope: &'static str) {
    let lab = Lab::new(scope);
    lab.shut();
    let held = lab.prove_only(LIST, "");
    assert_eq!(held.code, 0, "{scope}: control: {}", held.shown());
    lab.nft(&["flush", "table", "inet", TABLE]);
    passes_not(&lab, scope, "flushed");
    lab.nft(&["delete", "table", "inet", TABLE]);
    passes_not(&lab, scope, "deleted");
    lab.shut();
    lab.nft(&["flush", "ruleset"]);
    passes_not(&lab, scope, "everything flushed");
}

fn somebody_elses(scope: &'static str) {
    let lab = Lab::new(scope);
    // The same name, the other scope: what it should shut is open, or what should be open is shut.
    let other = SCOPES.into_iter().find(|other| *other != scope).unwrap();
    lab.apply_as(other);
    passes_not(&lab, scope, "rules of the other scope");
    lab.nft(&["flush", "ruleset"]);

    // The rules of a neighbour, who has users and a gate of its own.
    let neighbour = Lab::new(scope);
    neighbour.apply_in(&lab);
    passes_not(&lab, scope, "rules for other users");
}

/// A list of one's own that has nothing to do with packets still says nothing good of a machine where they pass.
#[test]
fn a_list_that_aims_elsewhere_does_not_pass_without_a_boundary_either() {
    for scope in SCOPES {
        let lab = Lab::new(scope);
        let (own, secret) = (lab.path("own.toml"), lab.path("secret"));
        host::file(&secret, "s", 0, 0o600);
        let text = format!(
            "version = 1\n[[proof]]\nid = \"OWN-1\"\nmust = \"fail\"\nattempt = \"file-readable\"\npaths = [\"{}\"]\nreason = \"ours\"\n",
            secret.display()
        );
        host::file(&own, &text, 0, 0o644);
        let options = ["--proofs", own.to_str().unwrap()];
        let present = ["BND-present/ipv4/443", "BND-present/ipv6/443"];

        let open = lab.prove(&options);
        assert_eq!(open.code, 1, "{scope}: {}", open.shown());
        assert_eq!(open.status("OWN-1"), "holds", "{}", open.shown());
        for id in present {
            assert_eq!(open.status(id), "broken", "{scope}: {id}");
        }
        lab.shut();
        let held = lab.prove(&options);
        assert_eq!(held.code, 0, "{scope}: {}", held.shown());
        for id in present {
            assert_eq!(held.status(id), "holds", "{scope}: {id}");
        }
        let flush = ["flush", "ruleset"];
        lab.nft(&flush);

        // By itself an agent is kept by a machine without a way out, and otherwise cannot tell.
        let alone = |lab: &Lab| lab.alone_with(lab.agent(), &options);
        let cut_off = alone(&lab);
        assert_eq!(cut_off.code, 0, "{scope}: {}", cut_off.shown());
        lab.wire();
        let wired = alone(&lab);
        assert_eq!(wired.code, 2, "{scope}: {}", wired.shown());
        assert_eq!(wired.status("OWN-1"), "holds", "{}", wired.shown());
    }
}
