//! How a refusal is told. One place shapes it for the client that asked: text for git, an `error`
//! string for npm, a status trailer-in-header for gRPC, JSON with `error.message` for everybody
//! else. The code, the rule and the audit id are always in headers, the sentence is always in the
//! reason phrase, and every form says that it is the gate that speaks.

use std::num::NonZeroU32;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use hyper::ext::ReasonPhrase;
use policy::{Code, Refusal};
use serde_json::json;

use crate::exchange::body::ResponseBody;
use crate::inspect::receive_pack::{Commands, rejection};

/// Header fields that mark an answer as the gate's own. Stripped from whatever upstreams and
/// clients send.
pub const CODE: HeaderName = HeaderName::from_static("x-portcullis-code");
pub const RULE: HeaderName = HeaderName::from_static("x-portcullis-rule");
pub const AUDIT: HeaderName = HeaderName::from_static("x-portcullis-audit");

/// What asks a client for the token of its run.
pub const CHALLENGE: &str =
    "Basic realm=\"Portcullis: user run, password the token of this run\", charset=\"UTF-8\"";

/// Longest reason phrase sent; some clients cap the status line.
const LONGEST_PHRASE: usize = 200;

/// The families of clients that read refusals differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// git prints a text body as `remote:` lines.
    Git,
    /// npm and its relatives print `error` when it is a string.
    Npm,
    /// gRPC reads `grpc-status` and `grpc-message` of a 200.
    Grpc,
    /// Model clients, git-lfs and most others read `error.message`.
    Json,
}

impl Shape {
    /// Guesses from what the client says about itself.
    pub fn of(headers: &HeaderMap) -> Self {
        let text = |name| {
            headers
                .get(name)
                .and_then(|value: &HeaderValue| value.to_str().ok())
                .unwrap_or_default()
        };
        let agent = text(header::USER_AGENT);
        if text(header::CONTENT_TYPE).starts_with("application/grpc") {
            Self::Grpc
        } else if agent.starts_with("git/") {
            Self::Git
        } else if ["npm/", "npm ", "pnpm/", "yarn/", "bun/"]
            .iter()
            .any(|name| agent.starts_with(name))
        {
            Self::Npm
        } else {
            Self::Json
        }
    }
}

/// The refusal as an HTTP response. `audit` is the id under which it was recorded.
pub fn answer(refusal: &Refusal, audit: &str, shape: Shape) -> Response<ResponseBody> {
    let status = status(refusal.code);
    let message = message(refusal, audit);
    let (content_type, body) = match shape {
        Shape::Git => ("text/plain; charset=utf-8", format!("{message}\n")),
        Shape::Npm => ("application/json", npm(refusal, &message, audit)),
        Shape::Grpc => ("application/grpc", String::new()),
        Shape::Json => ("application/json", json_body(refusal, &message, audit)),
    };
    let mut response = Response::new(ResponseBody::own(Bytes::from(body)));
    *response.status_mut() = status;
    mark(&mut response, refusal, audit);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    if shape == Shape::Grpc {
        *response.status_mut() = StatusCode::OK;
        let headers = response.headers_mut();
        headers.insert(
            "grpc-status",
            HeaderValue::from_static(grpc_status(refusal.code)),
        );
        if let Ok(value) = HeaderValue::from_str(&percent(&message)) {
            headers.insert("grpc-message", value);
        }
    }
    response
}

/// A refused push as git itself reports one: every reference `[remote rejected]`, with the message
/// as `remote:` lines. Git shows nothing of an HTTP error's body at this step, so the refusal
/// travels in the answer that git does read.
pub fn push_answer(refusal: &Refusal, audit: &str, commands: &Commands) -> Response<ResponseBody> {
    let message = message(refusal, audit);
    let reason = |name: &str| {
        let of = refusal.refs.iter().find(|(refused, _)| refused == name);
        match of {
            Some((_, code)) => format!("Portcullis: {}", code.as_str()),
            None if refusal.refs.is_empty() => format!("Portcullis: {}", refusal.code.as_str()),
            None => "Portcullis: another ref of this push is refused".to_owned(),
        }
    };
    let mut response = Response::new(ResponseBody::own(rejection(commands, reason, &message)));
    mark(&mut response, refusal, audit);
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/x-git-receive-pack-result"),
    );
    response
}

