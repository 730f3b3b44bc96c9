//! Credentials: read from places nobody else can read, checked before use, injected in the form of
//! their kind, and only towards the hosts the configuration binds them to.
//!
//! Nothing here prints a secret or its length. [`Vault`] is what the data path asks.

mod canary;
mod demand;
mod health;
mod known;
mod lint;
mod mint;
mod place;
mod sealed;
pub mod shape;
mod source;
mod vault;

use std::fmt;
use std::sync::Arc;

use http::HeaderValue;
use policy::authority::Host;
use policy::credential::CredentialName;
use policy::pattern::HostPattern;

use crate::config::{CredentialConfig, CredentialKind};
use crate::gate::Gate;
use crate::scrub::Scrubber;
use crate::vault::{Secret, VaultError};

pub use canary::{CanaryView, Verdict, try_canaries};
pub use demand::try_now;
pub use health::{CredentialHealth, CredentialView};
pub use lint::{Flaw, is_proxmox_id};
pub use mint::MintError;
pub use place::Placed;
pub use source::Reader;
pub(crate) use source::chain;
pub use vault::Vault;

use known::Known;
use mint::Mint;
use place::Form;

/// One credential that passed every check.
#[allow(
    missing_debug_implementations,
    reason = "holds a secret, which is never printed"
)]
pub struct Credential {
    name: CredentialName,
    form: Form,
    hosts: Vec<HostPattern>,
    secret: Arc<Secret>,
    mint: Option<Mint>,
    /// What is looked for in the answers.
    known: Known,
}

