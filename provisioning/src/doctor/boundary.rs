//! What the kernel refuses, and whether it is what was configured.

use nftables::counters::UserRefusals;
use serde_json::Value;

use super::{Finding, Verdict, bounded, first_line};
use crate::instance::Instance;
use crate::ready;

/// Users beyond these are counted only: the rest is one command away.
const USERS_SHOWN: usize = 8;
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
    let repair = "portcullis boundary apply";
    let found = |verdict, fact: String| Finding::new("rules", verdict, fact, repair);
    match ask(instance, &["verify"]) {
        Ok((Some(0), _, _)) => found(
            Verdict::Ok,
            "the kernel's rules are the configured ones".to_owned(),
        ),
        Ok((Some(1), out, err)) => {
            let said = if out.trim().is_empty() { err } else { out };
            found(Verdict::Bad, differences(&said))
        }
        Ok((Some(_), _, err)) => found(Verdict::Unknown, first_line(&err)),
        Ok((None, _, _)) => found(
            Verdict::Unknown,
            "they could not be read in time".to_owned(),
        ),
        Err(problem) => found(Verdict::Unknown, problem),
    }
}

/// The first difference, and how many lines say more.
fn differences(said: &str) -> String {
    let lines = said.lines().filter(|line| !line.trim().is_empty()).count();
    let more = match lines {
        0 | 1 => String::new(),
        _ => " (portcullis boundary verify says all of it)".to_owned(),
    };
    format!("{}{more}", first_line(said))
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
    fn of_many_differences_the_first_is_shown() {
        assert_eq!(differences("missing: x\n"), "missing: x");
        let shown = differences("missing: x\nextra: y\n");
        assert!(shown.starts_with("missing: x (portcullis"), "{shown}");
    }
}
