//! What a reader is shown: filters, a line for people, the schema.

use super::super::query::Reader;
use super::super::tail::{Paint, render};
use super::*;

#[test]
fn filters_and_the_last_lines() {
    let (_keep, path) = directory();
    let audit = Audit::open(&path).unwrap();
    for (at, verdict) in [Verdict::Allow, Verdict::Refuse, Verdict::Allow]
        .into_iter()
        .enumerate()
    {
        let mut record = record(&at.to_string());
        record.authority = Some(format!("h{at}.example:443"));
        record.agent = Some("coder".to_owned());
        record.verdict = Some(verdict);
        audit.append(record).unwrap();
    }
    let file = path.join(FILE);
    let found = |filter: &Filter, count| -> Vec<String> {
        let files = Snapshot::at(&file).unwrap();
        let last = Reader::new(&files, filter).last(count).unwrap();
        last.into_iter().map(|(_, record)| record.id).collect()
    };
    assert_eq!(found(&Filter::default(), 2), ["1", "2"]);
    let refused = Filter {
        verdict: Some(Verdict::Refuse),
        ..Filter::default()
    };
    assert_eq!(found(&refused, 9), ["1"]);
    let host = Filter {
        host: Some("h2.example".to_owned()),
        ..Filter::default()
    };
    assert_eq!(found(&host, 9), ["2"]);
    let nobody = Filter {
        agent: Some("other".to_owned()),
        ..Filter::default()
    };
    assert!(found(&nobody, 9).is_empty());
}

#[test]
fn a_line_for_people_shows_what_matters_and_no_control_characters() {
    let mut refusal = Record::new(RecordKind::Refusal, "x", "2026-11-30T08:00:01.004567Z");
    refusal.method = Some("GET".to_owned());
    refusal.authority = Some("evil.example:443".to_owned());
    refusal.path = Some("/\x1b]0;title\x07\u{202e}".to_owned());
    refusal.agent = Some("coder".to_owned());
    refusal.reason = Some("not listed".to_owned());
    let line = render(&refusal, Paint::Plain);
    assert!(
        line.starts_with("08:00:01.004 REFUSE GET evil.example:443/"),
        "{line}"
    );
    assert!(line.ends_with("coder not listed"), "{line}");
    assert!(!line.contains('\x1b') && !line.contains('\x07') && !line.contains('\u{202e}'));
    let mut response = Record::new(RecordKind::Response, "x", "2026-11-30T08:00:01Z");
    response.status = Some(200);
    response.bytes_out = Some(3 * 1024 * 1024 + 200 * 1024);
    response.ms = Some(12);
    assert_eq!(
        render(&response, Paint::Plain),
        "08:00:01Z end     200 out=3.1M 12ms"
    );
    assert!(render(&response, Paint::Colour).contains("\x1b["));
}

#[test]
fn tokens_cost_hold_and_decider_are_shown_where_a_record_has_them() {
    let mut response = Record::new(RecordKind::Response, "x", "2026-11-30T08:00:01Z");
    let without = render(&response, Paint::Plain);
    (response.tokens_in, response.tokens_out) = (Some(1200), Some(34));
    response.cost_microusd = Some(1_500_020);
    response.hold = Some("h-7".to_owned());
    response.decider = Some("ann\x1b".to_owned());
    let line = render(&response, Paint::Plain);
    assert_eq!(
        line.strip_prefix(&without).unwrap().trim_start(),
        "read=1200 wrote=34 cost=$1.500020 hold=h-7 decided-by=ann\\u{1b}"
    );
    let mut request = Record::new(RecordKind::Request, "x", "2026-11-30T08:00:01Z");
    request.facts = Some(policy::record::RecordFacts {
        model: Some("some-model".to_owned()),
        graphql: vec!["mutation createIssue".to_owned()],
        ..policy::record::RecordFacts::default()
    });
    let line = render(&request, Paint::Plain);
    assert!(
        line.ends_with("model=some-model mutation createIssue"),
        "{line}"
    );
}

