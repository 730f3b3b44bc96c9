//! Puts the gate's own credential on a request. Everything here borrows the [`Permit`], so that
//! nothing can be injected into a request that was not permitted; what is injected is what that
//! permit names, and nothing else.

use std::sync::Arc;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use policy::authority::{Host, Scheme};
use policy::credential::CredentialName;
use policy::{Code, Permit, Refusal};

use crate::credential::{Credential, Vault};
use crate::runs::Run;
use crate::strip;

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

    /// Sets the field on a stripped request and gives the value back, so that echoes of it can be
    /// recognised. `git` says that the path is git's own, where some credentials take another form.
    pub fn set(
        &self,
        permit: &Permit,
        git: bool,
        headers: &mut HeaderMap,
    ) -> Result<Option<HeaderValue>, Refusal> {
        let (name, value) = match self {
            Self::Nothing => return Ok(None),
            Self::Credential(credential) => {
                let host = permit.authority().host();
                credential
                    .header(host, git)
                    .ok_or_else(|| elsewhere(credential.name(), host))?
            }
            Self::RunToken(run) => (header::AUTHORIZATION, bearer(run)?),
        };
        strip::like(headers, &name);
        headers.insert::<HeaderName>(name, value.clone());
        Ok(Some(value))
    }
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
    let mut text = b"Bearer ".to_vec();
    text.extend_from_slice(token.expose());
    let value = HeaderValue::from_bytes(&text);
    zeroize::Zeroize::zeroize(&mut text);
    let mut value = value.map_err(|_| missing())?;
    value.set_sensitive(true);
    Ok(value)
}
