//! Puts the gate's own credential on a request. Everything here borrows the [`Permit`], so that
//! nothing can be injected into a request that was not permitted; what is injected is what that
//! permit names, and nothing else.

use std::sync::Arc;

use http::Uri;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use policy::authority::{Host, Scheme};
use policy::credential::CredentialName;
use policy::{Code, Permit, Refusal};

use crate::classify;
use crate::credential::{Credential, Placed, Vault};
use crate::gate::Gate;
use crate::runs::Run;
use crate::scrub::Scrubber;
use crate::strip;
use crate::vault::Secret;

/// What a permit calls for, found and checked, but not yet on the request.
#[allow(
    missing_debug_implementations,
    reason = "leads to secrets, which are never printed"
)]
pub enum Injection {
    /// The request goes out bare.
    Nothing,
    /// A credential of the vault, bound to the permit's host.
    Credential(Arc<Credential>),
    /// The run's own token, for the board.
    RunToken(Arc<Run>),
}

/// What was put on a request.
#[allow(
    missing_debug_implementations,
    reason = "holds a secret, which is never printed"
)]
pub struct Injected {
    /// The value as it was sent, by which echoes are recognised.
    pub value: HeaderValue,
    from: Source,
}

enum Source {
    Vault(Arc<Credential>, Arc<Secret>),
    Run(Arc<Run>),
}

impl Injection {
    /// Finds what `permit` calls for, before anything is recorded as allowed. `run` is who asks, if
    /// it is a run.
    pub fn find(permit: &Permit, vault: &Vault, run: Option<&Arc<Run>>) -> Result<Self, Refusal> {
        if permit.injects_run_token() {
            return match run {
                Some(run) if run.board_token.is_some() => Ok(Self::RunToken(Arc::clone(run))),
                Some(_) | None => Err(Refusal::new(
                    Code::CredentialMissing,
                    "this run has no token for the board",
                    "the board is reachable for runs that the orchestrator opened",
                )),
            };
        }
        let Some(name) = permit.credential() else {
            return Ok(Self::Nothing);
        };
        if permit.scheme() != Scheme::Https {
            return Err(Refusal::new(
                Code::CredentialNotForHost,
                "a credential is never sent over plain http",
                "reach the service by https",
            ));
        }
        let Some(credential) = vault.get(name) else {
            return Err(Refusal::new(
                Code::CredentialMissing,
                &format!("the credential {name} is not loaded"),
                "the operator must repair it; `portcullis-proxy check` says what is wrong",
            ));
        };
        if !credential.may_go_to(permit.authority().host()) {
            return Err(elsewhere(name, permit.authority().host()));
        }
        Ok(Self::Credential(credential))
    }

    /// What is to be set: the secret itself, or a token that is fetched with it. Nothing where
    /// there is nothing to wait for.
    pub async fn token(&self, gate: &Arc<Gate>) -> Result<Option<Arc<Secret>>, Refusal> {
        let Self::Credential(credential) = self else {
            return Ok(None);
        };
        match credential.token(gate).await {
            Ok(token) => Ok(Some(token)),
            Err(_) => Err(no_token(credential.name())),
        }
    }

    /// Sets the field or the query parameter on a stripped request and says what was set. `token`
    /// is what [`Injection::token`] gave.
    pub fn set(
        &self,
        vault: &Vault,
        permit: &Permit,
        token: Option<Arc<Secret>>,
        headers: &mut HeaderMap,
        uri: &mut Uri,
    ) -> Result<Option<Injected>, Refusal> {
        match self {
            Self::Nothing => Ok(None),
            Self::RunToken(run) => {
                let value = bearer(run)?;
                strip::like(headers, &header::AUTHORIZATION);
                headers.insert(header::AUTHORIZATION, value.clone());
                Ok(Some(Injected {
                    value,
                    from: Source::Run(Arc::clone(run)),
                }))
            }
            Self::Credential(credential) => {
                let host = permit.authority().host();
                let token = token
                    .or_else(|| credential.at_hand())
                    .ok_or_else(|| no_token(credential.name()))?;
                let placed = credential
                    .place(host, classify::target(uri), &token)
                    .ok_or_else(|| elsewhere(credential.name(), host))?;
                let Some(value) = put(placed, headers, uri)? else {
                    return Ok(None);
                };
                vault.injected(credential.name());
                Ok(Some(Injected {
                    value,
                    from: Source::Vault(Arc::clone(credential), token),
                }))
            }
        }
    }
}

