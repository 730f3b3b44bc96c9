//! What the control socket is about: the parts of the gate that can be asked about and reloaded.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use policy::credential::CredentialName;
use serde::Serialize;

use crate::allowance::AllowanceView;
use crate::audit::{Audit, AuditView};
use crate::boundary::{Boundary, BoundaryProof, Source};
use crate::ca::{self, CaView, Minter};
use crate::config::{Config, ScopeProof};
use crate::credential::{CredentialView, Vault};
use crate::descriptors::{Descriptors, DescriptorsView};
use crate::policies::{Policies, PolicyView};
use crate::runs::Runs;

/// An authority with fewer days left than this should be replaced.
const CA_DAYS: i64 = 30;

/// Everything that status, reload and runs need.
#[allow(missing_debug_implementations, reason = "leads to secrets")]
pub struct Custody {
    /// The configuration the process started with.
    pub config: Arc<Config>,
    /// The policies in force.
    pub policies: Arc<Policies>,
    /// The credentials.
    pub vault: Arc<Vault>,
    /// The audit log.
    pub audit: Arc<Audit>,
    /// The open runs.
    pub runs: Arc<Runs>,
    /// The kernel boundary's proof.
    pub boundary: Arc<Boundary>,
    /// Who makes certificates for clients.
    pub minter: Arc<Minter>,
    /// What connections take.
    pub descriptors: Arc<Descriptors>,
    /// When the process started, RFC 3339.
    pub started_at: String,
    /// Processes found under the gate's uid at start.
    pub neighbours: Vec<u32>,
}

/// Body of `GET /v1/status`.
#[derive(Debug, Serialize)]
pub struct Status {
    /// The version of the program.
    pub version: &'static str,
    /// Its process id.
    pub pid: u32,
    /// When it started, RFC 3339.
    pub started_at: String,
    /// Whether a permitted request would pass now: boundary proven, log written, nothing stale.
    pub ready: bool,
    /// The configuration file.
    pub config: PathBuf,
    /// Whether the kernel boundary holds.
    pub boundary: BoundaryView,
    /// The policy of each profile.
    pub policies: BTreeMap<String, PolicyView>,
    /// The credentials by name and kind.
    pub credentials: Vec<CredentialView>,
    /// The certificate authority, and its successor during a rotation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<CaView>,
    /// How many runs are open.
    pub runs: usize,
    /// What askers with limits have taken.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowances: Vec<AllowanceView>,
    /// The audit log.
    pub audit: AuditView,
    /// Descriptors for connections; without one left the gate is not ready.
    pub descriptors: DescriptorsView,
    /// What an operator should know although nothing is refused because of it.
    pub warnings: Vec<String>,
}

/// Whether the kernel boundary holds, and how that is known.
#[derive(Debug, Serialize)]
pub struct BoundaryView {
    /// Whether it is proven.
    pub ok: bool,
    /// The proof.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub proof: Option<BoundaryProof>,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The file that tells, for whoever wants to see for himself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<PathBuf>,
}

/// What a reload did.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// Profiles whose policy changed.
    pub changed: Vec<String>,
    /// Profiles whose file is broken, with the diagnostics; the old policy stays in force.
    pub broken_policies: BTreeMap<String, String>,
    /// Credentials that could not be read again; the old values stay in use.
    pub broken_credentials: Vec<String>,
    /// Credentials whose new value is not in use before its canary has passed.
    pub waiting_credentials: Vec<CredentialName>,
    /// Set while the boundary is not proven: no credential is held, and each is read when it is.
    pub sealed: bool,
    /// The audit log, if it had been rotated and could not be begun anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broken_audit: Option<String>,
    /// Set when the configuration file has changed, which only a restart takes up.
    pub restart_needed: bool,
}

impl Report {
    /// Whether everything was taken up.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.broken_policies.is_empty()
            && self.broken_credentials.is_empty()
            && self.broken_audit.is_none()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_whole() {
            f.write_str("reloaded")?;
            match self.changed.as_slice() {
                [] => f.write_str(": no policy changed")?,
                changed => write!(f, ": new policy for {}", changed.join(", "))?,
            }
        }
        for (profile, problem) in &self.broken_policies {
            writeln!(
                f,
                "profile {profile} keeps its old policy, which is stale now:\n{problem}"
            )?;
        }
        for problem in &self.broken_credentials {
            writeln!(f, "the former value stays in use:\n{problem}")?;
        }
        if let Some(problem) = &self.broken_audit {
            writeln!(f, "{problem}")?;
        }
        if self.restart_needed {
            write!(
                f,
                "\nthe configuration file has changed: restart to take it up"
            )?;
        }
        Ok(())
    }
}

