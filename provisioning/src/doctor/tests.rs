use std::path::Path;

use super::*;
use crate::instance::Record;
use crate::layout::Layout;

fn report(checks: Vec<Finding>) -> Report {
    let instance = Instance {
        layout: Layout::new(Path::new("/srv/x"), "ptx").unwrap(),
        record: Record {
            name: "ptx".to_owned(),
            repo: "acme/web".to_owned(),
            stand_in_port: None,
            gate_port: 3128,
            scope: crate::instance::Scope::Agents,
        },
    };
    Report::of(
        &instance,
        vec!["uid 42 (_apt) was refused".to_owned()],
        checks,
    )
}

fn finding(verdict: Verdict) -> Finding {
    Finding::new("log", verdict, "a fact", "portcullis up")
}

#[test]
fn who_was_refused_is_the_first_line_and_each_fault_has_its_command() {
    let text = report(vec![finding(Verdict::Ok), finding(Verdict::Bad).of("one")]).text();
    assert!(text.starts_with("uid 42 (_apt) was refused\n"), "{text}");
    assert!(text.contains("  ok    log          a fact\n"), "{text}");
    assert!(
        text.contains("  BAD   log          one: a fact\n"),
        "{text}"
    );
    assert_eq!(text.matches("> portcullis up").count(), 1, "{text}");
    assert!(
        text.ends_with("1 well, 0 to know, 1 wrong, 0 could not be told"),
        "{text}"
    );
}

#[test]
fn what_is_known_to_be_wrong_decides_and_then_what_is_not_known() {
    use Verdict::{Bad, Note, Ok, Unknown};
    for (all, code) in [
        (vec![Ok, Note], 0),
        (vec![Ok, Unknown, Note], 2),
        (vec![Ok, Unknown, Bad], 1),
        (vec![], 2),
    ] {
        let report = report(all.iter().copied().map(finding).collect());
        assert_eq!(report.verdict.code(), code, "{all:?}");
    }
    let json: serde_json::Value = serde_json::from_str(&report(vec![finding(Bad)]).json()).unwrap();
    assert_eq!(json["verdict"], "bad");
    assert_eq!(json["checks"][0]["repair"], "portcullis up");
}

#[test]
fn a_part_that_hangs_is_ended() {
    let (code, ..) = bounded(|call| call.args(["sh", "-c", "kill -KILL $$"])).unwrap();
    assert_eq!(code, None);
    let (code, out, _) = bounded(|call| call.args(["echo", "x"])).unwrap();
    assert_eq!((code, out.as_str()), (Some(0), "x\n"));
    assert_eq!(first_line("\nerror: no\n  hint: yes\n"), "no");
}