impl Injected {
    /// Whether it is one of the operator's credentials, not a run's own token.
    #[must_use]
    pub fn is_of_the_vault(&self) -> bool {
        matches!(self.from, Source::Vault(..))
    }

    /// Looks for it in the answer.
    #[must_use]
    pub fn scrubber(&self) -> Option<Box<Scrubber>> {
        let value = self.value.as_bytes();
        let scrubber = match &self.from {
            Source::Vault(credential, token) => credential.scrubber(token, value),
            Source::Run(run) => {
                let secret = run.board_token.as_ref().map(Secret::expose);
                Scrubber::new(secret.unwrap_or_default(), value)
            }
        };
        scrubber.map(Box::new)
    }

    /// Notes what the upstream made of it: a 401 marks the credential, success heals it.
    pub fn answered(&self, gate: &Gate, by: &str, status: http::StatusCode) {
        let Source::Vault(credential, token) = &self.from else {
            return;
        };
        let name = credential.name();
        if status == http::StatusCode::UNAUTHORIZED {
            credential.refused(token);
            if gate.vault.refused(name, by) {
                gate.audit
                    .event(&format!("credential {name}: refused by {by} with 401"));
            }
        } else if (status.is_success() || status.is_redirection()) && gate.vault.accepted(name) {
            gate.audit
                .event(&format!("credential {name}: accepted again by {by}"));
        }
    }
}

fn put(
    placed: Placed,
    headers: &mut HeaderMap,
    uri: &mut Uri,
) -> Result<Option<HeaderValue>, Refusal> {
    match placed {
        Placed::Nowhere => Ok(None),
        Placed::Field { name, value, also } => {
            strip::like(headers, &name);
            headers.insert::<HeaderName>(name, value.clone());
            if let Some((name, word)) = also {
                with_word(headers, name, word);
            }
            Ok(Some(value))
        }
        Placed::Query { parameter, value } => {
            *uri = with_parameter(uri, &parameter, &value).ok_or_else(|| {
                Refusal::new(
                    Code::MalformedRequest,
                    "the target leaves no room for the credential",
                    "shorten the query",
                )
            })?;
            let mut echoed = HeaderValue::from_str(&value).map_err(|_| {
                Refusal::new(
                    Code::GateFailed,
                    "the gate's own check failed",
                    "report this with the audit id",
                )
            })?;
            echoed.set_sensitive(true);
            Ok(Some(echoed))
        }
    }
}

/// Makes sure that the list in field `name` holds `word`.
fn with_word(headers: &mut HeaderMap, name: &'static str, word: &'static str) {
    let held = headers.get_all(name).iter().any(|value| {
        value
            .as_bytes()
            .split(|byte| *byte == b',')
            .any(|one| one.trim_ascii() == word.as_bytes())
    });
    if !held {
        headers.append(name, HeaderValue::from_static(word));
    }
}

/// The target with `parameter` set to an encoded value, and every other parameter that a server may
/// read under that name gone.
fn with_parameter(uri: &Uri, parameter: &str, value: &str) -> Option<Uri> {
    let (path, query) = (uri.path(), uri.query().unwrap_or_default());
    let mut target = zeroize::Zeroizing::new(String::with_capacity(
        path.len() + query.len() + parameter.len() + value.len() + 4,
    ));
    target.push_str(path);
    // As the client wrote it: to a server that does not split there, a `;` belongs to a value.
    let mut mark = None;
    for pair in query.split_inclusive(['&', ';']) {
        let bare = pair.strip_suffix(['&', ';']).unwrap_or(pair);
        let behind = if pair.ends_with(';') { ';' } else { '&' };
        let name = bare.split('=').next().unwrap_or_default();
        if !bare.is_empty() && !same_parameter(name, parameter) {
            target.push(mark.unwrap_or('?'));
            target.push_str(bare);
            mark = Some(behind);
        } else if behind == '&' {
            mark = mark.map(|_| '&');
        }
    }
    target.push(mark.map_or('?', |_| '&'));
    target.push_str(parameter);
    target.push('=');
    target.push_str(value);
    Uri::try_from(target.as_str()).ok()
}

