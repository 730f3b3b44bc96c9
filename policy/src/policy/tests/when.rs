//! Conditions as a file writes them.

use super::*;

fn problems(when: &str) -> String {
    let text = format!(
        "[[service]]\nkind = \"http\"\nhost = \"a.example.com\"\n[[service.when]]\n{when}\n"
    );
    match Policy::parse(&text, "p.toml") {
        Ok(_) => String::new(),
        Err(problems) => problems.to_string(),
    }
}

#[test]
fn a_condition_that_says_nothing_or_too_much_does_not_load() {
    let good = "allow = [\"POST /x\"]\nquery = { a = 1 }\nheaders = { x-a = [\"b\", true] }\njson = { \"/a~1b/0\" = [1, \"x\"] }";
    assert_eq!(problems(good), "");
    for (when, said) in [
        ("query = { a = \"1\" }", "the conditions stand over nothing"),
        ("allow = [\"POST /x\"]", "there is no condition"),
        (
            "allow = [\"POST /x\"]\njsn = { \"/a\" = 1 }",
            "did you mean `json`?",
        ),
        ("allow = [\"POST /x\"]\nquery = {}", "never met"),
        ("allow = [\"POST /x\"]\nquery = { a = [] }", "never met"),
        (
            "allow = [\"POST /x\"]\njson = { \"a\" = 1 }",
            "no JSON pointer",
        ),
        ("allow = [\"POST /x\"]\njson = { \"/~2\" = 1 }", "no escape"),
        (
            "allow = [\"POST /x\"]\njson = { \"/a\" = 1.5 }",
            "a whole number",
        ),
        (
            "allow = [\"POST /x\"]\njson = { \"/a\" = { b = 1 } }",
            "a whole number",
        ),
        ("allow = [\"POST /x\"]\njson = \"/a\"", "a table"),
        (
            "allow = [\"POST /x\"]\nheaders = { X-A = \"1\" }",
            "lower case",
        ),
        (
            "allow = [\"POST /x\"]\nheaders = { authorization = \"*\" }",
            "secrets",
        ),
        (
            "allow = [\"POST /x\"]\nheaders = { x-api-key = \"*\" }",
            "secrets",
        ),
        (
            "allow = [\"POST /x\"]\ngraphql = [\"mutations:a\"]",
            "did you mean `mutation`?",
        ),
        (
            "allow = [\"POST /x\"]\ngraphql = [\"mutation:a b\"]",
            "no name of a field",
        ),
        ("allow = [\"POST /x\"]\ngraphql = []", "never met"),
        (
            "allow = [\"POST /x\"]\njson = { \"/a\" = 1 }\nform = { a = \"1\" }",
            "both as `json`",
        ),
        (
            "allow = [\"POST /o/r/git-receive-pack\"]\nquery = { a = 1 }",
            "never opens a push",
        ),
    ] {
        let told = problems(when);
        assert!(
            told.contains(said) && told.contains("service[1].when"),
            "{when}: {told}"
        );
    }
    let idle = "[[service]]\nkind = \"http\"\nhost = \"a.example.com\"\nallow = [\"GET /\"]\nmax_inspected_bytes = 9\n";
    let told = Policy::parse(idle, "p.toml").unwrap_err().to_string();
    assert!(
        told.contains("nothing of this service has a body read"),
        "{told}"
    );
}

/// What a rule has not been told it does not permit, whatever else is known.
#[test]
fn facts_of_another_kind_are_no_facts() {
    let policy = policy(
        "[[service]]\nid = \"a\"\nkind = \"http\"\nhost = \"a.example.com\"\nallow = [\"* /**\"]\n\
         [[service.when]]\nallow = [\"POST /x\"]\njson = { \"/a\" = 1 }\n",
    );
    let url = "https://a.example.com/x";
    assert_eq!(ask(&policy, "POST", url), Outcome::Inspect);
    for facts in [
        Facts::Push(Vec::new()),
        Facts::Unreadable(String::from("x")),
        Facts::Content(std::sync::Arc::default()),
    ] {
        let outcome = ask_with(&policy, "POST", url, &facts);
        assert_eq!(outcome.code(), Some(Code::CouldNotInspect), "{facts:?}");
    }
    assert!(
        ask(&policy, "POST", "https://a.example.com/y").permits(),
        "control"
    );
}
