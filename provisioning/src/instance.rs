//! An instance on this host: its places, and the few decisions that `up` made once and keeps (`instance.toml`).

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::file::{self, Access, FileError};
use crate::layout::{Layout, LayoutError};

/// The name an instance has when none is given.
pub const DEFAULT_NAME: &str = "portcullis";
/// The repository of the local stand-in.
pub const STAND_IN_REPO: &str = "acme/web";
/// The host name the stand-in answers for; it resolves nowhere, the policy gives its address.
pub const STAND_IN_HOST: &str = "git.portcullis.test";

#[derive(Debug, Error)]
pub enum InstanceError {
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error(
        "{path}: {source}\n  hint: correct that line, or remove the file and run `portcullis up` again"
    )]
    Malformed {
        path: PathBuf,
        #[source]
        source: Box<toml::de::Error>,
    },
    #[error(
        "{path} belongs to an instance named {found:?}, not {wanted:?}\n  hint: use --name {found}, or another --prefix"
    )]
    OtherName {
        path: PathBuf,
        found: String,
        wanted: String,
    },
    #[error(
        "there is no Portcullis at {0}\n  hint: `portcullis up` makes one; --prefix names another place"
    )]
    NotHere(PathBuf),
}

/// Whom the boundary of an instance shuts in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// The accounts of agents, and every id they own.
    #[default]
    Agents,
    /// Everything but the gate: the machine exists for agents alone.
    Guest,
}

impl Scope {
    /// As it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Agents => "agents",
            Self::Guest => "guest",
        }
    }

    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// What `up` decided for this instance; rewritten only when a person asks for something else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Names users, units, control groups and the ruleset table.
    pub name: String,
    /// `owner/name` of the repository the gate test pushes to.
    pub repo: String,
    /// The loopback port of the local stand-in; absent when the upstream is github.com.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stand_in_port: Option<u16>,
    /// The loopback port reserved for the gate's TCP entrance, which the boundary guards.
    pub gate_port: u16,
    /// Whom the boundary shuts in.
    #[serde(default, skip_serializing_if = "Scope::is_default")]
    pub scope: Scope,
}

/// Places and decisions together.
#[derive(Debug, Clone)]
pub struct Instance {
    pub layout: Layout,
    pub record: Record,
}

impl Instance {
    /// The instance at a prefix, if there is one.
    ///
    /// # Errors
    /// When its record cannot be read or names something unusable.
    pub fn find(prefix: &Path) -> Result<Option<Self>, InstanceError> {
        let path = Layout::new(prefix, DEFAULT_NAME)?.config("instance");
        if !path.exists() {
            return Ok(None);
        }
        let text = file::read(&path)?;
        let record: Record = toml::from_str(&text).map_err(|source| InstanceError::Malformed {
            path,
            source: Box::new(source),
        })?;
        Ok(Some(Self {
            layout: Layout::new(prefix, &record.name)?,
            record,
        }))
    }

    /// As [`Instance::find`], where there must be one, and of that name if one is given.
    ///
    /// # Errors
    /// As [`Instance::find`]; also when there is none or it has another name.
    pub fn open(prefix: &Path, name: Option<&str>) -> Result<Self, InstanceError> {
        let found = Self::find(prefix)?.ok_or_else(|| InstanceError::NotHere(prefix.into()))?;
        match name {
            Some(wanted) if wanted != found.record.name => Err(InstanceError::OtherName {
                path: found.layout.config("instance"),
                found: found.record.name,
                wanted: wanted.to_owned(),
            }),
            _ => Ok(found),
        }
    }

    /// The record as the file holds it.
    #[must_use]
    pub fn text(&self) -> String {
        let body = toml::to_string(&self.record).unwrap_or_default();
        format!("# Written by `portcullis up`; `status` and `down` read it.\n{body}")
    }

    /// # Errors
    /// When the file cannot be written.
    pub fn save(&self) -> Result<(), InstanceError> {
        let path = self.layout.config("instance");
        Ok(file::write(
            &path,
            self.text().as_bytes(),
            Access::root(0o644),
        )?)
    }

    /// Whether the upstream is the local stand-in.
    #[must_use]
    pub fn has_stand_in(&self) -> bool {
        self.record.stand_in_port.is_some()
    }

    /// The host name of the upstream.
    #[must_use]
    pub fn upstream_host(&self) -> &'static str {
        if self.has_stand_in() {
            STAND_IN_HOST
        } else {
            "github.com"
        }
    }

    /// The accounts of the instance, with what each is for.
    #[must_use]
    pub fn accounts(&self) -> Vec<(String, &'static str)> {
        let mut accounts = vec![
            (self.layout.user("proxy"), "the gate"),
            (self.layout.user("orchestrator"), "tickets and runs"),
            (
                self.layout.user("exec"),
                "reserves ids for `portcullis exec`; nothing runs as it",
            ),
        ];
        if self.has_stand_in() {
            accounts.push((
                self.layout.user("standin"),
                "the local git host of the demo",
            ));
        }
        accounts
    }

    /// The accounts that own one subordinate range each.
    #[must_use]
    pub fn range_owners(&self) -> Vec<String> {
        vec![self.layout.user("orchestrator"), self.layout.user("exec")]
    }
}
