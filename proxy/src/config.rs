//! `proxy.toml`: read whole, checked whole, before any socket, file or capability is touched.
//!
//! Every problem is reported in one pass as `FILE:LINE: KEY: problem` with a `hint:` line below. An
//! unknown key is an error that names the nearest known one. No environment variable is looked at.
//! The keys are described where they land: the public fields of [`Config`].

mod allowance;
mod audit;
#[allow(
    clippy::wildcard_enum_match_arm,
    reason = "of TOML's types one is wanted, and every other is the same mistake"
)]
mod document;
mod limits;
mod parse;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use policy::authority::{Authority, Host};
use policy::credential::CredentialName;
use policy::grant::TokenDigest;
use policy::pattern::HostPattern;

pub use allowance::AllowanceConfig;
pub use audit::{AuditConfig, MetricsConfig};
pub use document::Problem;
pub use limits::Limits;

use crate::boundary::Source;
use crate::harden::VisibleUids;
use crate::store::{EntryName, Foreign, ProofError};

/// Where the configuration lies unless `--config` says otherwise.
pub const DEFAULT_PATH: &str = "/etc/portcullis/proxy.toml";

/// The whole configuration, resolved: user names are uids, every path is absolute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The file this was read from.
    pub path: PathBuf,
    /// `[listen]`: the TCP entrances, if there are any.
    pub listen: Option<Listen>,
    /// `[control]`
    pub control: Control,
    /// `[runs] directory`: where each run gets a directory with its socket.
    pub runs_directory: PathBuf,
    /// `[board] socket`: the orchestrator's agent-facing socket, dialled for `kind = "board"`.
    pub board_socket: Option<PathBuf>,
    /// `[ca] directory`: holds `ca.key` and `ca.pem`.
    pub ca_directory: PathBuf,
    /// `[audit] directory`: holds `audit.jsonl`.
    pub audit_directory: PathBuf,
    /// The rest of `[audit]`.
    pub audit: AuditConfig,
    /// `[metrics]`: the loopback port for a scraper, if there is one.
    pub metrics: Option<MetricsConfig>,
    /// `[boundary]`: who proves that the kernel boundary holds.
    pub boundary: Source,
    /// `[profile.NAME]`
    pub profiles: BTreeMap<String, Profile>,
    /// `[store]`: the OpenPGP store that entries are read from.
    pub store: Option<StoreConfig>,
    /// `[credential.NAME]`
    pub credentials: BTreeMap<CredentialName, CredentialConfig>,
    /// `[limits]`
    pub limits: Limits,
    /// `[allowance]`
    pub allowance: AllowanceConfig,
}

/// The TCP entrances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// A loopback address, where a client's uid is who it is.
    pub tcp: Option<SocketAddr>,
    /// Unix sockets, where a client's uid is who it is: for agents in containers that have no network.
    pub unix: Vec<PathBuf>,
    /// Addresses where the token that a client shows is who it is.
    pub token: Vec<SocketAddr>,
    /// Loopback addresses to which the boundary redirects agents' connections.
    pub redirected: Vec<SocketAddr>,
    /// Loopback addresses on which names are answered.
    pub resolver: Vec<SocketAddr>,
    /// Who a client's uid is; a uid that is not listed is refused.
    pub identities: Vec<Identity>,
    /// Whose a token is, beside those of runs.
    pub tokens: Vec<TokenIdentity>,
    /// Who is at an address of another machine or container, on the token entrance and without a token.
    pub places: Vec<AddressIdentity>,
}

/// `[[listen.identity]]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Never 0, 65534 or the gate's own.
    pub uid: u32,
    /// Label of the agent.
    pub agent: String,
    /// Label of the company.
    pub company: String,
    /// Name of a `[profile.NAME]`.
    pub profile: String,
}

/// `[[listen.identity]]` with `token_sha256` in the place of `uid`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenIdentity {
    /// What the token digests to.
    pub digest: TokenDigest,
    /// Label of the agent.
    pub agent: String,
    /// Label of the company.
    pub company: String,
    /// Name of a `[profile.NAME]`.
    pub profile: String,
}

/// `[[listen.identity]]` with `address` in the place of `uid`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressIdentity {
    /// Where its connections come from; never mapped, never of this machine.
    pub address: IpAddr,
    /// Label of the agent.
    pub agent: String,
    /// Label of the company.
    pub company: String,
    /// Name of a `[profile.NAME]`.
    pub profile: String,
}

