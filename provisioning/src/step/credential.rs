//! The upstream token where the gate alone can read it.

use std::fs;
use std::path::{Path, PathBuf};

use super::{State, Step, StepError, doing};
use crate::file::{self, FileError};
use crate::site::Site;

/// The credential `github`.
#[derive(Debug)]
pub struct Credential;

/// Where the token comes from: the file a person named, or the one made up for the stand-in. `None`: it is kept.
fn source(site: &Site) -> Option<PathBuf> {
    if site.instance.has_stand_in() {
        return Some(site.instance.layout.stand_in().join("password"));
    }
    site.token_file.clone()
}

fn target(site: &Site) -> PathBuf {
    site.instance.layout.credentials().join("github")
}

/// The value without the line end that editors and `echo` put behind it.
fn token(source: &Path) -> Result<Vec<u8>, StepError> {
    let text = fs::read(source).map_err(FileError::new("read", source))?;
    let value = text.trim_ascii();
    if value.is_empty() {
        return Err(StepError::Said(format!("{} is empty", source.display())));
    }
    Ok(value.to_vec())
}

impl Step for Credential {
    fn name(&self) -> String {
        "credential".to_owned()
    }

    fn check(&self, site: &Site) -> Result<State, StepError> {
        let target = target(site);
        let access = site
            .access("proxy", 0o600)
            .ok_or(StepError::NoAccount("proxy"))?;
        let mut problems = Vec::new();
        problems.extend(access.difference(&target));
        if problems.is_empty()
            && let Some(source) = source(site)
            && fs::read(&target).map_err(FileError::new("read", &target))? != token(&source)?
        {
            problems.push(format!("{} holds another value", target.display()));
        }
        Ok(State::from_problems(problems))
    }

    fn apply(&self, site: &Site) -> Result<(), StepError> {
        let target = target(site);
        let access = site
            .access("proxy", 0o600)
            .ok_or(StepError::NoAccount("proxy"))?;
        let source = source(site)
            .or_else(|| target.exists().then(|| target.clone()))
            .ok_or_else(|| StepError::Said("no token was given".to_owned()))?;
        let token = token(&source)?;
        doing(&format!("{}, readable by the gate alone", target.display()));
        Ok(file::write(&target, &token, access)?)
    }

    fn repair(&self, site: &Site) -> String {
        format!(
            "portcullis up --repo {} --github-token-file FILE   (FILE: the token on one line)",
            site.instance.record.repo
        )
    }
}
