//! The board's API as an OpenAPI document, made from the code: routes, parameters and statuses are the
//! router's own table ([`super::routes`]), bodies are what the types say they take ([`taken`]), answers
//! are [`shapes`], which the tests hold against what the routes answer.

mod shapes;
pub(super) mod taken;

use serde_json::{Map, Value, json};

use super::routes::{DESCRIBED, Route};

/// The document, as it is served and printed.
#[must_use]
pub fn document() -> Value {
    let mut paths = Map::new();
    for route in DESCRIBED {
        let path = paths
            .entry(route.path.to_owned())
            .or_insert_with(|| json!({}));
        path[route.method] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Portcullis board",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Tickets, wakes and runs of agents. A run's requests carry a token that the gate \
                            injects; people connect to the API socket and are known by their uid. What is of \
                            another company is answered as what is not there.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "security": [{ "run": [] }, {}],
        "paths": paths,
        "components": {
            "schemas": shapes::all(),
            "responses": refused(),
            "securitySchemes": {
                "run": { "type": "http", "scheme": "bearer",
                         "description": "The token of a live run. People need none: their uid counts." },
            },
        },
    })
}

fn operation(route: &Route) -> Value {
    let mut parameters: Vec<Value> = named(route.path)
        .map(|name| {
            json!({ "name": name, "in": "path", "required": true,
                    "schema": { "type": "string", "minLength": 1 } })
        })
        .collect();
    for word in route.query.split_whitespace() {
        let (name, kind) = word.split_once(':').unwrap_or((word, "text"));
        parameters.push(json!({ "name": name, "in": "query", "schema": shapes::kind(kind) }));
    }
    let mut responses = Map::new();
    for code in route.codes {
        responses.insert(code.to_string(), reply(route.reply));
    }
    for code in refusals(route) {
        let shared = format!("#/components/responses/Refused{code}");
        responses.insert(code.to_string(), json!({ "$ref": shared }));
    }
    let (room, verb) = route
        .handler
        .split_once("::")
        .unwrap_or(("api", route.handler));
    let mut operation = json!({
        "operationId": id(route),
        "tags": [room.trim()],
        "summary": format!("{}: {}", room.trim(), verb.trim().replace('_', " ")),
        "parameters": parameters,
        "responses": responses,
    });
    if let Some(body) = route.body {
        let mut schema = body();
        schema["type"] = json!("object");
        operation["requestBody"] =
            json!({ "content": { "application/json": { "schema": schema } } });
    }
    if let Some(field) = route.form {
        let file = json!({ "type": "object", "required": [field],
                           "properties": { field: { "type": "string", "format": "binary" } } });
        operation["requestBody"] = json!({ "required": true,
                                           "content": { "multipart/form-data": { "schema": file } } });
    }
    operation
}

fn reply(shape: &str) -> Value {
    if shape.contains('/') {
        let bytes = json!({ shape: { "schema": { "type": "string" } } });
        return json!({ "description": "As asked", "content": bytes });
    }
    let body = json!({ "application/json": { "schema": shapes::kind(shape) } });
    json!({ "description": "As asked", "content": body })
}

/// Every refusal, by its status.
const REFUSALS: [(u16, &str); 8] = [
    (400, "The request itself is wrong"),
    (401, "No live identity"),
    (403, "Known, and not allowed"),
    (404, "Not there, or not for this caller"),
    (409, "Somebody else was first"),
    (413, "The body is too large"),
    (422, "Against the rules of the board"),
    (503, "The board cannot now; nothing was changed"),
];

/// How a route may refuse.
fn refusals(route: &Route) -> impl Iterator<Item = u16> {
    let read = route.method == "get";
    let names = route.path.contains('{') || !route.query.is_empty() || route.body.is_some();
    let codes = REFUSALS.iter().map(|(code, _)| *code);
    codes.filter(move |code| match code {
        404 => names,
        409 | 413 => !read,
        _ => !route.codes.contains(code),
    })
}

fn refused() -> Map<String, Value> {
    let shape = json!({ "application/json": { "schema": shapes::reference("Error") } });
    let all = REFUSALS.iter().map(|(code, why)| {
        let told = json!({ "description": why, "content": shape });
        (format!("Refused{code}"), told)
    });
    all.collect()
}

fn id(route: &Route) -> String {
    let path = route.path.trim_start_matches("/api/");
    let words = path.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    format!("{}_{}", route.method, words.join("_"))
}

fn named(path: &str) -> impl Iterator<Item = &str> {
    let parts = path.split('{').skip(1);
    parts.filter_map(|part| Some(part.split_once('}')?.0))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_published_document_is_the_one_the_code_makes() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/openapi.json");
        let published = std::fs::read_to_string(path).unwrap_or_default();
        let made = serde_json::to_string_pretty(&document()).unwrap() + "\n";
        assert!(
            published == made,
            "docs/openapi.json is not what `portcullis-orchestrator openapi` prints; write it anew"
        );
    }

    #[test]
    fn every_reference_leads_somewhere_and_every_operation_has_a_name_of_its_own() {
        let document = document();
        let shapes = document["components"]["schemas"].as_object().unwrap();
        let text = document.to_string();
        for part in text.split("#/components/schemas/").skip(1) {
            let name = part.split('"').next().unwrap();
            assert!(shapes.contains_key(name), "nothing is called {name}");
        }
        let ids: Vec<String> = DESCRIBED.iter().map(id).collect();
        let distinct: HashSet<&String> = ids.iter().collect();
        assert_eq!(distinct.len(), ids.len(), "{ids:?}");
    }
}
