//! What clients inside runs trust: the gate's certificate alone (with its successor's while the authority is being
//! replaced), merged with the system's, and as a Java store.

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

/// The certificates of a PEM text, each by itself.
fn certificates(text: &str) -> Vec<String> {
    const END: &str = "-----END CERTIFICATE-----";
    text.split_inclusive(END)
        .filter(|part| part.ends_with(END))
        .map(|part| format!("{}\n", part.trim_start()))
        .collect()
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
            // One by one: of a file with several certificates keytool takes the first.
            let single = trust.join("ca.new");
            for (at, certificate) in certificates(&file::read(&trust.join("ca.pem"))?)
                .iter()
                .enumerate()
            {
                file::write(&single, certificate.as_bytes(), Access::root(0o644))?;
                Call::new("keytool")
                    .args(["-importcert", "-noprompt", "-alias"])
                    .arg(format!("portcullis-{at}"))
                    .arg("-file")
                    .arg(&single)
                    .args(["-storetype", "PKCS12", "-storepass", "changeit"])
                    .arg("-keystore")
                    .arg(&fresh)
                    .run()?;
            }
            let _ = fs::remove_file(&single);
            file::hand_over(&fresh, Access::root(0o644))?;
            fs::rename(&fresh, &store).map_err(FileError::new("replace", &store))?;
        }
        Ok(())
    }

    fn repair(&self, _: &Site) -> String {
        "apt-get install --reinstall ca-certificates && update-ca-certificates".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::certificates;

    #[test]
    fn each_certificate_of_a_bundle_is_a_file_of_its_own() {
        let one = "-----BEGIN CERTIFICATE-----\nAAA\n-----END CERTIFICATE-----\n";
        let two = one.replace("AAA", "BBB");
        assert_eq!(certificates(&format!("{one}{two}")), [one.to_owned(), two]);
        assert_eq!(certificates(one), [one]);
        assert!(certificates("").is_empty());
    }
}
