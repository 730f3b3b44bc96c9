//! Request bodies: JSON of bounded size without NUL, or 400.

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::failure::Failure;
use crate::model::Refusal;

/// A parsed body, and the JSON it came from.
#[derive(Debug)]
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        let bytes = Bytes::from_request(request, state)
            .await
            .map_err(|rejection| {
                let status = rejection.status().as_u16();
                Refusal::new(status, "body_unreadable", rejection.body_text())
            })?;
        let value = parse(&bytes)?;
        let parsed = serde_json::from_value(value)
            .map_err(|error| Refusal::invalid(format!("the body does not fit: {error}")))?;
        Ok(Self(parsed))
    }
}

/// Bytes to JSON; an absent body is `{}`.
pub(super) fn parse(bytes: &[u8]) -> Result<Value, Refusal> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(Value::Object(serde_json::Map::new()));
    }
    let value: Value = serde_json::from_slice(bytes).map_err(|error| {
        Refusal::new(
            400,
            "invalid_json",
            format!("the body is not JSON: {error}"),
        )
    })?;
    if !value.is_object() {
        return Err(Refusal::invalid("the body must be a JSON object"));
    }
    if has_nul(&value) {
        return Err(Refusal::invalid("text must not contain NUL"));
    }
    Ok(value)
}

fn has_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(list) => list.iter().any(has_nul),
        Value::Object(map) => map
            .iter()
            .any(|(key, value)| key.contains('\0') || has_nul(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_objects_without_nul() {
        assert!(parse(b"").is_ok());
        assert!(parse(br#"{"a":["b"]}"#).is_ok());
        for bad in [&b"{"[..], b"[]", b"\"x\"", br#"{"a":["b\u0000"]}"#, b"\xff"] {
            assert_eq!(parse(bad).unwrap_err().status, 400);
        }
        let deep = "[".repeat(100_000);
        assert_eq!(parse(deep.as_bytes()).unwrap_err().status, 400);
    }
}
