//! Credentials: read from files nobody else can read, checked before use, injected in the form of
//! their kind, and only towards the hosts the configuration binds them to.
//!
//! Nothing here prints a secret or its length. [`Vault`] is what the data path asks.

mod file;
mod lint;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};
use policy::authority::Host;
use policy::credential::CredentialName;
use policy::pattern::HostPattern;
use serde::Serialize;
use zeroize::Zeroizing;

use crate::config::{Config, CredentialConfig, CredentialKind};
use crate::vault::{Secret, VaultError};

pub use lint::{Flaw, is_proxmox_id};

/// One credential that passed every check.
#[allow(
    missing_debug_implementations,
    reason = "holds a secret, which is never printed"
)]
pub struct Credential {
    name: CredentialName,
    form: Form,
    hosts: Vec<HostPattern>,
    secret: Secret,
}

/// How the secret is written into a field.
enum Form {
    Bearer,
    Basic { username: String },
    Header { name: HeaderName },
    Github,
    Proxmox { id: String },
}

/// Why a credential cannot be used. Names the credential and its file, never the value.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// The file is not one we would trust with a secret, or cannot be read.
    #[error("credential {name}: {file} {problem}\n  hint: {hint}")]
    File {
        /// The credential.
        name: CredentialName,
        /// Its file.
        file: PathBuf,
        /// What is wrong with the file.
        problem: String,
        /// What to do about it.
        hint: String,
    },
    /// The content is not a secret of this kind.
    #[error("credential {name}: the value in {file} {flaw}\n  hint: {}", flaw.hint())]
    Value {
        /// The credential.
        name: CredentialName,
        /// Its file.
        file: PathBuf,
        /// What is wrong with the value.
        flaw: Flaw,
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
    pub fn load(config: &CredentialConfig) -> Result<(Self, Vec<String>), CredentialError> {
        let raw = file::read(config)?;
        let checked = lint::check(&config.kind, &raw).map_err(|flaw| CredentialError::Value {
            name: config.name.clone(),
            file: config.file.clone(),
            flaw,
        })?;
        let form = match (&config.kind, checked.proxmox_id) {
            (CredentialKind::Bearer, _) => Form::Bearer,
            (CredentialKind::Basic { username }, _) => Form::Basic {
                username: username.clone(),
            },
            (CredentialKind::Header { header }, _) => Form::Header {
                name: header.clone(),
            },
            (CredentialKind::GithubToken, _) => Form::Github,
            (CredentialKind::ProxmoxToken { .. }, id) => Form::Proxmox {
                id: id.unwrap_or_default(),
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
        let hosts = config.hosts.clone();
        Ok((
            Self {
                name: config.name.clone(),
                form,
                hosts,
                secret,
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

    /// The field to set on a request to `host`; nothing unless the credential is bound to it. `git`
    /// says that the request is git's own protocol, for which a GitHub token travels as Basic. The
    /// value is marked sensitive.
    #[must_use]
    pub fn header(&self, host: &Host, git: bool) -> Option<(HeaderName, HeaderValue)> {
        if !self.may_go_to(host) {
            return None;
        }
        let secret = self.secret.expose();
        let (name, text) = match &self.form {
            Form::Bearer => (AUTHORIZATION, joined(&[b"Bearer ", secret])),
            Form::Basic { username } => (AUTHORIZATION, basic(username.as_bytes(), secret)),
            Form::Header { name } => (name.clone(), joined(&[secret])),
            Form::Github if git => (AUTHORIZATION, basic(b"x-access-token", secret)),
            Form::Github => (AUTHORIZATION, joined(&[b"Bearer ", secret])),
            Form::Proxmox { id } => (
                AUTHORIZATION,
                joined(&[b"PVEAPIToken=", id.as_bytes(), b"=", secret]),
            ),
        };
        let mut value = HeaderValue::from_bytes(&text)
            .expect("loading admits printable ASCII only, which every field value may hold");
        value.set_sensitive(true);
        Some((name, value))
    }
}

fn joined(parts: &[&[u8]]) -> Zeroizing<Vec<u8>> {
    let mut whole = Zeroizing::new(Vec::with_capacity(
        parts.iter().map(|part| part.len()).sum(),
    ));
    for part in parts {
        whole.extend_from_slice(part);
    }
    whole
}

fn basic(username: &[u8], secret: &[u8]) -> Zeroizing<Vec<u8>> {
    let pair = joined(&[username, b":", secret]);
    let encoded = Zeroizing::new(STANDARD.encode(&*pair));
    joined(&[b"Basic ", encoded.as_bytes()])
}

/// One line of `GET /v1/status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CredentialView {
    /// The credential.
    pub name: CredentialName,
    /// Its kind, as the configuration writes it.
    pub kind: &'static str,
    /// Whether it can be injected now.
    pub ok: bool,
    /// Why not, or why an older value is in use. Absent when all is well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

struct Entry {
    current: Option<Arc<Credential>>,
    problem: Option<String>,
}

/// All credentials of the gate, by name.
///
/// While the boundary is not proven the vault is [sealed](Vault::seal): it holds nothing.
#[allow(
    missing_debug_implementations,
    reason = "holds secrets, which are never printed"
)]
pub struct Vault {
    configs: Vec<CredentialConfig>,
    entries: RwLock<BTreeMap<CredentialName, Entry>>,
}

impl Vault {
    /// Loads every credential of the configuration; one that fails keeps the gate from starting.
    ///
    /// # Errors
    /// [`CredentialErrors`] with all of them.
    pub fn load(config: &Config) -> Result<Self, CredentialErrors> {
        let vault = Self {
            configs: config.credentials.values().cloned().collect(),
            entries: RwLock::new(BTreeMap::new()),
        };
        let errors = vault.reload();
        if errors.is_empty() {
            Ok(vault)
        } else {
            Err(CredentialErrors(errors))
        }
    }

    /// The credential, unless it never loaded or the vault is sealed.
    #[must_use]
    pub fn get(&self, name: &CredentialName) -> Option<Arc<Credential>> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries.get(name).and_then(|entry| entry.current.clone())
    }

    /// Reads every file again. A credential that fails keeps its former value and says so in
    /// [`Vault::view`].
    pub fn reload(&self) -> Vec<CredentialError> {
        let mut errors = Vec::new();
        for config in &self.configs {
            let loaded = Credential::load(config);
            let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
            let entry = entries.entry(config.name.clone()).or_insert(Entry {
                current: None,
                problem: None,
            });
            match loaded {
                Ok((credential, notes)) => {
                    for note in notes {
                        tracing::warn!("{note}");
                    }
                    *entry = Entry {
                        current: Some(Arc::new(credential)),
                        problem: None,
                    };
                }
                Err(error) => {
                    entry.problem = Some(error.to_string());
                    errors.push(error);
                }
            }
        }
        errors
    }

    /// Forgets every secret until [`Vault::reload`].
    pub fn seal(&self) {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        for entry in entries.values_mut() {
            entry.current = None;
            entry.problem = Some("not held while the boundary is not proven".to_owned());
        }
    }

    /// What status says: names and kinds.
    #[must_use]
    pub fn view(&self) -> Vec<CredentialView> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let view = |config: &CredentialConfig| {
            let entry = entries.get(&config.name);
            CredentialView {
                name: config.name.clone(),
                kind: config.kind.word(),
                ok: entry.is_some_and(|entry| entry.current.is_some()),
                problem: entry.and_then(|entry| entry.problem.clone()),
            }
        };
        self.configs.iter().map(view).collect()
    }
}

#[cfg(test)]
mod tests;
