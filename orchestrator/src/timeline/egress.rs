//! The gate's audit records of a run as timeline items: one per exchange, refusals as they are.

use serde_json::{Value, json};

use crate::model::time::{self, Millis};

/// Joins each request with its response (same `id`) and keeps refusals and events.
pub(super) fn items(records: &[Value], run: &str) -> Vec<(Millis, Value)> {
    let mut items: Vec<(Millis, Value)> = Vec::new();
    for record in records {
        let at = record["time"].as_str().and_then(time::parse).unwrap_or(0);
        match record["kind"].as_str().unwrap_or_default() {
            "response" => {
                let open = items.iter_mut().rev().find(|(_, item)| {
                    item["facts"]["id"] == record["id"] && item["kind"] == "egress.allowed"
                });
                if let Some((_, item)) = open {
                    for field in ["status", "bytes_in", "bytes_out", "ms", "reason"] {
                        if !record[field].is_null() {
                            item["facts"][field] = record[field].clone();
                        }
                    }
                }
            }
            "request" => items.push((at, item("egress.allowed", record, run, at))),
            "refusal" => items.push((at, item("egress.refused", record, run, at))),
            _ => items.push((at, item("egress.event", record, run, at))),
        }
    }
    items
}

fn item(kind: &str, record: &Value, run: &str, at: Millis) -> Value {
    let mut facts = json!({});
    for field in [
        "id",
        "verdict",
        "code",
        "rule",
        "credential",
        "scheme",
        "authority",
        "method",
        "path",
        "facts",
        "status",
        "bytes_in",
        "bytes_out",
        "ms",
        "reason",
        "policy_hash",
    ] {
        if !record[field].is_null() {
            facts[field] = record[field].clone();
        }
    }
    json!({ "at": time::iso(at), "kind": kind, "actor": "gate", "runId": run, "facts": facts })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_and_its_response_are_one_item_and_a_refusal_is_one() {
        let records = [
            json!({ "kind": "request", "id": "1", "time": "2026-11-30T08:00:00Z", "verdict": "allow",
                    "rule": "r", "credential": "github", "authority": "h:443", "method": "GET" }),
            json!({ "kind": "refusal", "id": "2", "time": "2026-11-30T08:00:01Z", "verdict": "refuse",
                    "code": "destination_not_listed" }),
            json!({ "kind": "response", "id": "1", "time": "2026-11-30T08:00:02Z", "status": 200,
                    "bytes_in": 5 }),
        ];
        let items = items(&records, "run");
        assert_eq!(items.len(), 2);
        assert_eq!(items[0].1["facts"]["status"], 200);
        assert_eq!(items[0].1["facts"]["credential"], "github");
        assert_eq!(items[1].1["kind"], "egress.refused");
    }
}
