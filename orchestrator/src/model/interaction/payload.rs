//! The form of each kind's question and answer. Pure; what fits here fits a reader's screen.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::Kind;
use crate::model::{Refusal, text};

/// Bytes of a question, and of an answer.
const SIZE: usize = 64 * 1024;
/// Options, items, questions or tasks of one interaction.
const MANY: usize = 200;
/// How many questions, and how many suggested tasks.
const FEW: usize = 50;

/// Whether a question has the form of its kind.
///
/// # Errors
/// 400 naming the field.
pub fn check(kind: Kind, payload: &Value) -> Result<(), Refusal> {
    if !payload.is_object() {
        return Err(Refusal::invalid("payload must be an object"));
    }
    if payload.to_string().len() > SIZE {
        return Err(Refusal::invalid(format!(
            "payload is longer than {SIZE} bytes"
        )));
    }
    if payload
        .get("version")
        .is_some_and(|version| *version != json!(1))
    {
        return Err(Refusal::invalid("payload.version must be 1"));
    }
    match kind {
        Kind::Confirmation => said(payload, "prompt"),
        Kind::Checkbox => {
            said(payload, "prompt")?;
            let options = ids(payload, "options", "id", 1, MANY)?.len();
            let (least, most) = bounds(payload, options);
            if least > most || most > options {
                return Err(Refusal::invalid(
                    "payload.minSelected and maxSelected must fit the options",
                ));
            }
            Ok(())
        }
        Kind::Verdicts => {
            said(payload, "prompt")?;
            ids(payload, "items", "id", 1, MANY).map(|_| ())
        }
        Kind::Questions => {
            ids(payload, "questions", "id", 1, FEW)?;
            for question in list(payload, "questions") {
                said(question, "prompt")?;
                let mode = question.get("selectionMode").and_then(Value::as_str);
                if !matches!(mode, None | Some("single" | "multi" | "text")) {
                    return Err(Refusal::invalid(
                        "selectionMode must be single, multi or text",
                    ));
                }
                ids(question, "options", "id", 0, MANY)?;
            }
            Ok(())
        }
        Kind::Tasks => {
            ids(payload, "tasks", "clientKey", 1, FEW)?;
            for task in list(payload, "tasks") {
                text::title(task["title"].as_str().unwrap_or_default())?;
            }
            Ok(())
        }
    }
}

/// The result of a yes, apart from tickets that it creates.
///
/// # Errors
/// 400 when the choice does not fit the options.
pub fn accepted(kind: Kind, payload: &Value, answer: &Value) -> Result<Value, Refusal> {
    let mut result = json!({ "version": 1, "outcome": "accepted" });
    if kind == Kind::Checkbox {
        let known = ids(payload, "options", "id", 1, MANY)?;
        let chosen = strings(answer, "selectedOptionIds")?;
        let (least, most) = bounds(payload, known.len());
        within(&chosen, &known, "selectedOptionIds")?;
        if !(least..=most).contains(&chosen.len()) {
            let error = format!("between {least} and {most} options must be selected");
            return Err(Refusal::invalid(error));
        }
        result["selectedOptionIds"] = json!(chosen);
    }
    if kind == Kind::Tasks {
        let known = ids(payload, "tasks", "clientKey", 1, FEW)?;
        let chosen = match answer.get("selectedClientKeys") {
            None | Some(Value::Null) => list(payload, "tasks")
                .iter()
                .filter_map(|task| Some(task["clientKey"].as_str()?.to_owned()))
                .collect(),
            Some(_) => strings(answer, "selectedClientKeys")?,
        };
        within(&chosen, &known, "selectedClientKeys")?;
        result["selectedClientKeys"] = json!(chosen);
    }
    Ok(result)
}

/// The result of a no.
///
/// # Errors
/// 400 when a reason is required and missing.
pub fn rejected(payload: &Value, answer: &Value) -> Result<Value, Refusal> {
    let reason = optional(answer, "reason")?;
    if payload["rejectRequiresReason"] == json!(true) && reason.is_none() {
        return Err(Refusal::invalid("reason must not be empty"));
    }
    Ok(json!({ "version": 1, "outcome": "rejected", "reason": reason }))
}

/// The answers to questions.
///
/// # Errors
/// 400 when they do not fit the questions.
pub fn answered(payload: &Value, answer: &Value) -> Result<Value, Refusal> {
    let known = ids(payload, "questions", "id", 1, FEW)?;
    let answers = list(answer, "answers");
    let given = ids(answer, "answers", "questionId", 0, FEW)?;
    within(
        &given.iter().cloned().collect::<Vec<_>>(),
        &known,
        "answers",
    )?;
    for question in list(payload, "questions") {
        let id = question["id"].as_str().unwrap_or_default();
        let found = answers
            .iter()
            .find(|answer| answer["questionId"] == json!(id));
        let required = question["required"] == json!(true);
        let Some(found) = found else {
            if required {
                return Err(Refusal::invalid(format!(
                    "question `{id}` must be answered"
                )));
            }
            continue;
        };
        let chosen = match found.get("optionIds") {
            Some(_) => strings(found, "optionIds")?,
            None => Vec::new(),
        };
        within(
            &chosen,
            &ids(question, "options", "id", 0, MANY)?,
            "optionIds",
        )?;
        let own = optional(found, "text")?.or(optional(found, "otherText")?);
        if required && chosen.is_empty() && own.is_none() {
            return Err(Refusal::invalid(format!(
                "question `{id}` must be answered"
            )));
        }
        if chosen.len() > 1 && question["selectionMode"] == "single" {
            return Err(Refusal::invalid(format!(
                "question `{id}` takes one option"
            )));
        }
    }
    let summary = optional(answer, "summaryMarkdown")?;
    let result = json!({ "version": 1, "outcome": "answered", "answers": answers,
                         "summaryMarkdown": summary });
    if result.to_string().len() > SIZE {
        return Err(Refusal::invalid(format!(
            "the answer is longer than {SIZE} bytes"
        )));
    }
    Ok(result)
}

