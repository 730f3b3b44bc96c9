//! What the kernel refuses, and whether it is what was configured.

use nftables::counters::UserRefusals;
use serde_json::Value;

use super::{Finding, Verdict, bounded, first_line};
use crate::instance::Instance;
use crate::ready;

/// Users beyond these are counted only: the rest is one command away.
const USERS_SHOWN: usize = 8;
const APPLY: &str = "portcullis boundary apply";
const COUNTERS: &str = "portcullis boundary counters";

/// Runs `portcullis-boundary` on this instance.
fn ask(instance: &Instance, words: &[&str]) -> Result<(Option<i32>, String, String), String> {
    let layout = &instance.layout;
    bounded(|call| {
        call.arg(layout.binary("portcullis-boundary"))
            .arg("--config")
            .arg(layout.config("boundary"))
            .args(words.iter().copied())
    })
    .map_err(|problem| crate::output::chain(&problem))
}

/// Sentences that name who was refused, and a finding where they could not be had or where somebody is refused now.
pub(super) fn counters(instance: &Instance) -> (Vec<String>, Option<Finding>) {
    let unknown = |fact: String| {
        let sentence = "whom the boundary refused cannot be told".to_owned();
        let finding = Finding::new("counters", Verdict::Unknown, fact, "portcullis up");
        (vec![sentence], Some(finding))
    };
    let (code, out, err) = match ask(instance, &["counters", "--json"]) {
        Ok(answer) => answer,
        Err(problem) => return unknown(problem),
    };
    match serde_json::from_str(&out) {
        Ok(shown) if code == Some(0) => {
            let (sentences, now) = sentences(&users(&shown));
            let finding = now.then(|| {
                let fact = "somebody was refused in the last minute: see the lines above";
                Finding::new("counters", Verdict::Note, fact, COUNTERS)
            });
            (sentences, finding)
        }
        _ => unknown(first_line(&err)),
    }
}

/// The users of `counters --json`.
fn users(shown: &Value) -> Vec<UserRefusals> {
    let all = shown["users"].as_array();
    all.map(Vec::as_slice)
        .unwrap_or_default()
        .iter()
        .filter_map(|user| {
            Some(UserRefusals {
                uid: u32::try_from(user["uid"].as_u64()?).ok()?,
                user: user["user"].as_str().map(str::to_owned),
                packets: user["packets"].as_u64()?,
                bytes: user["bytes"].as_u64().unwrap_or_default(),
                packets_watched: user["packets_watched"].as_u64(),
                packets_last_minute: user["packets_last_minute"].as_u64(),
            })
        })
        .collect()
}

/// Those who are refused now come first. Whether anybody is.
fn sentences(users: &[UserRefusals]) -> (Vec<String>, bool) {
    let recent = |user: &UserRefusals| user.packets_last_minute.unwrap_or_default();
    let mut order: Vec<&UserRefusals> = users.iter().collect();
    order.sort_by_key(|user| std::cmp::Reverse((recent(user), user.packets)));
    let mut text: Vec<String> = order
        .iter()
        .take(USERS_SHOWN)
        .map(|user| user.sentence())
        .collect();
    if order.is_empty() {
        text.push("the boundary has refused nobody since its rules were loaded".to_owned());
    }
    let more = order.len().saturating_sub(USERS_SHOWN);
    if more > 0 {
        text.push(format!("and {more} more users: {COUNTERS}"));
    }
    (text, users.iter().any(|user| recent(user) > 0))
}

/// The rules themselves, and the watcher's word that others rely on.
pub(super) fn checks(instance: &Instance) -> Vec<Finding> {
    vec![rules(instance), fresh(instance)]
}

fn rules(instance: &Instance) -> Finding {
    match ask(instance, &["verify", "--json"]) {
        Ok((code, out, err)) => judge_rules(code, &out, &err),
        Err(problem) => Finding::new("rules", Verdict::Unknown, problem, APPLY),
    }
}

/// What `verify --json` said; no status when it was not through in time.
fn judge_rules(code: Option<i32>, out: &str, err: &str) -> Finding {
    let found = |verdict, fact: String, repair: &str| Finding::new("rules", verdict, fact, repair);
    let shown = serde_json::from_str::<Value>(out).unwrap_or_default();
    let differences = shown["differences"].as_array();
    let differences = differences.map(Vec::as_slice).unwrap_or_default();
    match (code, differences) {
        (Some(0), _) => match forwarding(&shown) {
            Some((fact, repair)) => found(Verdict::Note, fact, &repair),
            None => found(
                Verdict::Ok,
                "the kernel's rules are the configured ones".to_owned(),
                APPLY,
            ),
        },
        (Some(1), [first, others @ ..]) => {
            let (fact, repair) = difference(first);
            let more = if others.is_empty() {
                ""
            } else {
                " (portcullis boundary verify says all of it)"
            };
            found(Verdict::Bad, format!("{fact}{more}"), &repair)
        }
        (Some(_), _) => found(Verdict::Unknown, first_line(err), APPLY),
        (None, _) => found(
            Verdict::Unknown,
            "they could not be read in time".to_owned(),
            APPLY,
        ),
    }
}

/// What `verify` says where this machine passes on packets for others: either they are refused, or nobody here judges them.
fn forwarding(shown: &Value) -> Option<(String, String)> {
    let mut warnings = shown["warnings"].as_array()?.iter();
    let warning = warnings.find(|warning| warning["kind"] == "forwarding")?;
    let (fact, hint) = warning["text"].as_str()?.split_once("hint:")?;
    Some((fact.trim().to_owned(), hint.trim().to_owned()))
}

