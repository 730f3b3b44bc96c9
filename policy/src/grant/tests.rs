use super::*;

#[test]
fn run_ids_are_safe_as_directory_names() {
    for good in ["a", "4b1e2f00-1d3c-4a4b-9c9d-000000000000", "A-1"] {
        assert_eq!(RunId::parse(good).unwrap().as_str(), good);
    }
    let long = "a".repeat(65);
    for bad in [
        "",
        "-a",
        ".",
        "..",
        "a/b",
        "a b",
        "a\0",
        "\u{e9}",
        long.as_str(),
    ] {
        assert!(RunId::parse(bad).is_err(), "{bad:?}");
        assert!(
            serde_json::from_value::<RunId>(serde_json::json!(bad)).is_err(),
            "{bad:?}"
        );
    }
}

#[test]
fn grants_are_checked_when_they_arrive() {
    let json = |company: &str| serde_json::json!({"company": company, "agent": "a", "run": "r", "profile": "default"});
    let grant: Grant = serde_json::from_value(json("acme")).unwrap();
    assert_eq!(grant.ticket, None);
    assert_eq!(serde_json::to_value(&grant).unwrap(), json("acme"));
    let long = "a".repeat(129);
    for bad in ["", " a", "a\n", "\u{e9}", long.as_str()] {
        assert!(
            serde_json::from_value::<Grant>(json(bad)).is_err(),
            "{bad:?}"
        );
    }
    let mut unknown = json("acme");
    unknown["role"] = serde_json::json!("admin");
    assert!(serde_json::from_value::<Grant>(unknown).is_err());
}

#[test]
fn uid_ranges_never_hold_root_or_nobody() {
    let range = PeerUids::new(231_072, 1_024).unwrap();
    assert!(range.contains(231_072) && range.contains(232_095));
    assert!(!range.contains(231_071) && !range.contains(232_096) && !range.contains(0));
    for (first, count) in [
        (0, 1),
        (0, 70_000),
        (1_000, 0),
        (65_000, 1_024),
        (u32::MAX, 1),
        (u32::MAX - 1, 4),
    ] {
        assert!(PeerUids::new(first, count).is_err(), "{first}+{count}");
        let json = serde_json::json!({"first": first, "count": count});
        assert!(serde_json::from_value::<PeerUids>(json).is_err());
    }
    assert!(range.overlaps(&PeerUids::new(232_095, 2).unwrap()));
    assert!(!range.overlaps(&PeerUids::new(232_096, 2).unwrap()));
}

#[test]
fn open_run_round_trips_and_never_shows_its_token() {
    let open = OpenRun {
        grant: Grant::new("acme", "a", None, RunId::parse("r").unwrap(), "default").unwrap(),
        epoch: 3,
        peer_uids: PeerUids::new(231_072, 1_024).unwrap(),
        token_sha256: Some(TokenDigest::new([0xa5; 32])),
        lease_seconds: 60,
        board_token: Some(String::from("s3cret")),
        policy: None,
    };
    assert!(!format!("{open:?}").contains("s3cret"));
    let json = serde_json::to_string(&open).unwrap();
    let again: OpenRun = serde_json::from_str(&json).unwrap();
    assert_eq!(again.board_token.as_deref(), Some("s3cret"));
    assert_eq!(again.epoch, 3);
    assert_eq!(again.token_sha256, open.token_sha256);
}

#[test]
fn a_run_may_have_a_digest_in_place_of_uids_and_nothing_else_is_one() {
    let grant = Grant::new("acme", "a", None, RunId::parse("r").unwrap(), "default").unwrap();
    let digest = "a5".repeat(32);
    let json = serde_json::json!({
        "grant": grant, "epoch": 1, "lease_seconds": 60, "token_sha256": digest,
    });
    let open: OpenRun = serde_json::from_value(json.clone()).unwrap();
    assert!(open.peer_uids.is_nobody() && !open.peer_uids.contains(0));
    let stated = open.token_sha256.unwrap();
    assert_eq!(stated.to_string(), digest);
    assert!(stated.is(&TokenDigest::parse(&digest.to_uppercase()).unwrap()));
    assert!(
        serde_json::to_value(&open)
            .unwrap()
            .get("peer_uids")
            .is_none()
    );
    for last in [0, 31] {
        let mut bytes = [0xa5; 32];
        bytes[last] ^= 1;
        assert!(!stated.is(&TokenDigest::new(bytes)), "{last}");
    }
    for bad in [
        "",
        "a5",
        &"g5".repeat(32),
        &"a5".repeat(33),
        &"é".repeat(32),
    ] {
        let mut json = json.clone();
        json["token_sha256"] = bad.into();
        assert!(serde_json::from_value::<OpenRun>(json).is_err(), "{bad}");
    }
}
