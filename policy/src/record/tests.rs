use proptest::prelude::*;

use super::*;

#[test]
fn a_full_record_round_trips_and_keeps_its_shape() {
    let grant = Grant::new(
        "acme",
        "coder",
        Some("WEB-7"),
        RunId::parse("4b1e").unwrap(),
        "default",
    )
    .unwrap();
    let mut record = Record::new(RecordKind::Request, "r-7", "2026-11-30T08:00:00Z").of(&grant);
    record.seq = 7;
    record.entrance = Some(Entrance::RunSocket);
    record.peer_uid = Some(231_072);
    record.authority = Some(String::from("github.com:443"));
    record.verdict = Some(Verdict::Allow);
    record.rule = Some(RuleId::parse("github-github.com-1").unwrap());
    record.credential = Some(CredentialName::parse("github").unwrap());
    record.facts = Some(RecordFacts {
        push: vec![PushFact {
            name: String::from("refs/heads/x"),
            op: RefOp::Create,
        }],
        ..RecordFacts::default()
    });
    let json = serde_json::to_string(&record).unwrap();
    assert_eq!(
        json,
        "{\"v\":1,\"seq\":7,\"time\":\"2026-11-30T08:00:00Z\",\"kind\":\"request\",\"id\":\"r-7\",\
         \"run\":\"4b1e\",\"ticket\":\"WEB-7\",\"agent\":\"coder\",\"company\":\"acme\",\
         \"profile\":\"default\",\"entrance\":\"run_socket\",\"peer_uid\":231072,\
         \"authority\":\"github.com:443\",\"verdict\":\"allow\",\"rule\":\"github-github.com-1\",\
         \"credential\":\"github\",\"facts\":{\"push\":[{\"ref\":\"refs/heads/x\",\"op\":\"create\"}]}}"
    );
    assert_eq!(serde_json::from_str::<Record>(&json).unwrap(), record);
}

#[test]
fn any_record_can_be_made_to_fit_into_a_line() {
    for text in ["\u{1}", "\"", "\u{e9}", "x"] {
        let long = text.repeat(2_000_000);
        let mut record = Record::new(RecordKind::Request, &long, &long);
        for field in [
            &mut record.ticket,
            &mut record.agent,
            &mut record.company,
            &mut record.profile,
            &mut record.scheme,
            &mut record.authority,
            &mut record.method,
            &mut record.path,
            &mut record.policy_hash,
            &mut record.address,
            &mut record.hold,
            &mut record.decider,
            &mut record.reason,
        ] {
            *field = Some(long.clone());
        }
        record.facts = Some(RecordFacts {
            push: vec![
                PushFact {
                    name: long.clone(),
                    op: RefOp::Create,
                };
                3
            ],
            graphql: vec![long.clone(); 4],
            body: None,
            model: Some(long.clone()),
            left_out: 5,
        });
        record.clip();
        assert!(serde_json::to_string(&record).unwrap().len() < 512 * 1024);
        let facts = record.facts.as_ref().unwrap();
        assert_eq!((facts.push.len(), facts.left_out), (0, 12));
        assert!(record.path.as_ref().unwrap().ends_with("..."));
        record.strip();
        assert!(serde_json::to_string(&record).unwrap().len() < 16 * 1024);
    }
    let mut short = Record::new(RecordKind::Refusal, "r", "t");
    short.path = Some("/x".to_owned());
    let before = short.clone();
    short.clip();
    assert_eq!(short, before, "control: what is short stays");
}

#[test]
fn an_empty_record_has_only_what_every_line_has() {
    let mut record = Record::new(RecordKind::Refusal, "r", "t");
    record.code = Some(Code::PathNotAllowed);
    assert_eq!(
        serde_json::to_string(&record).unwrap(),
        r#"{"v":1,"seq":0,"time":"t","kind":"refusal","id":"r","code":"path_not_allowed"}"#
    );
}

#[test]
fn targets_keep_their_shape_and_lose_their_values() {
    for (target, want) in [
        ("/a/b", "/a/b"),
        ("/a?token=s3cret&x=1", "/a?token=...&x=..."),
        ("/a?s3cret", "/a?..."),
        ("/a?", "/a?"),
        ("/a?x=", "/a?x=..."),
        ("/a?x=1=2?3", "/a?x=..."),
        ("/a?&x=1", "/a?&x=..."),
        ("/a#s3cret", "/a"),
        (
            "http://me:s3cret@x.example/a?b=c",
            "http://...@x.example/a?b=...",
        ),
        ("me:s3cret@x.example:443", "...@x.example:443"),
        ("http://x.example/@a", "http://x.example/@a"),
        ("/u@v:w/x", "/u@v:w/x"),
        ("/a\n\u{1b}[31m\u{e9}", "/a%0A%1B[31m%C3%A9"),
        ("/a?\n=1", "/a?%0A=..."),
        ("", ""),
    ] {
        assert_eq!(redact_target(target), want, "{target:?}");
    }
    assert!(redact_target(&"/a".repeat(9_000)).len() < 2_100);
}

proptest! {
    #[test]
    fn redaction_is_printable_and_forgets_values(
        path in "\\PC{0,20}", name in "[a-z]{1,5}", secret in "[A-Z]{12}",
    ) {
        let out = redact_target(&format!("/{path}?{name}={secret}"));
        prop_assert!(out.bytes().all(|byte| byte.is_ascii_graphic()));
        prop_assert!(!out.contains(&secret));
    }
}