/// A difference in a line, and what repairs it: loading the rules again does nothing about another table, or about
/// an agent that could become somebody else.
fn difference(shown: &Value) -> (String, String) {
    let text = |key: &str| shown[key].as_str().unwrap_or_default();
    let (kind, what) = (text("kind"), text("what"));
    let (detail, hint) = match text("detail").split_once("hint:") {
        Some((detail, hint)) => (detail.trim(), Some(hint.trim())),
        None => (text("detail").trim(), None),
    };
    let fact = if detail.is_empty() {
        format!("{kind}: {what}")
    } else {
        format!("{kind}: {what}: {detail}")
    };
    let repair = match (kind, hint) {
        ("missing" | "extra" | "changed", _) => APPLY.to_owned(),
        (_, Some(hint)) => hint.to_owned(),
        // What is to be done about another table's rule is part of the fact.
        ("foreign", None) => "nft -a list ruleset".to_owned(),
        (_, None) => "portcullis boundary verify".to_owned(),
    };
    (fact, repair)
}

fn fresh(instance: &Instance) -> Finding {
    match ready::boundary(instance) {
        Ok(status) => {
            let hash = status.ruleset_hash.get(..12).unwrap_or_default();
            let fact = format!("ruleset {hash} is proven, and the proof is fresh");
            Finding::new("proof", Verdict::Ok, fact, "portcullis up")
        }
        Err(weakness) => Finding::new("proof", Verdict::Bad, weakness, "portcullis up"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_refused_now_is_named_first_and_many_are_cut_to_a_screen() {
        let shown = |uid: u64, user: Option<&str>, all: u64, recent: Option<u64>| {
            serde_json::json!({"uid": uid, "user": user, "packets": all, "bytes": 60 * all,
                               "packets_watched": all, "packets_last_minute": recent})
        };
        let list = serde_json::json!({"users": [
            shown(1500, Some("coder"), 90_000, Some(0)),
            shown(42, Some("_apt"), 1_014, Some(1_014)),
        ]});
        let (text, now) = sentences(&users(&list));
        assert_eq!(
            text[0],
            "uid 42 (_apt) was refused 1,014 times in the last minute, 1,014 times in all"
        );
        assert!(now && text[1].starts_with("uid 1500 (coder)"), "{text:?}");

        let (text, now) = sentences(&[]);
        assert!(!now && text[0].contains("nobody"), "{text:?}");
        let many: Vec<Value> = (0..20).map(|uid| shown(uid, None, 1, None)).collect();
        let (text, now) = sentences(&users(&serde_json::json!({ "users": many })));
        assert_eq!((text.len(), now), (USERS_SHOWN + 1, false));
        assert!(
            text[USERS_SHOWN].starts_with("and 12 more users"),
            "{text:?}"
        );
    }

    #[test]
    fn of_many_differences_the_first_is_shown_with_what_repairs_it() {
        let able =
            "no_new_privs is not set: x\n  hint: start agents with it, and end this one: kill 7";
        let foreign = "after this table has judged, a rule there copies: delete it";
        let cases = [
            ("missing", "", "missing: w", APPLY),
            ("extra", "d", "extra: w: d", APPLY),
            ("changed", "d", "changed: w: d", APPLY),
            (
                "able",
                able,
                "able: w: no_new_privs is not set: x",
                "start agents with it, and end this one: kill 7",
            ),
            (
                "foreign",
                foreign,
                "foreign: w: after this table has judged, a rule there copies: delete it",
                "nft -a list ruleset",
            ),
        ];
        for (kind, detail, fact, repair) in cases {
            let one = serde_json::json!({"kind": kind, "what": "w", "detail": detail});
            let of = |all: &[&Value]| {
                let shown = serde_json::json!({"ok": false, "differences": all}).to_string();
                judge_rules(Some(1), &shown, "")
            };
            let found = of(&[&one]);
            assert_eq!(found.verdict, Verdict::Bad);
            assert_eq!((found.fact.as_str(), found.repair.as_str()), (fact, repair));
            let other = serde_json::json!({"kind": "missing", "what": "o", "detail": ""});
            let found = of(&[&one, &other]);
            assert_eq!(found.repair, repair);
            let more = format!("{fact} (portcullis boundary verify says all of it)");
            assert_eq!(found.fact, more);
        }
        let of = |code, out: &str| judge_rules(code, out, "error: no\n  hint: x\n");
        let well = of(Some(0), r#"{"ok":true,"differences":[]}"#);
        assert_eq!(well.verdict, Verdict::Ok);
        // Other warnings are `verify`'s to tell.
        let warned = |kind: &str| {
            let warning = serde_json::json!({"kind": kind, "text": "so it is\n  hint: do y"});
            let shown = serde_json::json!({"ok": true, "differences": [], "warnings": [warning]});
            of(Some(0), &shown.to_string())
        };
        assert_eq!(warned("foreign").verdict, Verdict::Ok);
        let forwards = warned("forwarding");
        assert_eq!(forwards.verdict, Verdict::Note);
        assert_eq!(forwards.repair, "do y");
        for code in [Some(1), Some(2), None] {
            assert_eq!(of(code, "").verdict, Verdict::Unknown, "{code:?}");
        }
        assert_eq!(of(Some(2), "").fact, "no");
    }
}
