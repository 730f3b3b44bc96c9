use serde_json::json;

use super::*;

fn post(document: &str) -> Result<Vec<Operation>, String> {
    posted(json!({ "query": document }).to_string().as_bytes(), None)
}

fn shown(operations: &[Operation]) -> Vec<String> {
    operations
        .iter()
        .map(|one| format!("{} {}", one.kind.as_str(), one.fields.join(",")))
        .collect()
}

#[test]
fn an_operation_is_its_type_and_its_root_fields_wherever_they_stand() {
    let cases = [
        ("{ viewer { login } }", "query viewer"),
        ("query Q { viewer { login } }", "query viewer"),
        (
            "mutation { createIssue(input: {}) { id } }",
            "mutation createIssue",
        ),
        (
            "mutation { viewer: deleteRef(input: {}) { id } }",
            "mutation deleteRef",
        ),
        (
            "mutation { a: createIssue b: deleteRef }",
            "mutation createIssue,deleteRef",
        ),
        ("subscription { events }", "subscription events"),
        // Whatever is inside a root field is its own affair.
        ("{ viewer { deleteRef } }", "query viewer"),
        (
            "mutation { ...F } fragment F on Mutation { deleteRef }",
            "mutation deleteRef",
        ),
        (
            "mutation { ... on Mutation { deleteRef } }",
            "mutation deleteRef",
        ),
        (
            "mutation { ... @include(if: false) { deleteRef } }",
            "mutation deleteRef",
        ),
        (
            "mutation { deleteRef @skip(if: true) }",
            "mutation deleteRef",
        ),
        (
            "mutation { ...A } fragment A on Mutation { ...B createIssue } fragment B on Mutation { ... { deleteRef } }",
            "mutation createIssue,deleteRef",
        ),
        // A fragment that leads back to itself ends.
        (
            "{ ...A } fragment A on Query { viewer ...A }",
            "query viewer",
        ),
        ("# mutation { deleteRef }\n{ viewer }", "query viewer"),
        ("#x\rmutation { deleteRef }", "mutation deleteRef"),
        (
            "query($a: String = \"mutation { x }\") { viewer(a: $a) }",
            "query viewer",
        ),
        (
            "{ viewer(a: \"\"\"} mutation { x }\"\"\") }",
            "query viewer",
        ),
        ("{ __typename }", "query __typename"),
    ];
    for (document, expected) in cases {
        let read = post(document).unwrap_or_else(|problem| panic!("{document}: {problem}"));
        assert_eq!(shown(&read), [expected], "{document}");
    }
}

#[test]
fn of_several_operations_the_named_one_is_executed() {
    let document = "query Read { viewer } mutation Write { deleteRef }";
    let ask = |name: Value| {
        posted(
            json!({ "query": document, "operationName": name })
                .to_string()
                .as_bytes(),
            None,
        )
    };
    assert_eq!(shown(&ask(json!("Read")).unwrap()), ["query viewer"]);
    assert_eq!(shown(&ask(json!("Write")).unwrap()), ["mutation deleteRef"]);
    for name in [
        json!(null),
        json!(""),
        json!("read"),
        json!("Other"),
        json!(1),
        json!(["Read"]),
    ] {
        assert!(ask(name.clone()).is_err(), "{name}");
    }
}

#[test]
fn each_request_of_a_batch_is_read() {
    let one = |document: &str| json!({ "query": document, "variables": { "a": 1 } });
    let batch = json!([one("{ viewer }"), one("mutation { deleteRef }")]);
    let read = posted(batch.to_string().as_bytes(), None).unwrap();
    assert_eq!(shown(&read), ["query viewer", "mutation deleteRef"]);
    for batch in [
        json!([1]),
        json!([[one("{ viewer }")]]),
        json!([one("{ viewer }"), null]),
    ] {
        assert!(
            posted(batch.to_string().as_bytes(), None).is_err(),
            "{batch}"
        );
    }
    let long = vec![one("{ viewer }"); MOST_REQUESTS + 1];
    assert!(posted(json!(long).to_string().as_bytes(), None).is_err());
}

