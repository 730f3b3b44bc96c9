//! The policies in force, one per profile, and what happens when their files change.
//!
//! A broken policy at start keeps the gate from starting; at reload the old one stays, is marked
//! stale, and everybody who asks is told. Every credential a policy names must exist and be bound
//! to every host the policy would send it to.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use policy::credential::CredentialName;
use policy::{Destination, Diagnostics, Policy};
use serde::Serialize;
use tokio::sync::watch;

use crate::config::{Config, CredentialConfig};
use crate::digest::sha256;
use crate::upstream::verify;

/// The longest policy text that is read.
pub const POLICY_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// A policy with the name and the hash that the audit log shows.
#[derive(Debug)]
pub struct LoadedPolicy {
    /// The policy.
    pub policy: Policy,
    /// SHA-256 of its text, in hex.
    pub hash: String,
    /// The file it came from, or `inline`.
    pub name: String,
}

/// Why a policy cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The file cannot be read.
    #[error(
        "{file}: cannot be read: {source}\n  hint: check its path and that everybody may read it"
    )]
    Unreadable {
        /// The policy file.
        file: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The text is wrong.
    #[error("{0}")]
    Invalid(Diagnostics),
    /// It leads to the board, and the gate has none.
    #[error(
        "{file}: service {service}: kind = \"board\" leads nowhere: {config} has no [board]\n  \
         hint: add [board] with socket = \"/…\" to {config}, or remove the service"
    )]
    Board {
        /// The policy file.
        file: String,
        /// The service's id.
        service: String,
        /// The configuration file.
        config: String,
    },
    /// Sent with a run by a peer that is no admin, it says itself who receives a credential.
    #[error(
        "{file}: service {service}: {host} may receive the credential {credential}, so where it is and \
         how it proves itself is not for this policy to say\n  hint: remove address, ca_file and pin, or \
         have the operator write the service into a profile's policy"
    )]
    Redirected {
        /// What the policy is called.
        file: String,
        /// The service's id.
        service: String,
        /// The host that it leads elsewhere.
        host: String,
        /// The credential that would go there.
        credential: CredentialName,
    },
    /// It trusts certificates that cannot be had.
    #[error(
        "{file}: service {service}: ca_file {ca_file}: {problem}\n  hint: put the CA certificates \
         there as PEM, readable by the gate's user, or use pin"
    )]
    Trust {
        /// The policy file.
        file: String,
        /// The service's id.
        service: String,
        /// The file it names.
        ca_file: String,
        /// What is wrong with it.
        problem: String,
    },
    /// It asks for credentials that are not bound that way.
    #[error("{0}")]
    Binding(Bindings),
}

/// Credentials that a policy names and the configuration does not grant. Never empty.
#[derive(Debug)]
pub struct Bindings(pub Vec<Binding>);

/// One credential use that is not granted.
#[derive(Debug)]
pub struct Binding {
    policy_file: String,
    line: usize,
    config_file: String,
    credential: CredentialName,
    destination: Destination,
    known: bool,
}

impl fmt::Display for Bindings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, binding) in self.0.iter().enumerate() {
            if at > 0 {
                writeln!(f)?;
            }
            binding.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            policy_file,
            line,
            config_file,
            credential,
            destination,
            known,
        } = self;
        let host = &destination.host;
        write!(f, "{policy_file}:{line}: service.credential: ")?;
        if *known {
            write!(
                f,
                "{credential} would go to {host}, but {config_file} binds it elsewhere\n  hint: \
                 add \"{host}\" to hosts of [credential.{credential}] in {config_file}, or use \
                 another credential"
            )
        } else {
            write!(
                f,
                "there is no credential {credential} in {config_file}\n  hint: add \
                 [credential.{credential}] with hosts = [\"{host}\"] to {config_file}, or remove \
                 it from the policy"
            )
        }
    }
}

/// All problems of all policies.
#[derive(Debug)]
pub struct PolicyErrors(pub Vec<PolicyError>);

impl fmt::Display for PolicyErrors {
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

impl std::error::Error for PolicyErrors {}

/// One line of `GET /v1/status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PolicyView {
    /// SHA-256 of the text in force.
    pub hash: String,
    /// The file.
    pub path: PathBuf,
    /// When the policy in force was read, RFC 3339.
    pub loaded_at: String,
    /// Set when the file has changed for the worse and an older policy is in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stale: Option<Stale>,
}

/// The file is broken; the policy in force is older.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Stale {
    /// When the first failed reload was, RFC 3339.
    pub since: String,
    /// The diagnostics.
    pub problem: String,
}

