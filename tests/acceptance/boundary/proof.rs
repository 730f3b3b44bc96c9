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
        kind: "reasserted".into(),
        cause: Some("notice".into()),
        after_ms: Some(9),
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
    let changes: [(&str, Change); 6] = [
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
        assert!(status.weakness().unwrap().is_some(), "{what}");
        assert!(judge(&text, &here(), FRESH_MS).is_err(), "{what}");
    }
    assert_eq!(good().weakness().unwrap(), None, "control");
}

/// And at the same millisecond, before and after the reader's.
#[test]
fn both_judgements_end_at_the_same_age() {
    let (mut accepted, mut refused) = (0, 0);
    for apart in [0, 1, 999, 4_999, 5_000, 5_001, 6_000, 60_000] {
        for later in [false, true] {
            let here = Here {
                boottime_ms: 100_000,
                ..here()
            };
            let status = Status {
                boottime_ms: if later {
                    here.boottime_ms + apart
                } else {
                    here.boottime_ms - apart
                },
                ..good()
            };
            let text = serde_json::to_string(&status).unwrap();
            let judged = judge(&text, &here, FRESH_MS).is_ok();
            let theirs = status::Here {
                boot_id: here.boot_id.clone(),
                netns: here.netns,
                boottime_ms: here.boottime_ms,
            };
            let weakness = status.weakness_here(&theirs);
            assert_eq!(judged, weakness.is_none(), "{apart} {later}: {weakness:?}");
            assert_eq!(judged, apart <= FRESH_MS, "{apart} {later}: {weakness:?}");
            *(if judged { &mut accepted } else { &mut refused }) += 1;
        }
    }
    assert_eq!((accepted, refused), (10, 6));
}
