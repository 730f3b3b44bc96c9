//! Machines without a boundary, however it is missing: `prove` is never green there.

use super::SCOPES;
use super::lab::{Lab, TABLE};

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
    for scope in SCOPES {
        let other = SCOPES.into_iter().find(|other| *other != scope).unwrap();
        let lab = Lab::new(scope);
        let passes = |what: &str| {
            let proven = lab.prove_only(LIST, "");
            assert_ne!(proven.code, 0, "{scope}: {what}: {}", proven.shown());
        };
        passes("never loaded");
        lab.nft(&["add", "table", "inet", TABLE]);
        passes("a table without chains");
        lab.nft(&["delete", "table", "inet", TABLE]);
        let empty = format!(
            "table inet {TABLE} {{\n chain output {{\n type filter hook output priority 0; policy accept;\n }}\n}}"
        );
        lab.netns.nft(&empty);
        passes("a chain without rules");
        lab.nft(&["delete", "table", "inet", TABLE]);

        lab.shut();
        let held = lab.prove_only(LIST, "");
        assert_eq!(held.code, 0, "{scope}: control: {}", held.shown());
        lab.nft(&["flush", "table", "inet", TABLE]);
        passes("flushed");
        lab.nft(&["delete", "table", "inet", TABLE]);
        passes("deleted");
        lab.shut();
        lab.nft(&["flush", "ruleset"]);
        passes("everything flushed");

        // The same name, the other scope: what it should shut is open, or what should be open is shut.
        lab.apply_as(other);
        passes("rules of the other scope");
        lab.nft(&["flush", "ruleset"]);

        // The rules of a neighbour, who has users and a gate of its own.
        let neighbour = Lab::new(scope);
        neighbour.apply_in(&lab);
        passes("rules for other users");
    }
}