/// The control socket and who may use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Control {
    /// The unix socket.
    pub socket: PathBuf,
    /// `[[control.peer]]`, by uid.
    pub peers: BTreeMap<u32, Peer>,
}

/// `[[control.peer]]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// The uid that SO_PEERCRED must show.
    pub uid: u32,
    /// The user as it was written.
    pub user: String,
    /// Profiles this peer may open runs with.
    pub profiles: Vec<String>,
    /// Whether it may send a policy text of its own.
    pub inline: bool,
    /// Whether it may reload, and end runs that others opened.
    pub admin: bool,
}

/// `[profile.NAME]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// The policy file.
    pub policy: PathBuf,
}

/// `[credential.NAME]`: where a secret lies, what form it takes and where it may go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialConfig {
    /// The name that policies use.
    pub name: CredentialName,
    /// The form it takes on the wire.
    pub kind: CredentialKind,
    /// Where the secret lies.
    pub source: SecretSource,
    /// The hosts it is bound to, whatever a policy says.
    pub hosts: Vec<HostPattern>,
    /// One harmless call that tells whether it works.
    pub canary: Option<CanaryConfig>,
}

/// `[store]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreConfig {
    /// The store's directory, in the layout of pass and gopass.
    pub directory: PathBuf,
    /// The secret key, a file with mode 0600 or 0400.
    pub key: PathBuf,
    /// What the key must not be able to read.
    pub scope: ScopeProof,
    /// Where the gate keeps what rotates by itself, sealed with the key; needed for
    /// `kind = "oauth-refresh"`.
    pub state: Option<PathBuf>,
}

/// How it is known that the store's key reaches no further than the agents' entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScopeProof {
    /// `operator_entries`: the operator's store, or one entry of it, tried at every start.
    Entries(PathBuf),
    /// `no_operator_entries`: nobody proves it, for this reason.
    None(String),
}

/// Where a secret lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// `file`: mode 0600 or 0400.
    File(PathBuf),
    /// `descriptor`: inherited, and readable from its beginning again and again.
    Descriptor(i32),
    /// `entry`: in the store.
    Entry(EntryName),
}

impl fmt::Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Descriptor(number) => write!(f, "descriptor {number}"),
            Self::Entry(name) => write!(f, "the store's entry {name}"),
        }
    }
}

/// `canary = "GET /user"`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CanaryConfig {
    /// Whom it goes to: the first plain name in `hosts`, or the URL's.
    pub authority: Authority,
    /// `GET` or `HEAD`.
    pub method: http::Method,
    /// Path and query.
    pub target: String,
    /// `canary_required`: a credential that fails it is not used.
    pub required: bool,
}

/// The form a credential takes on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialKind {
    /// `Authorization: Bearer SECRET`
    Bearer,
    /// `Authorization: Basic base64(username:SECRET)`
    Basic {
        /// The user name, without a colon.
        username: String,
    },
    /// `HEADER: SECRET`
    Header {
        /// Lower-case field name.
        header: http::HeaderName,
    },
    /// Basic with `x-access-token` for git and LFS, Bearer for the API.
    GithubToken,
    /// A GitHub App's private key: installation tokens are minted with it and used like a
    /// `github-token`.
    GithubApp(GithubApp),
    /// `x-api-key`, or Bearer for a token of a login.
    Anthropic,
    /// Bearer.
    Openai,
    /// A login whose refresh token rotates: access tokens are fetched with it and used as Bearer.
    OauthRefresh(OauthRefresh),
    /// `?PARAMETER=SECRET`
    Query {
        /// The parameter's name, of letters, digits, `-`, `_` and `.`.
        parameter: String,
    },
    /// `Authorization: PVEAPIToken=ID=SECRET`
    ProxmoxToken {
        /// `user@realm!name`; absent when the value is `id=secret`.
        id: Option<String>,
    },
}

/// `kind = "github-app"`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GithubApp {
    /// The app's id or client id.
    pub app: String,
    /// The installation whose tokens are asked for.
    pub installation: u64,
    /// Names of repositories (without owner) that tokens are narrowed to; all if empty.
    pub repositories: Vec<String>,
    /// The API host.
    pub api: Authority,
}

