//! Each kind's form, with what does not fit beside what does.

use super::*;

#[test]
fn questions_fit_their_kind() {
    let option = json!([{ "id": "a", "label": "A" }, { "id": "b", "label": "B" }]);
    let twice = json!([{ "id": "a" }, { "id": "a" }]);
    let good = [
        (Kind::Confirmation, json!({ "version": 1, "prompt": "go?" })),
        (
            Kind::Checkbox,
            json!({ "prompt": "which?", "options": option, "maxSelected": 1 }),
        ),
        (
            Kind::Verdicts,
            json!({ "prompt": "judge", "items": option }),
        ),
        (
            Kind::Questions,
            json!({ "questions": [{ "id": "q", "prompt": "which?", "options": option }] }),
        ),
        (
            Kind::Tasks,
            json!({ "tasks": [{ "clientKey": "t", "title": "Do it" }] }),
        ),
    ];
    for (kind, payload) in good {
        assert!(check(kind, &payload).is_ok(), "{kind}");
        let mut newer = payload.clone();
        newer["version"] = json!(2);
        assert_eq!(check(kind, &newer).unwrap_err().status, 400, "{kind}");
    }
    for (kind, payload) in [
        (Kind::Confirmation, json!({})),
        (Kind::Confirmation, json!([])),
        (Kind::Confirmation, json!({ "prompt": "x".repeat(70_000) })),
        (Kind::Checkbox, json!({ "prompt": "x", "options": [] })),
        (Kind::Checkbox, json!({ "prompt": "x", "options": twice })),
        (
            Kind::Checkbox,
            json!({ "prompt": "x", "options": option, "minSelected": 3 }),
        ),
        (
            Kind::Checkbox,
            json!({ "prompt": "x", "options": vec![json!({ "id": "a" }); 201] }),
        ),
        (Kind::Verdicts, json!({ "prompt": "x", "items": "all" })),
        (Kind::Questions, json!({ "questions": [{ "id": "q" }] })),
        (Kind::Questions, json!({ "questions": [] })),
        (
            Kind::Tasks,
            json!({ "tasks": [{ "clientKey": "t", "title": " " }] }),
        ),
    ] {
        assert_eq!(
            check(kind, &payload).unwrap_err().status,
            400,
            "{kind} {payload}"
        );
    }
}

#[test]
fn answers_fit_their_question() {
    let options = json!([{ "id": "a" }, { "id": "b" }]);
    let choice = json!({ "prompt": "x", "options": options, "minSelected": 1, "maxSelected": 1 });
    for (ids, fits) in [
        (json!(["a"]), true),
        (json!([]), false),
        (json!(["a", "b"]), false),
        (json!(["c"]), false),
        (json!("a"), false),
        (Value::Null, false),
    ] {
        let answer = json!({ "selectedOptionIds": ids });
        assert_eq!(
            accepted(Kind::Checkbox, &choice, &answer).is_ok(),
            fits,
            "{ids}"
        );
    }
    let asked = json!({ "questions": [
        { "id": "q", "required": true, "selectionMode": "single", "options": options }] });
    for (answers, fits) in [
        (json!([{ "questionId": "q", "optionIds": ["a"] }]), true),
        (json!([{ "questionId": "q", "text": "neither" }]), true),
        (
            json!([{ "questionId": "q", "optionIds": ["a", "b"] }]),
            false,
        ),
        (json!([{ "questionId": "q", "optionIds": ["z"] }]), false),
        (json!([{ "questionId": "q" }]), false),
        (json!([{ "questionId": "r", "text": "x" }]), false),
        (json!([]), false),
    ] {
        let answer = json!({ "answers": answers });
        assert_eq!(answered(&asked, &answer).is_ok(), fits, "{answers}");
    }
    let no = json!({ "rejectRequiresReason": true });
    assert!(rejected(&no, &json!({ "reason": " " })).is_err());
    assert!(rejected(&no, &json!({ "reason": "late" })).is_ok());
    assert!(rejected(&json!({}), &json!({})).is_ok());
}

#[test]
fn verdicts_add_up_and_none_is_given_twice() {
    let asked = json!({ "items": [{ "id": "a" }, { "id": "b" }] });
    let by = json!({ "resolvedByUserId": "ann" });
    let one = |id: &str, verdict: &str| json!({ "verdicts": [{ "id": id, "verdict": verdict }] });
    let first = judged(&asked, None, &one("a", "approve"), &by).unwrap();
    assert_eq!(first["complete"], json!(false));
    assert_eq!(
        judged(&asked, Some(&first), &one("a", "reject"), &by)
            .unwrap_err()
            .status,
        409
    );
    for bad in [
        one("c", "approve"),
        one("b", "maybe"),
        json!({ "verdicts": [] }),
    ] {
        assert_eq!(
            judged(&asked, Some(&first), &bad, &by).unwrap_err().status,
            400,
            "{bad}"
        );
    }
    let both = judged(&asked, Some(&first), &one("b", "reject"), &by).unwrap();
    assert_eq!(both["complete"], json!(true));
    assert_eq!(both["items"][1]["resolvedByUserId"], "ann");
}
