//! systemd units, where systemd is process 1.

use super::{State, Step, StepError, doing};
use crate::file::Access;
use crate::manifest::{Manifest, Standing};
use crate::process::Call;
use crate::service;
use crate::site::Site;
use crate::systemd;

/// The unit files and the list of directories that `/run` gets at boot.
#[derive(Debug)]
pub struct Units;

impl Step for Units {
    fn name(&self) -> String {
        "systemd units".to_owned()
    }

    fn check(&self, site: &Site) -> Result<State, StepError> {
        let manifest = Manifest::load(&site.instance.layout.manifest())?;
        let (mut needs, mut notes) = (Vec::new(), Vec::new());
        for (path, text) in systemd::files(site)? {
            match super::configuration::judge(manifest.standing(&path, &text)?, &path)? {
                State::Needs(why) => needs.push(why),
                State::Right(kept) => notes.extend(kept),
            }
        }
        Ok(if needs.is_empty() {
            State::Right(notes)
        } else {
            State::Needs(needs.join("; "))
        })
    }

    fn apply(&self, site: &Site) -> Result<(), StepError> {
        let mut manifest = Manifest::load(&site.instance.layout.manifest())?;
        for (path, text) in systemd::files(site)? {
            if matches!(
                manifest.put(&path, &text, Access::root(0o644))?,
                Standing::Absent | Standing::Outdated
            ) {
                doing(&format!("write {}", path.display()));
            }
        }
        doing("tell systemd, and enable them");
        Call::new("systemctl").arg("daemon-reload").run()?;
        let units = service::services(&site.instance);
        let units = units
            .iter()
            .flat_map(|service| systemd::unit_names(&site.instance, service.key));
        Call::new("systemctl")
            .args(["--quiet", "enable"])
            .args(units)
            .run()?;
        Ok(())
    }

    fn repair(&self, site: &Site) -> String {
        format!("systemctl status '{}-*'", site.instance.layout.name())
    }
}

#[cfg(test)]
mod tests;