/// Whether some server may read `written` as the parameter `wanted`: encoded, in other letters, or
/// as a list.
fn same_parameter(written: &str, wanted: &str) -> bool {
    let mut bytes = written.bytes();
    let mut read = String::new();
    while let Some(byte) = bytes.next() {
        let byte = match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                match (digit(), digit()) {
                    (Some(high), Some(low)) => u8::try_from(high * 16 + low).unwrap_or(b'%'),
                    _ => b'%',
                }
            }
            other => other,
        };
        read.push(char::from(byte.to_ascii_lowercase()));
    }
    let bare = read.split('[').next().unwrap_or_default();
    let bare: String = bare
        .chars()
        .filter(|c| !c.is_whitespace() && !c.is_control() && *c != '+')
        .map(|c| if c == '.' || c == ' ' { '_' } else { c })
        .collect();
    bare == wanted.to_ascii_lowercase().replace('.', "_")
}

fn no_token(name: &CredentialName) -> Refusal {
    Refusal::new(
        Code::CredentialMissing,
        &format!("no token could be had with the credential {name}"),
        "the operator must repair it; the gate's log says what is wrong",
    )
}

fn elsewhere(name: &CredentialName, host: &Host) -> Refusal {
    Refusal::new(
        Code::CredentialNotForHost,
        &format!("the credential {name} is not bound to {host}"),
        "the operator binds credentials to hosts in proxy.toml",
    )
}

fn bearer(run: &Run) -> Result<HeaderValue, Refusal> {
    let missing = || {
        Refusal::new(
            Code::CredentialMissing,
            "the run's token is unusable",
            "open the run again",
        )
    };
    let token = run.board_token.as_ref().ok_or_else(missing)?;
    let mut text = zeroize::Zeroizing::new(Vec::with_capacity(token.expose().len() + 7));
    text.extend_from_slice(b"Bearer ");
    text.extend_from_slice(token.expose());
    let mut value = HeaderValue::from_bytes(&text).map_err(|_| missing())?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_credential_replaces_the_client_s_in_every_spelling() {
        let set = |target: &str| {
            let uri: Uri = target.parse().unwrap();
            with_parameter(&uri, "key", "S3cret").unwrap().to_string()
        };
        assert_eq!(set("/v1"), "/v1?key=S3cret");
        assert_eq!(set("/v1?a=1&b"), "/v1?a=1&b&key=S3cret");
        for mine in [
            "key=x",
            "KEY=x",
            "%6bey=x",
            "%6B%65%79=x",
            "key[]=x",
            "key[0]=x",
            "key",
            "key+=x",
            "%20key=x",
        ] {
            assert_eq!(
                set(&format!("/v1?a=1&{mine}&b=2")),
                "/v1?a=1&b=2&key=S3cret",
                "{mine}"
            );
            assert_eq!(
                set(&format!("/v1?a=1;{mine}")),
                "/v1?a=1&key=S3cret",
                "{mine}"
            );
        }
        for (sent, passed) in [
            ("a=1;b=2", "a=1;b=2"),
            ("q=x;y&z=1", "q=x;y&z=1"),
            ("key=x;b=2", "b=2"),
            ("a=1;key=x;b=2", "a=1;b=2"),
            ("a=1&key=x;b=2", "a=1&b=2"),
            ("a=1;key=x&b=2", "a=1&b=2"),
            ("a=1;", "a=1"),
        ] {
            let passed = format!("/v1?{passed}&key=S3cret");
            assert_eq!(set(&format!("/v1?{sent}")), passed, "{sent}");
        }
        assert_eq!(set("/v1?monkey=1&keys=2"), "/v1?monkey=1&keys=2&key=S3cret");
    }

    #[test]
    fn a_word_is_added_to_a_list_once() {
        let mut headers = HeaderMap::new();
        headers.insert("anthropic-beta", HeaderValue::from_static("a, oauth-1"));
        with_word(&mut headers, "anthropic-beta", "oauth-1");
        assert_eq!(headers.get_all("anthropic-beta").iter().count(), 1);
        with_word(&mut headers, "anthropic-beta", "oauth-2");
        assert_eq!(headers.get_all("anthropic-beta").iter().count(), 2);
    }
}
