//! A timeline as text: one line per item, comments indented beneath theirs.

use std::fmt::Write as _;

use serde_json::Value;

use crate::model::text::printable;

/// The whole timeline.
#[must_use]
pub fn text(timeline: &Value) -> String {
    let issue = &timeline["issue"];
    let mut out = format!(
        "{} {} [{}]\n",
        word(&issue["identifier"]),
        word(&issue["title"]),
        word(&issue["status"])
    );
    for item in timeline["items"].as_array().into_iter().flatten() {
        // After each of an agent's own comments: true, and no news. JSON has it.
        if item["facts"]["gate"] == "not_own_write" {
            continue;
        }
        let at = word(&item["at"]);
        let clock = at.get(11..23).unwrap_or(&at).to_owned();
        let (line, beneath) = describe(item);
        let actor = word(&item["actor"]);
        let run = match item["runId"].as_str() {
            Some(run) if item["kind"] == "run.claimed" => format!(" (run {run})"),
            // The random end tells runs apart; their beginning is the time.
            Some(run) => format!(
                " (run ..{})",
                run.get(run.len().saturating_sub(6)..).unwrap_or(run)
            ),
            None => String::new(),
        };
        // Writing to a String cannot fail.
        let _infallible = writeln!(out, "{clock}  {actor:<18} {line}{run}");
        for text in beneath.lines() {
            let _infallible = writeln!(out, "              | {text}");
        }
    }
    for note in timeline["notes"].as_array().into_iter().flatten() {
        let _infallible = writeln!(out, "note: {}", word(note));
    }
    out
}

fn describe(item: &Value) -> (String, String) {
    let facts = &item["facts"];
    let kind = word(&item["kind"]);
    let reason = || word(&facts["reason"]);
    let line = match kind.as_str() {
        "ticket.created" => format!("created the ticket, {}", word(&facts["status"])),
        "ticket.changed" => format!("changed {}", changes(&facts["changes"])),
        "ticket.checked_out" => "checked the ticket out".to_owned(),
        "ticket.released" => "released the ticket".to_owned(),
        "ticket.parked" => format!("parked the ticket: {}", word(&facts["why"])),
        "comment.written" => "commented".to_owned(),
        "document.written" => format!(
            "wrote document {} revision {}",
            word(&facts["key"]),
            facts["number"]
        ),
        "wake.queued" => format!("woke the agent: {}", reason()),
        "wake.merged" => format!("wake merged into the one that waits: {}", reason()),
        "wake.refused" => format!("no wake ({}): {}", reason(), word(&facts["fact"])),
        "wake.dropped" => format!("wake dropped: {}", word(&facts["why"])),
        "run.claimed" => format!("claimed a run for {}", reason()),
        "run.started" => "run started in its container".to_owned(),
        "run.cancel_asked" => "asked to stop the run".to_owned(),
        "run.ending" => format!(
            "run ending: {}; its token is dead",
            word(&facts["outcome"]["reason"])
        ),
        "run.ended" => format!("run {}: {}", word(&facts["status"]), reason()),
        "egress.allowed" => egress("allowed", facts),
        "egress.event" => reason(),
        "egress.refused" => egress("REFUSED", facts),
        _ => format!("{kind} {facts}"),
    };
    let beneath = facts["body"].as_str().map(printable).unwrap_or_default();
    (printable(&line).replace('\n', " "), beneath)
}

fn egress(verdict: &str, facts: &Value) -> String {
    let mut line = format!(
        "{verdict} {} {}{}",
        word(&facts["method"]),
        word(&facts["authority"]),
        word(&facts["path"])
    );
    let parts = [
        ("code", "code"),
        ("rule", "rule"),
        ("credential", "credential"),
        ("status", "status"),
        ("bytes_in", "sent"),
        ("bytes_out", "received"),
        ("facts", "facts"),
        ("reason", "reason"),
    ];
    for (field, name) in parts {
        if !facts[field].is_null() {
            let _infallible = write!(line, " {name}={}", word(&facts[field]));
        }
    }
    line
}

fn changes(changes: &Value) -> String {
    let list = changes.as_object().into_iter().flatten();
    let list: Vec<String> = list
        .map(|(field, change)| {
            let (from, to) = (word(&change["from"]), word(&change["to"]));
            match field.as_str() {
                "description" => "description".to_owned(),
                _ => format!("{field} {from} -> {to}"),
            }
        })
        .collect();
    list.join(", ")
}

fn word(value: &Value) -> String {
    match value {
        Value::String(text) => printable(text).replace('\n', " "),
        Value::Null => "-".to_owned(),
        other => printable(&other.to_string()),
    }
}