/// What the agent reads: that it is the gate, what it refused, why, what would help, and where it
/// is recorded.
pub fn message(refusal: &Refusal, audit: &str) -> String {
    let mut text = format!("{} [{}]", sentence(refusal), refusal.code.as_str());
    if let Some(why) = &refusal.why {
        text.push_str("\nwhy: ");
        text.push_str(why);
    }
    text.push_str("\nhint: ");
    text.push_str(&refusal.remedy);
    text.push_str("\nThis answer comes from the Portcullis gate, not from the server you called");
    let of_the_gate = matches!(refusal.code, Code::TokenMissing | Code::TokenUnknown);
    text.push_str(if of_the_gate {
        "."
    } else {
        "; your credentials are not the problem."
    });
    text.push_str("\naudit id: ");
    text.push_str(audit);
    text
}

/// The refusal's sentence with the product's name in front, as everything the gate says begins.
fn sentence(refusal: &Refusal) -> String {
    let bare = refusal
        .text
        .strip_prefix("portcullis: ")
        .unwrap_or(&refusal.text);
    format!("Portcullis: {bare}")
}

fn status(code: Code) -> StatusCode {
    StatusCode::from_u16(code.status()).unwrap_or(StatusCode::FORBIDDEN)
}

fn mark(response: &mut Response<ResponseBody>, refusal: &Refusal, audit: &str) {
    if let Ok(phrase) = ReasonPhrase::try_from(phrase(refusal)) {
        response.extensions_mut().insert(phrase);
    }
    let headers = response.headers_mut();
    if refusal.code == Code::TokenMissing {
        let challenge = HeaderValue::from_static(CHALLENGE);
        headers.insert(header::PROXY_AUTHENTICATE, challenge);
    }
    headers.insert(CODE, HeaderValue::from_static(refusal.code.as_str()));
    if let Some(rule) = &refusal.rule
        && let Ok(value) = HeaderValue::from_str(rule.as_str())
    {
        headers.insert(RULE, value);
    }
    if let Ok(value) = HeaderValue::from_str(audit) {
        headers.insert(AUDIT, value);
    }
    let passing = (refusal.code == Code::LimitReached).then_some(5);
    if let Some(seconds) = refusal.retry_after.map(NonZeroU32::get).or(passing) {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
}

/// The reason phrase: visible ASCII only, one line, bounded.
fn phrase(refusal: &Refusal) -> String {
    let text = format!("{} - {}", sentence(refusal), refusal.remedy);
    text.chars()
        .map(|c| {
            if c.is_ascii_graphic() || c == ' ' {
                c
            } else {
                '?'
            }
        })
        .take(LONGEST_PHRASE)
        .collect()
}

fn json_body(refusal: &Refusal, message: &str, audit: &str) -> String {
    json!({
        "error": {
            "message": message,
            "type": "portcullis_refusal",
            "code": refusal.code.as_str(),
            "rule": refusal.rule.as_ref().map(policy::RuleId::as_str),
            "hint": refusal.remedy,
            "audit": audit,
        },
        "message": message,
    })
    .to_string()
}

fn npm(refusal: &Refusal, message: &str, audit: &str) -> String {
    json!({
        "error": message.replace('\n', " "),
        "message": message,
        "code": refusal.code.as_str(),
        "audit": audit,
    })
    .to_string()
}

/// PERMISSION_DENIED for what is final, RESOURCE_EXHAUSTED for what will pass, UNAVAILABLE where
/// something failed.
fn grpc_status(code: Code) -> &'static str {
    match code.status() {
        429 => "8",
        500..=599 => "14",
        _ => "7",
    }
}

