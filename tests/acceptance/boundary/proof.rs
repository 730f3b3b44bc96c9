//! One schema, two rooms: the boundary writes the status file, everybody else asks `policy` what it
//! proves. They may not depend on each other, so that this holds them together.

use nftables::status::{self, Noted, Status};
use policy::boundary::{FRESH_MS, Here, judge};

fn here() -> Here {
    Here {
        boot_id: status::boot_id().unwrap(),
        netns: status::netns_inode().unwrap(),
        boottime_ms: status::boottime_ms().unwrap(),
    }
}

fn good() -> Status {
    let mut status = Status::now(None, "agents", "portcullis", None).unwrap();
    status.ruleset_hash = "9b1d".into();
    status.events.push(Noted {
        at: "2026-12-01T08:00:00Z".into(),
        boottime_ms: status.boottime_ms,
        kind: "standing".into(),
        text: "ruleset 9b1d stands".into(),
    });
    status
}

#[test]
fn what_the_boundary_writes_the_policy_room_reads() {
    let text = serde_json::to_string(&good()).unwrap();
    let proof = judge(&text, &here(), FRESH_MS).unwrap();
    assert_eq!(
        (proof.ruleset_hash.as_str(), proof.scope.as_str()),
        ("9b1d", "agents")
    );
    assert_eq!(u128::from(FRESH_MS), status::FRESH.as_millis());
    // The form itself, so that neither side changes it unseen.
    let keys: Vec<String> = serde_json::to_value(good())
        .unwrap()
        .as_object()
        .unwrap()
        .keys()
        .cloned()
        .collect();
    assert_eq!(
        keys,
        [
            "boot_id",
            "boottime_ms",
            "events",
            "netns",
            "ok",
            "problem",
            "ruleset_hash",
            "scope",
            "table",
            "version",
        ]
    );
}

/// Whatever one refuses the other refuses.
#[test]
fn both_judgements_agree() {
    type Change = fn(&mut Status);
    let changes: [(&str, Change); 7] = [
        ("good", |_| ()),
        ("not ok", |status| status.ok = false),
        ("another boot", |status| status.boot_id = "other".into()),
        ("another namespace", |status| status.netns = 1),
        ("old", |status| {
            status.boottime_ms = status.boottime_ms.saturating_sub(60_000)
        }),
        ("future", |status| status.boottime_ms += 600_000),
        ("no ruleset", |status| status.ruleset_hash.clear()),
    ];
    for (what, change) in changes {
        let mut status = good();
        change(&mut status);
        let text = serde_json::to_string(&status).unwrap();
        let judged = judge(&text, &here(), FRESH_MS).is_ok();
        assert_eq!(judged, status.weakness().unwrap().is_none(), "{what}");
        assert_eq!(judged, what == "good", "{what}");
    }
}
