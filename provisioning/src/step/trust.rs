//! What clients inside runs trust: the gate's certificate alone, merged with the system's, and as a Java store.

use std::fs;
use std::path::Path;

use super::{State, Step, StepError, doing};
use crate::control;
use crate::file::{self, Access, FileError};
use crate::process::{Call, is_installed};
use crate::site::Site;

/// Debian's wget reads no CA variable, only this file. The path is the one inside a run.
const WGETRC: &str = "ca_certificate = /opt/portcullis/trust/bundle.pem\n";
/// The system's own bundle on Debian and Ubuntu.
const SYSTEM: &str = "/etc/ssl/certs/ca-certificates.crt";

/// `trust/ca.pem`, `trust/bundle.pem` and, where there is a keytool, `trust/truststore.p12`.
#[derive(Debug)]
pub struct Trust;

/// Name and content of the files, the certificate alone first.
fn wanted(site: &Site) -> Result<[(&'static str, String); 3], StepError> {
    let gate = site.instance.layout.user("proxy");
    let ca = control::gate(&site.instance, &["ca", "export"])
        .as_user(&gate)?
        .run()?;
    let mut bundle = file::read(Path::new(SYSTEM))?;
    if !bundle.ends_with('\n') {
        bundle.push('\n');
    }
    bundle.push_str(&ca);
    Ok([
        ("ca.pem", ca),
        ("bundle.pem", bundle),
        ("wgetrc", WGETRC.to_owned()),
    ])
}

/// Whether the file is there with that content.
fn is_current(path: &Path, content: &str) -> bool {
    fs::read_to_string(path).is_ok_and(|found| found == content)
}

impl Step for Trust {
    fn name(&self) -> String {
        "trust for clients".to_owned()
    }

    fn check(&self, site: &Site) -> Result<State, StepError> {
        let trust = site.instance.layout.trust();
        let mut problems: Vec<String> = wanted(site)?
            .iter()
            .map(|(name, content)| (trust.join(name), content))
            .filter(|(path, content)| !is_current(path, content))
            .map(|(path, _)| format!("{} is not current", path.display()))
            .collect();
        if is_installed("keytool") && !trust.join("truststore.p12").exists() {
            problems.push("there is no store for Java".to_owned());
        }
        Ok(State::from_problems(problems))
    }

    fn apply(&self, site: &Site) -> Result<(), StepError> {
        let trust = site.instance.layout.trust();
        let store = trust.join("truststore.p12");
        let mut renewed = false;
        for (name, content) in wanted(site)? {
            let path = trust.join(name);
            if !is_current(&path, &content) {
                renewed |= name == "ca.pem";
                doing(&format!("write {}", path.display()));
                file::write(&path, content.as_bytes(), Access::root(0o644))?;
            }
        }
        if is_installed("keytool") && (renewed || !store.exists()) {
            doing(&format!("write {} for Java", store.display()));
            // Beside it, then renamed: keytool adds to a store that is there, and a killed one leaves half of one.
            let fresh = trust.join("truststore.new");
            let _ = fs::remove_file(&fresh);
            Call::new("keytool")
                .args(["-importcert", "-noprompt", "-alias", "portcullis"])
                .arg("-file")
                .arg(trust.join("ca.pem"))
                .args(["-storetype", "PKCS12", "-storepass", "changeit"])
                .arg("-keystore")
                .arg(&fresh)
                .run()?;
            file::hand_over(&fresh, Access::root(0o644))?;
            fs::rename(&fresh, &store).map_err(FileError::new("replace", &store))?;
        }
        Ok(())
    }

    fn repair(&self, _: &Site) -> String {
        "apt-get install --reinstall ca-certificates && update-ca-certificates".to_owned()
    }
}
