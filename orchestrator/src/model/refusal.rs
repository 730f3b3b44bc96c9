//! A no that a client reads: status, stable code, sentence, details.

use serde_json::{Value, json};

/// Why a request was not done. Nothing was changed.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    /// HTTP status.
    pub status: u16,
    /// Stable code.
    pub code: &'static str,
    /// One sentence.
    pub error: String,
    /// Machine-readable facts; `Null` when there are none.
    pub details: Value,
}

impl Refusal {
    /// A refusal without details.
    pub fn new(status: u16, code: &'static str, error: impl Into<String>) -> Self {
        Self {
            status,
            code,
            error: error.into(),
            details: Value::Null,
        }
    }

    /// 400: the request itself is wrong.
    pub fn invalid(error: impl Into<String>) -> Self {
        Self::new(400, "validation_error", error)
    }

    /// 401: no live identity.
    pub fn unauthorised(error: impl Into<String>) -> Self {
        Self::new(401, "unauthorized", error)
    }

    /// 403: known, and not allowed.
    pub fn forbidden(code: &'static str, error: impl Into<String>) -> Self {
        Self::new(403, code, error)
    }

    /// 404: does not exist, or not for this caller.
    #[must_use]
    pub fn missing(what: &str) -> Self {
        Self::new(404, "not_found", format!("{what} not found"))
    }

    /// 409: somebody else was first.
    pub fn conflict(code: &'static str, error: impl Into<String>) -> Self {
        Self::new(409, code, error)
    }

    /// 422: understood, and against the rules of the board.
    pub fn unprocessable(code: &'static str, error: impl Into<String>) -> Self {
        Self::new(422, code, error)
    }

    /// The same refusal with details.
    #[must_use]
    pub fn with(mut self, details: Value) -> Self {
        self.details = details;
        self
    }

    /// The body a client gets.
    #[must_use]
    pub fn body(&self) -> Value {
        let mut body = json!({ "error": self.error, "code": self.code });
        if !self.details.is_null() {
            body["details"] = self.details.clone();
        }
        body
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.error, self.code)
    }
}
