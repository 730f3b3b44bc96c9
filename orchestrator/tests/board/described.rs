//! What the document says of answers is what the routes answer: every route that reads, with one of
//! everything there, and the refusals.

use orchestrator::api::{ROUTES, document};
use serde_json::{Value, json};

use crate::isolation::everything;
use crate::support::{Answer, World, filled, method_of};

/// What is wrong with a value, or nothing.
fn misfit(document: &Value, schema: &Value, value: &Value, at: &str) -> Option<String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = document.pointer(&reference[1..]).unwrap();
        return misfit(document, target, value, at);
    }
    if let Some(choices) = schema["anyOf"].as_array() {
        let mut wrong = choices.iter().map(|one| misfit(document, one, value, at));
        return wrong.try_fold(String::new(), |_, one| one);
    }
    if let Some(words) = schema["enum"].as_array()
        && !words.contains(value)
    {
        return Some(format!("{at}: {value} is none of {words:?}"));
    }
    let is = match schema["type"].as_str() {
        None => true,
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        Some(other) => panic!("{other} is no type"),
    };
    if !is {
        return Some(format!("{at}: {value} is no {}", schema["type"]));
    }
    for name in schema["required"].as_array().into_iter().flatten() {
        let name = name.as_str().unwrap();
        if value.get(name).is_none() {
            return Some(format!("{at}: no {name} in {value}"));
        }
    }
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        if let Some(value) = value.get(name) {
            let wrong = misfit(document, schema, value, &format!("{at}.{name}"));
            if wrong.is_some() {
                return wrong;
            }
        }
    }
    let mut elements = value.as_array().into_iter().flatten().enumerate();
    elements.find_map(|(i, it)| misfit(document, &schema["items"], it, &format!("{at}[{i}]")))
}

/// Asserts that an answer has one of the described statuses, and that status's form.
fn fits(document: &Value, method: &str, path: &str, answer: &Answer) {
    let responses = &document["paths"][path][method]["responses"];
    let mut told = &responses[answer.status.to_string()];
    assert!(told.is_object(), "{method} {path}: {answer:?}");
    if let Some(reference) = told["$ref"].as_str() {
        told = document.pointer(&reference[1..]).unwrap();
    }
    let content = told["content"].as_object().unwrap();
    let (media, shape) = content.iter().next().unwrap();
    let head = answer.head.to_ascii_lowercase();
    assert!(
        head.contains(&format!("content-type: {media}")),
        "{path}: {head}"
    );
    if media == "application/json" {
        let wrong = misfit(document, &shape["schema"], &answer.body, "answer");
        assert_eq!(wrong, None, "{method} {path}");
    }
}

#[test]
fn a_misfit_is_seen() {
    let document = json!({ "shapes": { "A": { "type": "object", "required": ["id"],
        "properties": { "id": { "type": "string" }, "of": { "type": "array",
            "items": { "$ref": "#/shapes/A" } } } } } });
    let schema = json!({ "anyOf": [{ "$ref": "#/shapes/A" }, { "type": "null" }] });
    for good in [
        json!(null),
        json!({ "id": "x", "of": [{ "id": "y" }], "more": 1 }),
    ] {
        assert_eq!(misfit(&document, &schema, &good, ""), None);
    }
    for bad in [
        json!(1),
        json!({}),
        json!({ "id": "x", "of": [{ "id": 1 }] }),
    ] {
        assert!(misfit(&document, &schema, &bad, "").is_some(), "{bad}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_as_the_document_says() {
    let world = World::new().await;
    let (things, run) = everything(&world, "Other", "horse", &[]).await;
    let served = world.person("GET", "/api/openapi.json", json!({})).await;
    let document = document();
    assert_eq!(served.body, document);
    for (method, path) in ROUTES {
        let here = filled(path, |name| things[name].clone());
        let nobodys = uuid::Uuid::now_v7().to_string();
        let nowhere = filled(path, |_| nobodys.clone());
        let mut targets = vec![nowhere];
        if *method == "get" {
            targets.push(here);
        }
        for target in targets {
            for answer in [
                world.person(method_of(method), &target, json!({})).await,
                run.ask(method_of(method), &target, json!({})).await,
            ] {
                fits(&document, method, path, &answer);
            }
        }
    }
}
