//! Kind `llm`: what may be asked of which model.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::request::{Body, Content, Reading};
use crate::{Code, Facts, Inspection, Provider};

const CLAUDE: &str = r#"
[[service]]
id = "models"
kind = "llm"
provider = "anthropic"
models = ["claude-sonnet-*", "claude-haiku-*"]
max_tokens = 8192
credential = "anthropic"
"#;

fn ask(text: &str, authority: &str, request: (&str, &str), body: &Value) -> Decision {
    let policy = Policy::parse(text, "test").unwrap_or_else(|problems| panic!("{problems}"));
    let authority = Authority::parse(authority).unwrap();
    let route = [Scheme::Https, Scheme::Http]
        .into_iter()
        .find_map(|scheme| match policy.route(scheme, &authority) {
            Routing::Route(route) => Some(route),
            Routing::Refuse(_) => None,
        });
    let route = route.expect("it is listed");
    let (method, target) = request;
    let request = Request {
        scheme: route.scheme(),
        authority: &authority,
        method,
        target,
    };
    match policy.decide(&route, &request, &Facts::None) {
        Decision::Inspect(Inspection::Content(wanted)) => {
            assert!(
                wanted
                    .body
                    .is_some_and(|spool| spool.json && spool.most >= 32 << 20)
            );
        }
        other @ (Decision::Permit(_)
        | Decision::Refuse(_)
        | Decision::Hold(_)
        | Decision::Inspect(Inspection::ReceivePack | Inspection::History(_))) => return other,
    }
    let body = Body {
        bytes: Some(10),
        sha256: String::new(),
        json: Reading::Read(body.clone()),
        form: Reading::NotAsked,
        graphql: Reading::NotAsked,
        ..Body::beyond()
    };
    let content = Content {
        headers: Vec::new(),
        body: Some(body),
        task: None,
    };
    policy.decide(&route, &request, &Facts::Content(Arc::new(content)))
}

fn code(decision: &Decision) -> &'static str {
    match decision {
        Decision::Permit(_) => "permitted",
        Decision::Refuse(refusal) => refusal.code.as_str(),
        Decision::Inspect(_) => "inspect",
        Decision::Hold(_) => "hold",
    }
}

#[test]
fn a_model_that_is_listed_may_be_asked_and_no_other() {
    let messages = ("POST", "/v1/messages?beta=true");
    let asked = |body: Value| ask(CLAUDE, "api.anthropic.com:443", messages, &body);
    let good =
        json!({"model": "claude-sonnet-4-5", "max_tokens": 100, "tools": [{}], "stream": true});
    let Decision::Permit(permit) = asked(good) else {
        panic!("it is listed");
    };
    assert_eq!(permit.usage(), Some(Provider::Anthropic));
    let facts = permit.asked().unwrap();
    assert_eq!(
        (facts.model.as_str(), facts.most_output),
        ("claude-sonnet-4-5", Some(100))
    );
    assert_eq!(permit.credential().unwrap().as_str(), "anthropic");
    let bad = asked(json!({"model": "claude-opus-4-5", "max_tokens": 100}));
    let Decision::Refuse(refusal) = bad else {
        panic!("it is not listed");
    };
    assert_eq!(
        (refusal.code, refusal.status()),
        (Code::ModelNotAllowed, 403)
    );
    assert!(
        refusal.text.contains("claude-opus-4-5") && refusal.text.contains("`models`"),
        "{refusal}"
    );
    assert!(
        refusal.remedy.contains("claude-sonnet-*, claude-haiku-*"),
        "{refusal}"
    );
    for (body, wanted) in [
        (
            json!({"model": "claude-sonnet-4-5", "max_tokens": 8193}),
            "model_not_allowed",
        ),
        (json!({"model": "claude-sonnet-4-5"}), "model_not_allowed"),
        (json!({"max_tokens": 5}), "could_not_inspect"),
        (json!("text"), "could_not_inspect"),
    ] {
        assert_eq!(code(&asked(body.clone())), wanted, "{body}");
    }
}

