//! The gate's certificate authority, made by the gate itself, so that its key is never in another process.

use super::{State, Step, StepError, doing};
use crate::control;
use crate::site::Site;

/// `portcullis-proxy ca init`.
#[derive(Debug)]
pub struct Authority;

impl Step for Authority {
    fn name(&self) -> String {
        "certificate authority".to_owned()
    }

    fn check(&self, site: &Site) -> Result<State, StepError> {
        let ca = site.instance.layout.proxy_state().join("ca");
        let access = site
            .access("proxy", 0o600)
            .ok_or(StepError::NoAccount("proxy"))?;
        let mut problems = Vec::new();
        for name in ["ca.key", "ca.pem"] {
            if !ca.join(name).exists() {
                problems.push(format!("{} is missing", ca.join(name).display()));
            }
        }
        if problems.is_empty() {
            problems.extend(access.difference(&ca.join("ca.key")));
        }
        Ok(State::from_problems(problems))
    }

    fn apply(&self, site: &Site) -> Result<(), StepError> {
        let layout = &site.instance.layout;
        doing("make a key and a certificate, as the gate's own user");
        control::gate(&site.instance, &["ca", "init"])
            .as_user(&layout.user("proxy"))?
            .run()?;
        Ok(())
    }

    fn repair(&self, site: &Site) -> String {
        format!(
            "ls -l {}",
            site.instance.layout.proxy_state().join("ca").display()
        )
    }
}
