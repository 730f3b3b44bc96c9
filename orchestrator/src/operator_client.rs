//! The API socket, as the command line uses it.

use std::path::PathBuf;

use http::Method;
use serde_json::Value;

use crate::socket_client::{self, Answer, SocketError};

/// Why a command got no result.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// The orchestrator could not be asked.
    #[error(
        "the orchestrator does not answer\n  hint: is it running? `portcullis status` says; --config names whose socket is asked"
    )]
    Away(#[from] SocketError),
    /// It said no.
    #[error("{error} ({code}, status {status}){details}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// Stable code.
        code: String,
        /// Its sentence.
        error: String,
        /// Its facts, ready to print.
        details: String,
    },
}

/// A client of the API socket.
#[derive(Debug, Clone)]
pub struct OperatorClient {
    socket: PathBuf,
}

impl OperatorClient {
    /// A client of the socket at this path.
    #[must_use]
    pub fn new(socket: PathBuf) -> Self {
        Self { socket }
    }

    /// `GET`, JSON back.
    ///
    /// # Errors
    /// See [`OperatorError`].
    pub async fn get(&self, target: &str) -> Result<Value, OperatorError> {
        Ok(self.ask(Method::GET, target, None).await?.json())
    }

    /// The bytes of a `GET`.
    ///
    /// # Errors
    /// See [`OperatorError`].
    pub async fn get_bytes(&self, target: &str) -> Result<Vec<u8>, OperatorError> {
        Ok(self.ask(Method::GET, target, None).await?.body.to_vec())
    }

    /// Sends JSON, gets JSON back.
    ///
    /// # Errors
    /// See [`OperatorError`].
    pub async fn send(
        &self,
        method: Method,
        target: &str,
        body: &Value,
    ) -> Result<Value, OperatorError> {
        Ok(self
            .ask(method, target, Some(body.to_string().into_bytes()))
            .await?
            .json())
    }

    async fn ask(
        &self,
        method: Method,
        target: &str,
        body: Option<Vec<u8>>,
    ) -> Result<Answer, OperatorError> {
        let answer = socket_client::request(&self.socket, method, target, body).await?;
        if (200..300).contains(&answer.status) {
            return Ok(answer);
        }
        let json = answer.json();
        let details = if json["details"].is_null() {
            String::new()
        } else {
            format!("\n  details: {}", json["details"])
        };
        Err(OperatorError::Refused {
            status: answer.status,
            code: json["code"].as_str().unwrap_or("unknown").to_owned(),
            error: json["error"]
                .as_str()
                .unwrap_or("the orchestrator said no")
                .to_owned(),
            details,
        })
    }
}

/// A path segment or query value, percent-encoded.
#[must_use]
pub fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}