#[test]
fn what_is_no_endpoint_is_shut_and_what_is_free_is_not_read() {
    let at = |method, target| {
        let nothing = json!({});
        code(&ask(
            CLAUDE,
            "api.anthropic.com:443",
            (method, target),
            &nothing,
        ))
        .to_owned()
    };
    assert_eq!(at("POST", "/v1/messages/count_tokens"), "permitted");
    assert_eq!(at("GET", "/v1/models"), "permitted");
    assert_eq!(at("POST", "/v1/messages/batches"), "path_not_allowed");
    assert_eq!(at("POST", "/v1/files"), "path_not_allowed");
    assert_eq!(at("GET", "/v1/messages"), "method_not_allowed");
    let narrow = CLAUDE.to_owned() + "endpoints = [\"messages\"]\n";
    let narrow = ask(
        &narrow,
        "api.anthropic.com:443",
        ("GET", "/v1/models"),
        &json!({}),
    );
    assert_eq!(code(&narrow), "path_not_allowed");
    let Decision::Permit(permit) = ask(
        CLAUDE,
        "api.anthropic.com:443",
        ("POST", "/v1/messages/count_tokens"),
        &json!({}),
    ) else {
        panic!("it is free");
    };
    assert_eq!(permit.usage(), None, "no model works there");
}

#[test]
fn every_provider_and_any_base_url_expand_to_plain_rules_that_decide_alike() {
    let service = |keys: &str| {
        format!("[[service]]\nkind = \"llm\"\nmodels = [\"m-*\"]\ntools = false\n{keys}\n")
    };
    for (keys, authority, target) in [
        (
            "provider = \"openai\"",
            "api.openai.com:443",
            "/v1/chat/completions",
        ),
        (
            "provider = \"openai\"",
            "api.openai.com:443",
            "/v1/responses",
        ),
        (
            "provider = \"google\"",
            "generativelanguage.googleapis.com:443",
            "/v1beta/models/m-1:streamGenerateContent?alt=sse",
        ),
        (
            "provider = \"openrouter\"",
            "openrouter.ai:443",
            "/api/v1/chat/completions",
        ),
        (
            "provider = \"ollama\"\nbase_url = \"http://models.example.com:11434\"",
            "models.example.com:11434",
            "/api/chat",
        ),
        (
            "provider = \"compatible\"\nbase_url = \"https://models.example.com:8443/llm/v1/\"",
            "models.example.com:8443",
            "/llm/v1/chat/completions",
        ),
    ] {
        let text = service(keys);
        let policy = Policy::parse(&text, "test").unwrap_or_else(|problems| panic!("{problems}"));
        let expanded = policy.expanded();
        assert!(
            expanded.contains("kind = \"http\"") && expanded.contains("models = [\"m-*\"]"),
            "{expanded}"
        );
        let google = target.contains("/models/");
        let model = |name: &str| {
            if google {
                json!({})
            } else {
                json!({"model": name})
            }
        };
        for text in [&text, &expanded] {
            let ask = |body: &Value| code(&ask(text, authority, ("POST", target), body)).to_owned();
            assert_eq!(ask(&model("m-1")), "permitted", "{target}");
            assert_eq!(
                ask(&json!({"model": "other"})),
                if google {
                    "could_not_inspect"
                } else {
                    "model_not_allowed"
                }
            );
            let mut with_tools = model("m-1");
            with_tools["tools"] = json!([{}]);
            assert_eq!(ask(&with_tools), "model_not_allowed", "{target}");
        }
    }
}

#[test]
fn what_is_missing_or_wrong_is_told_with_its_remedy() {
    for (text, wanted) in [
        ("provider = \"anthropic\"", "names no model"),
        ("models = [\"m\"]", "whose models they are"),
        ("provider = \"acme\"\nmodels = [\"m\"]", "not a provider"),
        (
            "provider = \"compatible\"\nmodels = [\"m\"]",
            "where its models are",
        ),
        ("provider = \"openai\"\nmodels = []", "permits none"),
        (
            "provider = \"openai\"\nmodels = [\"a b\"]",
            "names no model",
        ),
        (
            "provider = \"openai\"\nmodels = [\"m\"]\nendpoints = [\"chats\"]",
            "no endpoint",
        ),
        (
            "provider = \"openai\"\nmodels = [\"m\"]\nendpoints = []",
            "permits nothing",
        ),
        (
            "provider = \"openai\"\nmodels = [\"m\"]\nbase_url = \"models.example.com\"",
            "no base URL",
        ),
        (
            "provider = \"openai\"\nmodels = [\"m\"]\nbase_url = \"https://a@b.example\"",
            "no base URL",
        ),
        (
            "provider = \"openai\"\nmodels = [\"m\"]\nbase_url = \"https://b.example\"\nhost = \"c.example\"",
            "both say where",
        ),
        (
            "provider = \"compatible\"\nmodels = [\"m\"]\nbase_url = \"http://b.example\"\ncredential = \"x\"",
            "in the clear",
        ),
    ] {
        let text = format!("[[service]]\nkind = \"llm\"\n{text}\n");
        let problems = Policy::parse(&text, "test").unwrap_err().to_string();
        assert!(
            problems.contains(wanted) && problems.contains("hint: "),
            "{text}: {problems}"
        );
    }
}