impl Custody {
    /// What is so at this moment.
    #[must_use]
    pub fn status(&self) -> Status {
        let (proof, problem) = match self.boundary.look() {
            Ok(proof) => (Some(proof), None),
            Err(problem) => (None, Some(problem.to_string())),
        };
        let boundary = BoundaryView {
            ok: proof.is_some(),
            proof,
            problem,
            status: self.boundary.status_file().map(Path::to_path_buf),
        };
        let policies = self.policies.view();
        let credentials = self.vault.view();
        let audit = self.audit.view();
        let descriptors = self.descriptors.view();
        let ready = boundary.ok
            && audit.ok
            && descriptors.ok
            && policies.values().all(|policy| policy.stale.is_none())
            && credentials
                .iter()
                .all(|credential| credential.problem.is_none());
        Status {
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            started_at: self.started_at.clone(),
            ready,
            config: self.config.path.clone(),
            boundary,
            policies,
            credentials,
            ca: ca::view(&self.config.ca_directory).ok(),
            runs: self.runs.views().len(),
            // Whoever counts them adds them.
            allowances: Vec::new(),
            audit,
            descriptors,
            warnings: self.warnings(),
        }
    }

    /// How many leaf certificates are kept, and how many may be.
    #[must_use]
    pub fn leaf_cache(&self) -> Option<(u64, u64)> {
        let (cached, most) = self.minter.cached();
        Some((u64::try_from(cached).ok()?, u64::try_from(most).ok()?))
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Source::External(reason) = self.boundary.source() {
            warnings.push(format!(
                "the boundary is not proven by this machine: {reason}"
            ));
        }
        if self.config.audit.signing_key.is_none() {
            warnings.push("the audit log is not signed: [audit] names no signing_key".to_owned());
        }
        if let Some(ScopeProof::None(reason)) = self.config.store.as_ref().map(|store| &store.scope)
        {
            warnings.push(format!(
                "nothing proves that the store's key reads no more than it should: {reason}"
            ));
        }
        for credential in self.vault.view() {
            if let Some(sick) = &credential.sick {
                warnings.push(format!(
                    "credential {} is refused by {} since {}",
                    credential.name, sick.by, sick.since
                ));
            }
        }
        if !self.neighbours.is_empty() {
            let pids: Vec<String> = self.neighbours.iter().map(u32::to_string).collect();
            warnings.push(format!(
                "other processes ran under the gate's uid at start: {}",
                pids.join(", ")
            ));
        }
        match ca::view(&self.config.ca_directory) {
            Ok(view) if view.current.days_left < CA_DAYS && view.next.is_none() => {
                warnings.push(format!(
                    "the certificate authority ends on {}: portcullis-proxy ca rotate makes its successor",
                    view.current.expires
                ));
            }
            Ok(_) => {}
            Err(problem) => warnings.push(problem.to_string()),
        }
        warnings
    }

    /// Reads policies and credentials again, and follows a rotation of the log. What is broken
    /// stays as it was and is named. Blocks on files.
    pub fn reload(&self) -> Report {
        let policies = self.policies.reload();
        // A sealed vault stays empty: it is filled when the boundary is proven.
        let sealed = self.boundary.check().is_err();
        let broken_credentials = match sealed {
            false => self
                .vault
                .reload()
                .iter()
                .map(ToString::to_string)
                .collect(),
            true => Vec::new(),
        };
        let broken_audit = self.audit.reopen().err().map(|problem| problem.to_string());
        let restart_needed = match Config::load(&self.config.path) {
            Ok(fresh) => fresh != *self.config,
            Err(_) => true,
        };
        let report = Report {
            changed: policies.changed,
            broken_policies: policies.broken,
            broken_credentials,
            waiting_credentials: self.vault.waiting(),
            sealed,
            broken_audit,
            restart_needed,
        };
        if report.is_whole() {
            tracing::info!("{report}");
        } else {
            tracing::error!("{report}");
        }
        self.audit.event(&summary(&report));
        report
    }
}

fn summary(report: &Report) -> String {
    let mut parts = vec!["reload".to_owned()];
    if !report.changed.is_empty() {
        parts.push(format!("new policy for {}", report.changed.join(", ")));
    }
    if !report.broken_policies.is_empty() {
        let names: Vec<&str> = report.broken_policies.keys().map(String::as_str).collect();
        parts.push(format!(
            "broken policy, old one kept for {}",
            names.join(", ")
        ));
    }
    if !report.broken_credentials.is_empty() {
        let count = report.broken_credentials.len();
        parts.push(format!("{count} credentials could not be read again"));
    }
    parts.join("; ")
}