struct Slot {
    view: PolicyView,
    current: watch::Sender<Arc<LoadedPolicy>>,
}

/// The policies in force, by profile.
#[allow(
    missing_debug_implementations,
    reason = "status shows it through view()"
)]
pub struct Policies {
    config: Arc<Config>,
    slots: RwLock<BTreeMap<String, Slot>>,
}

/// What a reload did.
#[derive(Debug, Default)]
pub struct Reloaded {
    /// Profiles whose policy is a new one now.
    pub changed: Vec<String>,
    /// Profiles that kept their old policy, with the diagnostics.
    pub broken: BTreeMap<String, String>,
}

impl Policies {
    /// Reads every profile's policy.
    ///
    /// # Errors
    /// [`PolicyErrors`] with all problems of all files.
    pub fn load(config: Arc<Config>) -> Result<Self, PolicyErrors> {
        let mut slots = BTreeMap::new();
        let mut errors = Vec::new();
        for (name, profile) in &config.profiles {
            match read(&profile.policy, &config) {
                Ok(loaded) => {
                    let view = PolicyView {
                        hash: loaded.hash.clone(),
                        path: profile.policy.clone(),
                        loaded_at: crate::audit::now(),
                        stale: None,
                    };
                    let current = watch::Sender::new(Arc::new(loaded));
                    slots.insert(name.clone(), Slot { view, current });
                }
                Err(error) => errors.push(error),
            }
        }
        if errors.is_empty() {
            Ok(Self {
                config,
                slots: RwLock::new(slots),
            })
        } else {
            Err(PolicyErrors(errors))
        }
    }

    /// Looks again at the files that the policies in force name, as the user that the process is now:
    /// what root could read at the start the service user may not.
    ///
    /// # Errors
    /// [`PolicyErrors`]
    pub fn check_trust(&self) -> Result<(), PolicyErrors> {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        let errors: Vec<PolicyError> = slots
            .values()
            .filter_map(|slot| {
                let loaded = slot.current.borrow();
                trusted(&loaded.policy, &loaded.name).err()
            })
            .collect();
        if errors.is_empty() {
            Ok(())
        } else {
            Err(PolicyErrors(errors))
        }
    }

    /// The policy in force for a profile.
    #[must_use]
    pub fn get(&self, profile: &str) -> Option<Arc<LoadedPolicy>> {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        slots
            .get(profile)
            .map(|slot| Arc::clone(&slot.current.borrow()))
    }

    /// The policy in force for a profile, now and after every reload.
    #[must_use]
    pub fn watch(&self, profile: &str) -> Option<watch::Receiver<Arc<LoadedPolicy>>> {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        slots.get(profile).map(|slot| slot.current.subscribe())
    }

    /// Reads every file again; a broken one leaves its profile as it was, marked stale.
    pub fn reload(&self) -> Reloaded {
        let mut reloaded = Reloaded::default();
        for (name, profile) in &self.config.profiles {
            let fresh = read(&profile.policy, &self.config);
            let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
            let Some(slot) = slots.get_mut(name) else {
                continue;
            };
            match fresh {
                Ok(loaded) => {
                    slot.view.stale = None;
                    if loaded.hash != slot.view.hash {
                        slot.view.hash.clone_from(&loaded.hash);
                        slot.view.loaded_at = crate::audit::now();
                        slot.current.send_replace(Arc::new(loaded));
                        reloaded.changed.push(name.clone());
                    }
                }
                Err(error) => {
                    let problem = error.to_string();
                    let since = slot
                        .view
                        .stale
                        .take()
                        .map_or_else(crate::audit::now, |old| old.since);
                    slot.view.stale = Some(Stale {
                        since,
                        problem: problem.clone(),
                    });
                    reloaded.broken.insert(name.clone(), problem);
                }
            }
        }
        reloaded
    }

    /// A policy text sent by a peer that may, held to the same credential bindings. Unless the peer
    /// is an admin, who could as well write a profile's policy, it cannot lead a credential's host to
    /// another address or another key: a binding to a name is worth what stands behind the name.
    ///
    /// # Errors
    /// [`PolicyError`]
    pub fn inline(&self, text: &str, admin: bool) -> Result<LoadedPolicy, PolicyError> {
        let loaded = parse(text, "inline", &self.config)?;
        if !admin {
            unredirected(&loaded, &self.config)?;
        }
        Ok(loaded)
    }

