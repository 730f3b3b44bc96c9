use serde_json::json;

use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[test]
fn a_clock_behind_what_was_written_or_off_from_a_far_end_is_bad() {
    let now = at("2026-11-30T12:00:00Z");
    let written = |when: &str| vec![("the log".to_owned(), at(when))];
    let none = BTreeMap::new();
    let good = judge_clock(now, &written("2026-11-30T11:59:59Z"), &none);
    assert_eq!(good.verdict, Verdict::Ok, "{}", good.fact);
    let back = judge_clock(now, &written("2026-12-01T12:00:00Z"), &none);
    assert_eq!(back.verdict, Verdict::Bad);
    assert!(
        back.fact
            .contains("86400 s behind the time at which the log"),
        "{}",
        back.fact
    );
    for (ahead, verdict) in [(2, Verdict::Ok), (300, Verdict::Bad), (-300, Verdict::Bad)] {
        let far = BTreeMap::from([("github".to_owned(), ahead)]);
        let found = judge_clock(now, &[], &far);
        assert_eq!(found.verdict, verdict, "{ahead}: {}", found.fact);
    }
}

#[test]
fn an_authority_that_ends_soon_needs_a_successor() {
    let view = |days: i64, next: Value| {
        let expires = "2027-01-01T00:00:00Z";
        Ok(json!({"current": {"name": "a", "expires": expires, "days_left": days}, "next": next}))
    };
    let next = json!({"name": "b", "from": "2026-12-08T00:00:00Z"});
    assert_eq!(authority(view(300, Value::Null)).verdict, Verdict::Ok);
    assert_eq!(authority(view(10, next)).verdict, Verdict::Ok);
    assert_eq!(authority(view(10, Value::Null)).verdict, Verdict::Bad);
    assert_eq!(authority(view(-1, Value::Null)).verdict, Verdict::Bad);
    assert_eq!(authority(Err("gone".to_owned())).verdict, Verdict::Unknown);
}

#[test]
fn what_ails_a_credential_is_told_apart() {
    let of = |credential: Value| judge("github", &credential, "replace it");
    let canary = |word: &str| json!({"verdict": word, "text": "t"});
    let (verdict, fact, _) = of(json!({"ok": true, "canary": canary("works")}));
    assert_eq!((verdict, fact.as_str()), (Verdict::Ok, "works: t"));
    for word in ["format", "scope", "expired", "refused"] {
        let (verdict, fact, repair) = of(json!({"ok": true, "canary": canary(word)}));
        assert_eq!(
            (verdict, repair.as_str()),
            (Verdict::Bad, "replace it"),
            "{fact}"
        );
        assert!(fact.contains(word));
    }
    for word in ["unknown", "proves_nothing"] {
        let (verdict, ..) = of(json!({"ok": true, "canary": canary(word)}));
        assert_eq!(verdict, Verdict::Unknown, "{word}");
    }
    let (verdict, fact, _) = of(json!({"ok": false, "problem": "empty\n  hint: x"}));
    assert_eq!((verdict, fact.as_str()), (Verdict::Bad, "empty"));
    let sick = json!({"by": "api.github.com", "since": "s", "refusals": 3});
    let (verdict, fact, _) = of(json!({"ok": true, "sick": sick, "canary": canary("works")}));
    assert_eq!(verdict, Verdict::Bad);
    assert_eq!(
        fact,
        "sick: api.github.com answers 401 to it since s (3 times)"
    );
    let (verdict, ..) = of(json!({"ok": true, "problem": "shrank", "canary": canary("works")}));
    assert_eq!(verdict, Verdict::Bad, "an older value is in use");
    let (verdict, _, repair) = of(json!({"ok": true}));
    assert_eq!(verdict, Verdict::Note);
    assert!(repair.contains("[credential.github]"), "{repair}");
}

#[test]
fn what_keeps_the_gate_from_serving_comes_before_what_it_warns_of() {
    let well = json!({"policies": {"default": {"stale": null}}, "boundary": {"ok": true},
                      "audit": {"ok": true}, "warnings": [], "runs": 0});
    let with = |key: &str, value: Value| {
        let mut status = well.clone();
        status[key] = value;
        gate(&Ok(status)).verdict
    };
    assert_eq!(gate(&Ok(well.clone())).verdict, Verdict::Ok);
    assert_eq!(gate(&Err("cannot reach".to_owned())).verdict, Verdict::Bad);
    let stale = json!({"default": {"path": "p", "stale": {"since": "s"}}});
    assert_eq!(with("policies", stale), Verdict::Bad);
    assert_eq!(with("boundary", json!({"problem": "stale"})), Verdict::Bad);
    assert_eq!(with("audit", json!({"ok": false})), Verdict::Bad);
    assert_eq!(with("warnings", json!(["nobody signs"])), Verdict::Note);
    // These have a line of their own.
    let own = json!(["credential x is refused by y since z"]);
    assert_eq!(with("warnings", own), Verdict::Ok);
}