/// Why a credential cannot be used. Names the credential and its place, never the value.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// The file is not one we would trust with a secret, or cannot be read.
    #[error("credential {name}: {place} {problem}\n  hint: {hint}")]
    File {
        /// The credential.
        name: CredentialName,
        /// Its file or descriptor.
        place: String,
        /// What is wrong with it.
        problem: String,
        /// What to do about it.
        hint: String,
    },
    /// The content is not a secret of this kind.
    #[error("credential {name}: the value in {place} {flaw}\n  hint: {}", flaw.hint())]
    Value {
        /// The credential.
        name: CredentialName,
        /// Where it lies.
        place: String,
        /// What is wrong with the value.
        flaw: Flaw,
    },
    /// The store, or the entry in it.
    #[error("credential {name}: {problem}")]
    Store {
        /// The credential.
        name: CredentialName,
        /// What is wrong, with a hint.
        problem: String,
    },
    /// It could not be kept in protected memory.
    #[error("credential {name}: cannot be kept in protected memory")]
    Memory {
        /// The credential.
        name: CredentialName,
        /// Why not.
        #[source]
        source: VaultError,
    },
    /// The store's key reaches too far, or nobody can tell.
    #[error(transparent)]
    Scope(#[from] crate::store::ProofError),
    /// The store cannot be opened.
    #[error(transparent)]
    NoStore(#[from] crate::store::StoreError),
}

/// Every credential that failed.
#[derive(Debug)]
pub struct CredentialErrors(pub Vec<CredentialError>);

impl fmt::Display for CredentialErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, error) in self.0.iter().enumerate() {
            if at > 0 {
                writeln!(f)?;
            }
            error.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for CredentialErrors {}

impl Credential {
    /// Reads, checks and puts away one credential. The notes are for the operator's log.
    ///
    /// # Errors
    /// [`CredentialError`]
    pub fn load(
        config: &CredentialConfig,
        reader: &Reader<'_>,
    ) -> Result<(Self, Vec<String>), CredentialError> {
        let raw = reader.read(config)?;
        let checked = lint::check(&config.kind, &raw).map_err(|flaw| CredentialError::Value {
            name: config.name.clone(),
            place: config.source.to_string(),
            flaw,
        })?;
        let form = match &config.kind {
            CredentialKind::Bearer | CredentialKind::Openai => Form::Bearer,
            CredentialKind::Basic { username } => Form::Basic {
                username: username.clone(),
            },
            CredentialKind::Header { header } => Form::Header {
                name: header.clone(),
            },
            CredentialKind::GithubToken | CredentialKind::GithubApp(_) => Form::Github,
            CredentialKind::ProxmoxToken { .. } => Form::Proxmox {
                id: checked.proxmox_id.clone().unwrap_or_default(),
            },
            CredentialKind::Anthropic => Form::Anthropic,
            CredentialKind::OauthRefresh(_) => Form::Login,
            CredentialKind::Query { parameter } => Form::Query {
                parameter: parameter.clone(),
            },
        };
        let notes = checked
            .notes
            .iter()
            .map(|note| format!("credential {}: {note}", config.name))
            .collect();
        let mut bytes = checked.secret.to_vec();
        let secret = Secret::take(&mut bytes).map_err(|source| CredentialError::Memory {
            name: config.name.clone(),
            source,
        })?;
        let secret = Arc::new(secret);
        let mint = Mint::of(config, Arc::clone(&secret), reader.config());
        Ok((
            Self {
                name: config.name.clone(),
                form,
                hosts: config.hosts.clone(),
                secret,
                mint,
                known: Known::default(),
            },
            notes,
        ))
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &CredentialName {
        &self.name
    }

    /// Whether the configuration binds it to this host.
    #[must_use]
    pub fn may_go_to(&self, host: &Host) -> bool {
        self.hosts.iter().any(|pattern| pattern.matches(host))
    }

    /// Whether the value is the same; nothing is told of it.
    #[must_use]
    pub fn same_value(&self, other: &Self) -> bool {
        self.secret.expose() == other.secret.expose() && self.form == other.form
    }

    /// What goes on the wire: the secret itself, or the token that was fetched with it. A fetch
    /// under way is joined, not doubled.
    ///
    /// # Errors
    /// [`MintError`]
    pub async fn token(&self, gate: &Arc<Gate>) -> Result<Arc<Secret>, MintError> {
        match &self.mint {
            None => Ok(Arc::clone(&self.secret)),
            Some(mint) => mint.token(gate).await,
        }
    }

    /// The secret, where it is what goes out itself.
    #[must_use]
    pub fn at_hand(&self) -> Option<Arc<Secret>> {
        self.mint.is_none().then(|| Arc::clone(&self.secret))
    }

    /// The far end did not take `token`: one that was fetched is fetched anew next time.
    pub fn refused(&self, token: &Arc<Secret>) {
        if let Some(mint) = &self.mint {
            mint.forget(token);
            self.known.forget(token);
        }
        self.known.tidy();
    }

    /// Lets go of what is kept for tokens that are not used any more.
    pub fn tidy(&self) {
        self.known.tidy();
    }

    /// Where `token` goes on a request to `host` for `target`; nothing unless the credential is
    /// bound to the host. Values are marked sensitive.
    #[must_use]
    pub fn place(&self, host: &Host, target: &str, token: &Secret) -> Option<Placed> {
        self.may_go_to(host)
            .then(|| self.form.place(host, target, token.expose()))
    }

    /// Looks for `token`, which went out as `value`, in an answer.
    #[must_use]
    pub fn scrubber(&self, token: &Arc<Secret>, value: &[u8]) -> Option<Scrubber> {
        self.known.forms(token, value).map(Scrubber::with)
    }
}

/// What keeps `value` from being a secret of this kind.
#[must_use]
pub fn flaw_of(kind: &CredentialKind, value: &[u8]) -> Option<Flaw> {
    lint::check(kind, value).err()
}

/// A field value that is never indexed and never shown.
fn sensitive(bytes: &[u8]) -> HeaderValue {
    let mut value = HeaderValue::from_bytes(bytes)
        .expect("loading admits printable ASCII only, which every field value may hold");
    value.set_sensitive(true);
    value
}

#[cfg(test)]
mod tests;