/// Each filter by itself finds its record among others, and nothing where nobody is like that.
#[test]
fn every_filter_selects_and_no_file_that_can_match_is_left_out() {
    let (_keep, path) = directory();
    let audit = Audit::open(&path).unwrap();
    for number in 1..=3 {
        let mut record = Record::new(
            RecordKind::Refusal,
            &format!("id-{number}"),
            &format!("2026-11-0{number}T08:00:00.000000Z"),
        );
        record.run = Some(policy::grant::RunId::parse(&format!("run-{number}")).unwrap());
        record.agent = Some(format!("agent-{number}"));
        record.ticket = Some(format!("T-{number}"));
        record.authority = Some(format!("h{number}.example:443"));
        record.rule = Some(policy::RuleId::parse(&format!("rule-{number}")).unwrap());
        record.code = Some(policy::Code::ALL[number]);
        record.verdict = Some(if number == 2 {
            Verdict::Refuse
        } else {
            Verdict::Allow
        });
        audit.append(record).unwrap();
    }
    drop(audit);
    let text = |text: &str| Some(text.to_owned());
    let none = Filter::default;
    let filters = [
        (
            "run",
            Filter {
                run: text("run-2"),
                ..none()
            },
        ),
        (
            "agent",
            Filter {
                agent: text("agent-2"),
                ..none()
            },
        ),
        (
            "ticket",
            Filter {
                ticket: text("T-2"),
                ..none()
            },
        ),
        (
            "host",
            Filter {
                host: text("h2.example"),
                ..none()
            },
        ),
        (
            "id",
            Filter {
                id: text("id-2"),
                ..none()
            },
        ),
        (
            "code",
            Filter {
                code: text(policy::Code::ALL[2].as_str()),
                ..none()
            },
        ),
        (
            "rule",
            Filter {
                rule: text("rule-2"),
                ..none()
            },
        ),
        (
            "verdict",
            Filter {
                verdict: Some(Verdict::Refuse),
                ..none()
            },
        ),
        (
            "time",
            Filter {
                since: text("2026-11-02T00:00:00.000000Z"),
                until: text("2026-11-03T00:00:00.000000Z"),
                ..none()
            },
        ),
    ];
    let files = Snapshot::at(&path).unwrap();
    let ask = |filter: &Filter| -> Vec<String> {
        let found = Reader::new(&files, filter).last(9).unwrap().into_iter();
        found.map(|(_, record)| record.id).collect()
    };
    assert_eq!(ask(&none()).len(), 4, "control: with the closing record");
    for (which, filter) in &filters {
        assert_eq!(ask(filter), ["id-2"], "{which}");
    }
    let nobody = text("nobody");
    for filter in [
        Filter {
            run: nobody.clone(),
            ..none()
        },
        Filter {
            agent: nobody.clone(),
            ..none()
        },
        Filter {
            ticket: nobody.clone(),
            ..none()
        },
        Filter {
            host: nobody.clone(),
            ..none()
        },
        Filter {
            id: nobody.clone(),
            ..none()
        },
        Filter {
            code: nobody.clone(),
            ..none()
        },
        Filter {
            rule: nobody.clone(),
            ..none()
        },
        Filter {
            until: text("2026-11-01T00:00:00.000000Z"),
            ..none()
        },
    ] {
        assert!(ask(&filter).is_empty(), "{filter:?}");
    }
}

#[test]
fn the_published_schema_names_exactly_what_is_written() {
    use std::collections::BTreeSet;
    let schema: serde_json::Value =
        serde_json::from_str(include_str!("../../../../docs/audit-record.schema.json")).unwrap();
    let code = policy::Code::ALL[0];
    let full = serde_json::json!({
        "v": 1, "seq": 1, "time": "t", "kind": "request", "id": "i", "run": "r", "ticket": "t",
        "agent": "a", "company": "c", "profile": "p", "entrance": "uid", "peer_uid": 1,
        "scheme": "https", "authority": "a:1", "method": "GET", "path": "/", "verdict": "allow",
        "code": code.as_str(), "rule": "r", "policy_hash": "h", "credential": "c",
        "facts": {"push": [{"ref": "r", "op": "create"}], "graphql": ["f"], "body": {"bytes": 1, "sha256": "s"}, "model": "m", "left_out": 1}, "address": "a", "status": 200,
        "bytes_in": 1, "bytes_out": 1, "ms": 1, "ms_head": 1, "tokens_in": 1, "tokens_out": 1,
        "cost_microusd": 1, "hold": "h", "decider": "d", "reason": "r",
        "log": {"what": "opened", "clean": false},
        "checkpoint": {"statement": "s", "closing": true, "key": "k", "signature": "s"},
        "prev": "p", "hash": "h",
    });
    let record: Record = serde_json::from_value(full).unwrap();
    let written = serde_json::to_value(&record).unwrap();
    let keys = |value: &serde_json::Value| -> BTreeSet<String> {
        value.as_object().unwrap().keys().cloned().collect()
    };
    assert_eq!(keys(&schema["properties"]), keys(&written));
    for part in ["facts", "checkpoint"] {
        let described = &schema["properties"][part]["properties"];
        assert_eq!(keys(described), keys(&written[part]), "{part}");
    }
    assert_eq!(schema["properties"]["v"]["const"], policy::record::VERSION);
    let codes: Vec<&str> = policy::Code::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(schema["$defs"]["code"]["enum"], serde_json::json!(codes));
}