#[test]
fn the_form_with_get_is_read_from_the_target() {
    let read = got(Some(
        "query=query+Q%7Bviewer%7D&operationName=Q&variables=%7B%7D",
    ))
    .unwrap();
    assert_eq!(shown(&read), ["query viewer"]);
    assert_eq!(
        shown(&got(Some("query=mutation%7BdeleteRef%7D")).unwrap()),
        ["mutation deleteRef"]
    );
    for query in [
        None,
        Some("query=%7Bviewer%7D&query=mutation%7BdeleteRef%7D"),
        Some("query=%7Bviewer%7D&extensions=%7B%22persistedQuery%22%3A%7B%7D%7D"),
        Some("query=%7Bviewer%7D&id=1"),
        Some("query=%7Bviewer%7D&variables=%5B%5D"),
        Some("query=%7Bviewer%7D&variables=x"),
    ] {
        assert!(got(query).is_err(), "{query:?}");
    }
}

#[test]
fn what_is_not_there_or_can_be_read_in_two_ways_is_not_inspected() {
    let persisted = json!({ "persistedQuery": { "version": 1, "sha256Hash": "00" } });
    let document = "{ viewer }";
    let requests = [
        json!({ "extensions": persisted }),
        json!({ "query": document, "extensions": persisted }),
        json!({ "query": null, "extensions": persisted }),
        json!({ "id": "1" }),
        json!({ "query": document, "id": "1" }),
        json!({ "query": document, "documentId": "1" }),
        json!({ "query": document, "Query": "mutation { deleteRef }" }),
        json!({ "query": [document] }),
        json!({ "query": document, "variables": "{}" }),
        json!({}),
        json!("{ viewer }"),
    ];
    for request in &requests {
        assert!(
            posted(request.to_string().as_bytes(), None).is_err(),
            "{request}"
        );
    }
    let plain = json!({ "query": document }).to_string();
    assert!(posted(plain.as_bytes(), Some("query=mutation%7BdeleteRef%7D")).is_err());
    let harmless = json!({
        "query": document, "variables": null, "operationName": null,
        "extensions": { "clientLibrary": { "name": "x" } },
    });
    for text in [plain, harmless.to_string()] {
        assert!(posted(text.as_bytes(), None).is_ok(), "control: {text}");
    }
    let twice = br#"{"query":"{ viewer }","query":"mutation { deleteRef }"}"#;
    assert!(posted(twice, None).is_err());
    let deep = "{ a ".repeat(MOST_DEPTH + 1) + &"} ".repeat(MOST_DEPTH + 1);
    let bomb = "{a".repeat(200_000);
    let list = format!(
        "{{ a(b: {}{}) }}",
        "[".repeat(MOST_DEPTH + 1),
        "]".repeat(MOST_DEPTH + 1)
    );
    let long = format!("{{ {} }}", "a ".repeat(MOST_TOKENS));
    let chain: String = (0..=MOST_DEPTH)
        .map(|n| format!("fragment F{n} on Query {{ ...F{} }} ", n + 1))
        .collect();
    let chain = format!(
        "{{ ...F0 }} {chain} fragment F{} on Query {{ a }}",
        MOST_DEPTH + 1
    );
    for document in [
        "",
        "{",
        "{ }",
        "mutation",
        "viewer",
        "{ viewer } { viewer }",
        "query A { a } query A { b }",
        "{ ...F }",
        "{ ...F } fragment F on Query { a } fragment F on Query { b }",
        "fragment F on Query { a }",
        "{ viewer } type Query { a: Int }",
        "{ viewer } extend type Query { a: Int }",
        "{ viewer\u{0} }",
        "{ viewer } \u{feff}x",
        "{ viewer(a: \"\n\") }",
        &deep,
        &bomb,
        &list,
        &long,
        &chain,
    ] {
        let shown: String = document.chars().take(60).collect();
        assert!(post(document).is_err(), "{shown}");
    }
}
