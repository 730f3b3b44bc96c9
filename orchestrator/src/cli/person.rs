//! A person at the command line, talking to the orchestrator.

use http::Method;
use serde_json::Value;

use super::CliError;
use crate::operator_client::{OperatorClient, encode};

/// Talks to the API socket.
#[derive(Debug)]
pub(super) struct Person {
    client: OperatorClient,
}

impl Person {
    pub(super) fn new(client: OperatorClient) -> Self {
        Self { client }
    }

    pub(super) async fn get(&self, target: &str) -> Result<Value, CliError> {
        Ok(self.client.get(target).await?)
    }

    pub(super) async fn get_bytes(&self, target: &str) -> Result<Vec<u8>, CliError> {
        Ok(self.client.get_bytes(target).await?)
    }

    pub(super) async fn post(&self, target: &str, body: &Value) -> Result<Value, CliError> {
        Ok(self.client.send(Method::POST, target, body).await?)
    }

    pub(super) async fn delete(&self, target: &str) -> Result<Value, CliError> {
        let nothing = Value::Object(serde_json::Map::new());
        Ok(self.client.send(Method::DELETE, target, &nothing).await?)
    }

    pub(super) async fn put(&self, target: &str, body: &Value) -> Result<Value, CliError> {
        Ok(self.client.send(Method::PUT, target, body).await?)
    }

    pub(super) async fn patch(&self, target: &str, body: &Value) -> Result<Value, CliError> {
        Ok(self.client.send(Method::PATCH, target, body).await?)
    }

    /// The company meant: the named one, or the only one there is.
    pub(super) async fn company(&self, named: Option<&str>) -> Result<String, CliError> {
        if let Some(name) = named {
            return Ok(encode(name));
        }
        let all = self.get("/api/companies").await?;
        match all.as_array().map(Vec::as_slice) {
            Some([only]) => Ok(only["id"].as_str().unwrap_or_default().to_owned()),
            Some([]) => Err(CliError::Usage(
                "there is no company yet\n  hint: portcullis company create NAME".to_owned(),
            )),
            _ => Err(CliError::Usage(
                "there are several companies\n  hint: say which with --company NAME".to_owned(),
            )),
        }
    }
}