    /// What status says.
    #[must_use]
    pub fn view(&self) -> BTreeMap<String, PolicyView> {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        slots
            .iter()
            .map(|(name, slot)| (name.clone(), slot.view.clone()))
            .collect()
    }
}

/// Reads one policy file and checks its credentials against the configuration.
///
/// # Errors
/// [`PolicyError`]
pub fn read(path: &Path, config: &Config) -> Result<LoadedPolicy, PolicyError> {
    parse(&read_text(path)?, &path.display().to_string(), config)
}

/// Reads a policy file's text.
///
/// # Errors
/// [`PolicyError::Unreadable`], also for what is no text or is too long.
pub fn read_text(path: &Path) -> Result<String, PolicyError> {
    use std::io::Read;
    let unreadable = |source| PolicyError::Unreadable {
        file: path.display().to_string(),
        source,
    };
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let read = file
        .take(POLICY_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .map_err(unreadable)?;
    if u64::try_from(read).unwrap_or(u64::MAX) > POLICY_BYTES_MAX {
        return Err(unreadable(std::io::ErrorKind::FileTooLarge.into()));
    }
    Ok(text)
}

fn parse(text: &str, name: &str, config: &Config) -> Result<LoadedPolicy, PolicyError> {
    let policy = Policy::parse(text, name).map_err(PolicyError::Invalid)?;
    let mut services = policy.services().iter();
    if config.board_socket.is_none()
        && let Some(board) = services.find(|service| service.kind == "board")
    {
        return Err(PolicyError::Board {
            file: name.to_owned(),
            service: board.id.to_string(),
            config: config.path.display().to_string(),
        });
    }
    trusted(&policy, name)?;
    let bindings = unbound(&policy, text, name, config);
    if !bindings.is_empty() {
        return Err(PolicyError::Binding(Bindings(bindings)));
    }
    Ok(LoadedPolicy {
        policy,
        hash: sha256(text),
        name: name.to_owned(),
    })
}

/// No host to which a credential of this policy may go is led elsewhere by it.
fn unredirected(loaded: &LoadedPolicy, config: &Config) -> Result<(), PolicyError> {
    let own_way =
        loaded.policy.services().iter().filter(|service| {
            service.address.is_some() || service.ca_file.is_some() || service.pinned
        });
    for service in own_way {
        for destination in &service.destinations {
            let receives = loaded.policy.credentials().find(|(name, _)| {
                let known = config.credentials.get(*name);
                known.is_some_and(|known| known.covers(&destination.host))
            });
            if let Some((credential, _)) = receives {
                return Err(PolicyError::Redirected {
                    file: loaded.name.clone(),
                    service: service.id.to_string(),
                    host: destination.host.to_string(),
                    credential: credential.clone(),
                });
            }
        }
    }
    Ok(())
}

/// Every `ca_file` must hold certificates that this process can read.
fn trusted(policy: &Policy, name: &str) -> Result<(), PolicyError> {
    let mut seen = BTreeSet::new();
    for service in policy.services() {
        let Some(ca_file) = service.ca_file.as_deref().filter(|file| seen.insert(*file)) else {
            continue;
        };
        if let Err(problem) = verify::authorities(ca_file) {
            return Err(PolicyError::Trust {
                file: name.to_owned(),
                service: service.id.to_string(),
                ca_file: ca_file.to_owned(),
                problem,
            });
        }
    }
    Ok(())
}

fn unbound(policy: &Policy, text: &str, name: &str, config: &Config) -> Vec<Binding> {
    let mut bindings: Vec<Binding> = Vec::new();
    for (credential, destination) in policy.credentials() {
        let known: Option<&CredentialConfig> = config.credentials.get(credential);
        if known.is_some_and(|known| known.covers(&destination.host)) {
            continue;
        }
        let said = bindings.iter().any(|binding| {
            binding.credential == *credential && binding.destination.host == destination.host
        });
        if !said {
            bindings.push(Binding {
                policy_file: name.to_owned(),
                line: line_of(text, credential),
                config_file: config.path.display().to_string(),
                credential: credential.clone(),
                destination: destination.clone(),
                known: known.is_some(),
            });
        }
    }
    bindings
}

/// The line that names the credential; 1 if the text spells it in some unusual way.
fn line_of(text: &str, credential: &CredentialName) -> usize {
    let quoted = [format!("\"{credential}\""), format!("'{credential}'")];
    text.lines()
        .position(|line| {
            line.contains("credential") && quoted.iter().any(|name| line.contains(name))
        })
        .map_or(1, |at| at + 1)
}

#[cfg(test)]
mod tests;
