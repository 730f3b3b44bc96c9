//! The key that signs the audit log's checkpoints, made by the gate itself, so that it is never in another process; its
//! public half lies with what clients may read.

use std::path::PathBuf;

use super::{State, Step, StepError, doing};
use crate::control;
use crate::file::{self, Access};
use crate::site::Site;

/// `portcullis-proxy audit keygen`.
#[derive(Debug)]
pub struct AuditKey;

/// The secret key, the public one beside it, and the public one for everybody.
fn files(site: &Site) -> (PathBuf, PathBuf, PathBuf) {
    let layout = &site.instance.layout;
    let secret = layout.audit_key();
    let mut beside = secret.clone().into_os_string();
    beside.push(".pub");
    (
        secret,
        PathBuf::from(beside),
        layout.trust().join("audit.asc"),
    )
}

impl Step for AuditKey {
    fn name(&self) -> String {
        "audit key".to_owned()
    }

    fn check(&self, site: &Site) -> Result<State, StepError> {
        let (secret, beside, shown) = files(site);
        let access = site
            .access("proxy", 0o600)
            .ok_or(StepError::NoAccount("proxy"))?;
        let mut problems = Vec::new();
        for path in [&secret, &beside] {
            if !path.exists() {
                problems.push(format!("{} is missing", path.display()));
            }
        }
        if problems.is_empty() {
            problems.extend(access.difference(&secret));
            let public = file::read(&beside)?;
            if std::fs::read_to_string(&shown).ok().as_deref() != Some(public.as_str()) {
                problems.push(format!("{} is not current", shown.display()));
            }
        }
        Ok(State::from_problems(problems))
    }

    fn apply(&self, site: &Site) -> Result<(), StepError> {
        let (secret, beside, shown) = files(site);
        if !secret.exists() {
            doing("make a key that signs the audit log, as the gate's own user");
            let key = secret.display().to_string();
            control::gate(&site.instance, &["audit", "keygen", "--key", &key])
                .as_user(&site.instance.layout.user("proxy"))?
                .run()?;
        }
        doing(&format!("write {}", shown.display()));
        let public = file::read(&beside)?;
        file::write(&shown, public.as_bytes(), Access::root(0o644))?;
        Ok(())
    }

    fn repair(&self, site: &Site) -> String {
        format!("ls -l {}", site.instance.layout.audit_key().display())
    }
}
