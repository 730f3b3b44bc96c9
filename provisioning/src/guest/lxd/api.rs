//! One call of the API: sent, waited for, and its answer or its refusal.

use std::path::PathBuf;

use http::{HeaderName, HeaderValue, Method};
use serde_json::Value;

use crate::guest::error::GuestError;
use crate::guest::http::{self as wire, Ask, Part};

/// How long an operation is waited for at a time, in seconds; then it is asked for again.
const TURN: u32 = 300;
const TURNS: u32 = 6;

/// The API behind a unix socket.
#[derive(Debug)]
pub(super) struct Api {
    pub(super) socket: PathBuf,
}

impl Api {
    /// The metadata of what is there.
    pub(super) fn get(&self, target: &str) -> Result<Value, GuestError> {
        self.ask(Method::GET, target, Vec::new(), Vec::new())
            .map(|answer| answer["metadata"].clone())
    }

    /// What is there as it is: a log.
    pub(super) fn raw(&self, target: &str) -> Result<String, GuestError> {
        let answer = wire::over_unix(
            &self.socket,
            ask(Method::GET, target, Vec::new(), Vec::new()),
        )?;
        Ok(String::from_utf8_lossy(&answer.body).into_owned())
    }

    /// Sends JSON; what comes of it is there when this returns. The operation's metadata, where it was one.
    pub(super) fn send(
        &self,
        method: Method,
        target: &str,
        body: &Value,
    ) -> Result<Value, GuestError> {
        let body = match body {
            Value::Null => Vec::new(),
            body => vec![Part::Bytes(body.to_string().into_bytes())],
        };
        let json = (
            http::header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        let answer = self.ask(method, target, vec![json], body)?;
        self.finished(target, answer)
    }

    /// Sends a body as it is.
    pub(super) fn post(
        &self,
        target: &str,
        fields: Vec<(HeaderName, HeaderValue)>,
        body: Vec<Part>,
    ) -> Result<Value, GuestError> {
        let answer = self.ask(Method::POST, target, fields, body)?;
        self.finished(target, answer)
    }

    /// `lxd` or `incus`.
    pub(super) fn server(&self) -> Result<String, GuestError> {
        let server = self.get("/1.0")?["environment"]["server"].clone();
        Ok(server.as_str().unwrap_or_default().to_owned())
    }

    /// Whatever was begun is waited for.
    fn finished(&self, target: &str, answer: Value) -> Result<Value, GuestError> {
        if answer["type"] != "async" {
            return Ok(answer["metadata"].clone());
        }
        let shape = |what: &str| GuestError::Shape {
            asked: target.to_owned(),
            what: what.to_owned(),
        };
        let operation = answer["operation"]
            .as_str()
            .ok_or_else(|| shape("an operation without a name"))?;
        for _ in 0..TURNS {
            let operation = self.get(&format!("{operation}/wait?timeout={TURN}"))?;
            match operation["status_code"].as_u64() {
                Some(200) => return Ok(operation),
                Some(100..=199) => {}
                Some(_) | None => {
                    return Err(GuestError::Refused {
                        asked: target.to_owned(),
                        said: operation["err"].as_str().unwrap_or("it failed").to_owned(),
                    });
                }
            }
        }
        Err(shape("the operation does not end"))
    }

    fn ask(
        &self,
        method: Method,
        target: &str,
        fields: Vec<(HeaderName, HeaderValue)>,
        body: Vec<Part>,
    ) -> Result<Value, GuestError> {
        let asked = format!("{method} {target}");
        let answer = wire::over_unix(&self.socket, ask(method, target, fields, body))?;
        let value: Value =
            serde_json::from_slice(&answer.body).map_err(|problem| GuestError::Shape {
                asked: asked.clone(),
                what: problem.to_string(),
            })?;
        if answer.status.is_success() && value["type"] != "error" {
            return Ok(value);
        }
        Err(GuestError::Refused {
            asked,
            said: match value["error"].as_str() {
                Some(said) => said.to_owned(),
                None => answer.status.to_string(),
            },
        })
    }
}

fn ask(
    method: Method,
    target: &str,
    fields: Vec<(HeaderName, HeaderValue)>,
    body: Vec<Part>,
) -> Ask {
    Ask {
        method,
        target: target.to_owned(),
        fields,
        body,
    }
}
