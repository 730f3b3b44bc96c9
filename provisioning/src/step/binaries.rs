//! The binaries in their place, replaced only when their content differs, and the command on the path.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::{State, Step, StepError, doing};
use crate::file::{self, Access, FileError};
use crate::site::Site;

/// What every instance has.
pub const BINARIES: [&str; 5] = [
    "portcullis",
    "portcullis-boundary",
    "portcullis-proxy",
    "portcullis-orchestrator",
    "portcullis-relay",
];
/// What one with a local stand-in has besides.
pub const STAND_IN: &str = "portcullis-stand-in";

/// Copies of the built binaries.
#[derive(Debug)]
pub struct Binaries;

fn pairs(site: &Site) -> Vec<(PathBuf, PathBuf)> {
    let stand_in = site.instance.has_stand_in().then_some(STAND_IN);
    BINARIES
        .into_iter()
        .chain(stand_in)
        .map(|name| (site.binaries.join(name), site.instance.layout.binary(name)))
        .collect()
}

fn is_current(from: &Path, to: &Path) -> Result<bool, FileError> {
    if from == to {
        return Ok(true);
    }
    if Access::root(0o755).difference(to).is_some() {
        return Ok(false);
    }
    file::is_same(from, to)
}

impl Step for Binaries {
    fn name(&self) -> String {
        "binaries".to_owned()
    }

    fn check(&self, site: &Site) -> Result<State, StepError> {
        let mut problems = Vec::new();
        for (from, to) in pairs(site) {
            if !is_current(&from, &to)? {
                problems.push(
                    from.file_name()
                        .unwrap_or_default()
                        .to_string_lossy()
                        .into_owned(),
                );
            }
        }
        if !problems.is_empty() {
            return Ok(State::Needs(format!("to install: {}", problems.join(", "))));
        }
        let layout = &site.instance.layout;
        let linked =
            fs::read_link(layout.command()).is_ok_and(|to| to == layout.binary("portcullis"));
        Ok(State::from_problems(if linked {
            Vec::new()
        } else {
            vec![format!(
                "{} does not lead to it",
                layout.command().display()
            )]
        }))
    }

    fn apply(&self, site: &Site) -> Result<(), StepError> {
        for (from, to) in pairs(site) {
            if is_current(&from, &to)? {
                continue;
            }
            doing(&format!("install {}", to.display()));
            let content = fs::read(&from).map_err(FileError::new("read", &from))?;
            file::write(&to, &content, Access::root(0o755))?;
        }
        let command = site.instance.layout.command();
        let target = site.instance.layout.binary("portcullis");
        match fs::symlink_metadata(&command) {
            Ok(found) if !found.is_symlink() => {
                return Err(StepError::Said(format!(
                    "{} is there and not ours",
                    command.display()
                )));
            }
            Ok(_) => fs::remove_file(&command).map_err(FileError::new("replace", &command))?,
            Err(_) => {}
        }
        symlink(&target, &command).map_err(FileError::new("link", &command))?;
        Ok(())
    }

    fn repair(&self, site: &Site) -> String {
        format!(
            "ls -l {} {}",
            site.binaries.display(),
            site.instance.layout.command().display()
        )
    }
}
