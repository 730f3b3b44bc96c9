//! What clients inside runs trust: the gate's certificate alone, merged with the system's, and as a Java store.

use std::fs;
use std::path::Path;

use super::{State, Step, StepError, doing};
use crate::file::{self, Access, FileError};
use crate::process::{Call, is_installed};
use crate::site::Site;

/// The system's own bundle on Debian and Ubuntu.
const SYSTEM: &str = "/etc/ssl/certs/ca-certificates.crt";

/// `trust/ca.pem`, `trust/bundle.pem` and, where there is a keytool, `trust/truststore.p12`.
#[derive(Debug)]
pub struct Trust;

fn wanted(site: &Site) -> Result<(String, String), StepError> {
    let ca = file::read(&site.instance.layout.proxy_state().join("ca/ca.pem"))?;
    let mut bundle = file::read(Path::new(SYSTEM))?;
    if !bundle.ends_with('\n') {
        bundle.push('\n');
    }
    bundle.push_str(&ca);
    Ok((ca, bundle))
}

impl Step for Trust {
    fn name(&self) -> String {
        "trust for clients".to_owned()
    }

    fn check(&self, site: &Site) -> Result<State, StepError> {
        let trust = site.instance.layout.trust();
        let (ca, bundle) = wanted(site)?;
        let mut problems = Vec::new();
        for (name, content) in [("ca.pem", ca), ("bundle.pem", bundle)] {
            if fs::read_to_string(trust.join(name)).ok().as_ref() != Some(&content) {
                problems.push(format!("{} is not current", trust.join(name).display()));
            }
        }
        if is_installed("keytool") && !trust.join("truststore.p12").exists() {
            problems.push("there is no store for Java".to_owned());
        }
        Ok(State::from_problems(problems))
    }

    fn apply(&self, site: &Site) -> Result<(), StepError> {
        let trust = site.instance.layout.trust();
        let (ca, bundle) = wanted(site)?;
        let store = trust.join("truststore.p12");
        let renewed = fs::read_to_string(trust.join("ca.pem")).ok().as_ref() != Some(&ca);
        doing(&format!(
            "{}: ca.pem, bundle.pem (the system's certificates and ours)",
            trust.display()
        ));
        file::write(&trust.join("ca.pem"), ca.as_bytes(), Access::root(0o644))?;
        file::write(
            &trust.join("bundle.pem"),
            bundle.as_bytes(),
            Access::root(0o644),
        )?;
        if is_installed("keytool") && (renewed || !store.exists()) {
            doing("truststore.p12 for Java");
            if store.exists() {
                fs::remove_file(&store).map_err(FileError::new("replace", &store))?;
            }
            Call::new("keytool")
                .args(["-importcert", "-noprompt", "-alias", "portcullis"])
                .arg("-file")
                .arg(trust.join("ca.pem"))
                .args(["-storetype", "PKCS12", "-storepass", "changeit"])
                .arg("-keystore")
                .arg(&store)
                .run()?;
            file::hand_over(&store, Access::root(0o644))?;
        }
        Ok(())
    }

    fn repair(&self, _: &Site) -> String {
        "apt-get install --reinstall ca-certificates && update-ca-certificates".to_owned()
    }
}