/// `grpc-message` is percent-encoded UTF-8.
fn percent(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if (0x20..0x7f).contains(&byte) && byte != b'%' {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal() -> Refusal {
        let rule = policy::RuleId::parse("api").unwrap();
        Refusal::new(
            Code::PathNotAllowed,
            "GET /x is not allowed on a.example:443",
            "add it\nhere",
        )
        .by(&rule, Some("only reads"))
    }

    fn shape(pairs: &[(&'static str, &'static str)]) -> Shape {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            );
        }
        Shape::of(&headers)
    }

    fn body(response: Response<ResponseBody>) -> String {
        match response.into_body() {
            ResponseBody::Own(Some(bytes)) => String::from_utf8(bytes.to_vec()).unwrap(),
            ResponseBody::Own(None) => String::new(),
            ResponseBody::Upstream(_) => panic!("a refusal is the gate's own"),
        }
    }

    #[test]
    fn clients_are_told_apart() {
        assert_eq!(shape(&[("user-agent", "git/2.47.3")]), Shape::Git);
        assert_eq!(shape(&[("user-agent", "npm/10.8.2 node/v20")]), Shape::Npm);
        assert_eq!(
            shape(&[("content-type", "application/grpc+proto")]),
            Shape::Grpc
        );
        assert_eq!(shape(&[("user-agent", "curl/8")]), Shape::Json);
        assert_eq!(shape(&[]), Shape::Json);
    }

    #[test]
    fn every_shape_carries_code_rule_audit_id_and_names_the_gate() {
        for shape in [Shape::Git, Shape::Npm, Shape::Grpc, Shape::Json] {
            let response = answer(&refusal(), "r-1", shape);
            assert_eq!(response.headers()[CODE], "path_not_allowed");
            assert_eq!(response.headers()[RULE], "api");
            assert_eq!(response.headers()[AUDIT], "r-1");
            let phrase = response
                .extensions()
                .get::<ReasonPhrase>()
                .unwrap()
                .as_bytes();
            assert!(phrase.starts_with(b"Portcullis: GET /x is not allowed"));
            assert!(!phrase.contains(&b'\n'));
            if shape == Shape::Grpc {
                assert_eq!(response.status(), 200);
                assert_eq!(response.headers()["grpc-status"], "7");
                assert!(
                    response.headers()["grpc-message"]
                        .to_str()
                        .unwrap()
                        .contains("Portcullis")
                );
                continue;
            }
            assert_eq!(response.status(), 403);
            let text = body(response);
            for part in [
                "Portcullis",
                "only reads",
                "r-1",
                "not from the server you called",
            ] {
                assert!(text.contains(part), "{shape:?} lacks {part}: {text}");
            }
        }
    }

    #[test]
    fn model_clients_find_error_message_and_npm_finds_a_string() {
        let json: serde_json::Value =
            serde_json::from_str(&body(answer(&refusal(), "r-1", Shape::Json))).unwrap();
        assert_eq!(json["error"]["type"], "portcullis_refusal");
        assert!(
            json["error"]["message"]
                .as_str()
                .unwrap()
                .starts_with("Portcullis: ")
        );
        let json: serde_json::Value =
            serde_json::from_str(&body(answer(&refusal(), "r-1", Shape::Npm))).unwrap();
        assert!(json["error"].as_str().unwrap().starts_with("Portcullis: "));
    }

    #[test]
    fn what_will_pass_says_when_to_try_again() {
        let passing = Refusal::new(Code::LimitReached, "too many connections", "wait");
        let response = answer(&passing, "r-2", Shape::Json);
        assert_eq!(response.status(), 429);
        assert!(response.headers().contains_key("retry-after"));
        assert!(
            !answer(&refusal(), "r-1", Shape::Json)
                .headers()
                .contains_key("retry-after")
        );
    }
}