/// `kind = "oauth-refresh"`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OauthRefresh {
    /// Whom tokens are fetched from.
    pub authority: Authority,
    /// The path there.
    pub target: String,
    /// `client_id`
    pub client: String,
}

impl CredentialKind {
    /// Whether the value is all of an entry's text rather than its first line.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        matches!(self, Self::GithubApp(_))
    }

    /// The word that the configuration uses.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Bearer => "bearer",
            Self::Basic { .. } => "basic",
            Self::Header { .. } => "header",
            Self::GithubToken => "github-token",
            Self::GithubApp(_) => "github-app",
            Self::Anthropic => "anthropic",
            Self::Openai => "openai",
            Self::OauthRefresh(_) => "oauth-refresh",
            Self::Query { .. } => "query",
            Self::ProxmoxToken { .. } => "proxmox-token",
        }
    }
}

impl StoreConfig {
    /// The operator's entries, read as they are: before privileges go, since nobody else may read
    /// them.
    ///
    /// # Errors
    /// [`ProofError`]: the gate does not start.
    pub fn collect_foreign(&self) -> Result<Option<Foreign>, ProofError> {
        match &self.scope {
            ScopeProof::Entries(place) => Foreign::collect(place).map(Some),
            ScopeProof::None(_) => Ok(None),
        }
    }
}

impl CredentialConfig {
    /// Whether the binding covers this host.
    #[must_use]
    pub fn may_go_to(&self, host: &Host) -> bool {
        self.hosts.iter().any(|pattern| pattern.matches(host))
    }

    /// Whether the binding covers everything that a policy's pattern could lead to.
    #[must_use]
    pub fn covers(&self, wanted: &HostPattern) -> bool {
        self.hosts.iter().any(|pattern| pattern.covers(wanted))
    }
}

/// Why a configuration is not usable.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {path}")]
    Unreadable {
        /// The file.
        path: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The file was read and is wrong.
    #[error("{0}")]
    Invalid(Problems),
}

/// All problems of one file, in the order of its lines. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.0.iter().enumerate() {
            if at > 0 {
                writeln!(f)?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl Config {
    /// Where it is kept what was taken of allowances.
    #[must_use]
    pub fn allowance_directory(&self) -> PathBuf {
        let own = self.allowance.directory.clone();
        own.unwrap_or_else(|| self.audit_directory.with_file_name("allowance"))
    }

    /// Where it is kept what is known of repositories.
    #[must_use]
    pub fn history_directory(&self) -> PathBuf {
        self.audit_directory.with_file_name("history")
    }

    /// Reads and checks a file. Only this file and the user database are looked at.
    ///
    /// # Errors
    /// [`ConfigError::Unreadable`], or [`ConfigError::Invalid`] with every problem.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Unreadable {
            path: path.display().to_string(),
            source,
        })?;
        Self::parse(&text, path)
    }

    /// Checks a text that was read from `path`.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] with every problem.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        parse::parse(text, path, &parse::uid_of)
    }

    /// What only the running gate can tell: its own uid is never an identity, and every uid that it
    /// is to judge must be one the kernel can name to it.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] naming each uid.
    pub fn check_uids(&self, own: u32, visible: &VisibleUids) -> Result<(), ConfigError> {
        let identities = self.listen.iter().flat_map(|listen| &listen.identities);
        let identities = identities.map(|identity| ("listen.identity.uid", identity.uid));
        let peers = self
            .control
            .peers
            .keys()
            .map(|uid| ("control.peer.user", *uid));
        let problem = |(key, uid): (&str, u32)| {
            let (text, hint) = if key == "listen.identity.uid" && uid == own {
                (
                    format!("{uid} is the gate's own uid"),
                    "give the agent a user of its own",
                )
            } else if !visible.cover(uid, 1) {
                (
                    format!("uid {uid} is not mapped in the gate's user namespace"),
                    "do not give the gate a user namespace of its own (PrivateUsers=)",
                )
            } else {
                return None;
            };
            Some(Problem {
                file: self.path.display().to_string(),
                line: 0,
                key: key.to_owned(),
                text,
                hint: hint.to_owned(),
            })
        };
        let problems: Vec<Problem> = identities.chain(peers).filter_map(problem).collect();
        if problems.is_empty() {
            Ok(())
        } else {
            Err(ConfigError::Invalid(Problems(problems)))
        }
    }
}

#[cfg(test)]
mod tests;
