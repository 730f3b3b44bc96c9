//! What the local git host of the demo needs: its own authority and certificate, and the password it asks for.

use std::fs;

use super::{State, Step, StepError, doing};
use crate::file::{self, FileError};
use crate::instance::STAND_IN_HOST;
use crate::process::Call;
use crate::site::Site;

/// Certificate and password of `git.portcullis.test`.
#[derive(Debug)]
pub struct StandIn;

/// The copy of its authority that the gate verifies it with.
#[must_use]
pub fn authority_file(site: &Site) -> std::path::PathBuf {
    site.instance.layout.etc().join("stand-in-ca.pem")
}

/// Its authority, read as its own user: what that may not read is not copied either.
fn own_authority(site: &Site) -> Result<String, StepError> {
    let layout = &site.instance.layout;
    let path = layout.stand_in().join("pki/ca.pem");
    Ok(Call::new("cat")
        .arg(path)
        .as_user(&layout.user("standin"))?
        .run()?)
}

impl Step for StandIn {
    fn name(&self) -> String {
        "stand-in for the upstream".to_owned()
    }

    fn check(&self, site: &Site) -> Result<State, StepError> {
        let home = site.instance.layout.stand_in();
        let wanted = site
            .access("standin", 0o600)
            .ok_or(StepError::NoAccount("standin"))?;
        let mut problems = Vec::new();
        problems.extend(wanted.difference(&home.join("password")));
        if !home.join("pki/leaf.pem").exists() {
            problems.push(format!("{STAND_IN_HOST} has no certificate"));
        }
        if problems.is_empty()
            && fs::read_to_string(authority_file(site)).ok() != Some(own_authority(site)?)
        {
            problems.push("the gate does not know its authority".to_owned());
        }
        Ok(State::from_problems(problems))
    }

    fn apply(&self, site: &Site) -> Result<(), StepError> {
        let layout = &site.instance.layout;
        let home = layout.stand_in();
        doing(&format!(
            "make an authority and a certificate for {STAND_IN_HOST}"
        ));
        Call::new(layout.binary(super::binaries::STAND_IN))
            .arg("pki")
            .arg("--dir")
            .arg(home.join("pki"))
            .args(["--host", STAND_IN_HOST])
            .as_user(&layout.user("standin"))?
            .run()?;
        let authority = own_authority(site)?;
        // Nobody's to edit: one that a killed run left without its record would count as edited, and never follow again.
        file::write(
            &authority_file(site),
            authority.as_bytes(),
            file::Access::root(0o644),
        )?;
        let password = home.join("password");
        let access = site
            .access("standin", 0o600)
            .ok_or(StepError::NoAccount("standin"))?;
        if access.difference(&password).is_some() {
            doing("make up the token it asks for");
            let mut bytes = [0; 20];
            getrandom::fill(&mut bytes).map_err(|refused| {
                FileError::new("draw random bytes for", &password)(std::io::Error::other(refused))
            })?;
            file::write(
                &password,
                format!("ghp_{}\n", file::hex(&bytes)).as_bytes(),
                access,
            )?;
        }
        Ok(())
    }

    fn repair(&self, site: &Site) -> String {
        format!(
            "rm -r {}",
            site.instance.layout.stand_in().join("pki").display()
        )
    }
}