/// The verdicts so far with more of them. `complete` once every item has one.
///
/// # Errors
/// 400 when they do not fit the items, 409 when an item has its verdict already.
pub fn judged(
    payload: &Value,
    before: Option<&Value>,
    answer: &Value,
    by: &Value,
) -> Result<Value, Refusal> {
    let known = ids(payload, "items", "id", 1, MANY)?;
    let field = if answer.get("verdicts").is_some() {
        "verdicts"
    } else {
        "items"
    };
    let mut items = before.map_or_else(Vec::new, |before| list(before, "items").to_vec());
    let more = list(answer, field);
    if more.is_empty() {
        return Err(Refusal::invalid("verdicts must not be empty"));
    }
    for one in more {
        let id = one["id"]
            .as_str()
            .or_else(|| one["itemId"].as_str())
            .unwrap_or_default();
        if !known.contains(id) {
            return Err(Refusal::invalid(format!("`{id}` is no item")));
        }
        if items.iter().any(|item| item["id"] == json!(id)) {
            let error = format!("item `{id}` has its verdict already");
            return Err(Refusal::conflict("verdict_exists", error));
        }
        let verdict = match one["verdict"].as_str() {
            Some("approve" | "accept") => "approve",
            Some("reject") => "reject",
            Some("defer") => "defer",
            _ => return Err(Refusal::invalid("verdict must be approve, reject or defer")),
        };
        let mut item = json!({ "id": id, "verdict": verdict, "reason": optional(one, "reason")? });
        for (key, value) in by.as_object().into_iter().flatten() {
            item[key] = value.clone();
        }
        items.push(item);
    }
    let complete = items.len() == known.len();
    Ok(json!({ "version": 1, "outcome": "resolved", "complete": complete, "items": items }))
}

fn said(value: &Value, field: &str) -> Result<(), Refusal> {
    let text = value[field].as_str().unwrap_or_default();
    if text.trim().is_empty() {
        return Err(Refusal::invalid(format!(
            "payload: {field} must not be empty"
        )));
    }
    Ok(())
}

fn list<'v>(value: &'v Value, field: &str) -> &'v [Value] {
    value[field].as_array().map_or(&[], Vec::as_slice)
}

/// The keys of a list's entries: between `least` and `most`, each a short text, each once.
fn ids(
    value: &Value,
    field: &str,
    key: &str,
    least: usize,
    most: usize,
) -> Result<HashSet<String>, Refusal> {
    let all = list(value, field);
    let wrong_type = value
        .get(field)
        .is_some_and(|it| !it.is_array() && !it.is_null());
    if wrong_type || !(least..=most).contains(&all.len()) {
        return Err(Refusal::invalid(format!(
            "{field} must have {least} to {most} entries"
        )));
    }
    let mut found = HashSet::new();
    for entry in all {
        let id = text::line(key, entry[key].as_str().unwrap_or_default(), text::NAME)?;
        if Some(id.as_str()) != entry[key].as_str() || !found.insert(id) {
            return Err(Refusal::invalid(format!(
                "{field}: each {key} must be there once"
            )));
        }
    }
    Ok(found)
}

fn strings(value: &Value, field: &str) -> Result<Vec<String>, Refusal> {
    let wrong = || Refusal::invalid(format!("{field} must be a list of ids"));
    let all = value[field].as_array().ok_or_else(wrong)?;
    all.iter()
        .map(|entry| entry.as_str().map(str::to_owned).ok_or_else(wrong))
        .collect()
}

fn within(chosen: &[String], known: &HashSet<String>, field: &str) -> Result<(), Refusal> {
    let once: HashSet<&String> = chosen.iter().collect();
    match chosen.iter().find(|id| !known.contains(*id)) {
        Some(id) => Err(Refusal::invalid(format!("{field}: `{id}` is unknown"))),
        None if once.len() < chosen.len() => Err(Refusal::invalid(format!(
            "{field}: each id may be there once"
        ))),
        None => Ok(()),
    }
}

fn bounds(payload: &Value, options: usize) -> (usize, usize) {
    let number = |field: &str| {
        let number = payload[field].as_u64()?;
        usize::try_from(number).ok()
    };
    (
        number("minSelected").unwrap_or(0),
        number("maxSelected").unwrap_or(options),
    )
}

fn optional(value: &Value, field: &str) -> Result<Option<String>, Refusal> {
    match &value[field] {
        Value::Null => Ok(None),
        Value::String(text) if text.len() > 4000 => Err(Refusal::invalid(format!(
            "{field} is longer than 4000 bytes"
        ))),
        Value::String(text) if text.trim().is_empty() => Ok(None),
        Value::String(text) => Ok(Some(text.clone())),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            Err(Refusal::invalid(format!("{field} must be text")))
        }
    }
}

#[cfg(test)]
mod tests;
