//! The directories of the instance, each with its owner and mode.

use std::path::PathBuf;

use super::{State, Step, StepError, doing};
use crate::file::{self, Access};
use crate::site::Site;

/// The table of [`crate::layout`].
#[derive(Debug)]
pub struct Directories;

/// Every directory with its access, parents first. Roles whose account is missing are an error: the users come first.
///
/// # Errors
/// When an account does not exist.
pub fn table(site: &Site) -> Result<Vec<(PathBuf, Access)>, StepError> {
    let layout = &site.instance.layout;
    let of = |role: &'static str, mode| site.access(role, mode).ok_or(StepError::NoAccount(role));
    let root = Access::root(0o755);
    let mut table = vec![
        (layout.library(), root),
        (layout.prefix().join("usr/local/bin"), root),
        (layout.etc(), root),
        (layout.policies(), root),
        (layout.credentials(), of("proxy", 0o700)?),
        (layout.state(), root),
        (layout.proxy_state(), of("proxy", 0o700)?),
        (layout.proxy_state().join("ca"), of("proxy", 0o700)?),
        (layout.proxy_state().join("audit"), of("proxy", 0o700)?),
        (layout.trust(), root),
        (layout.gate_test(), root),
        (layout.orchestrator_state(), of("orchestrator", 0o711)?),
        (layout.run(), root),
        (layout.run().join("boundary"), root),
        (layout.run().join("proxy"), of("proxy", 0o755)?),
        (layout.runs(), of("proxy", 0o711)?),
        (
            layout.run().join("orchestrator"),
            of("orchestrator", 0o755)?,
        ),
        (layout.supervise(), root),
        (layout.logs(), Access::root(0o750)),
    ];
    if site.instance.has_stand_in() {
        table.push((layout.stand_in(), of("standin", 0o700)?));
    }
    Ok(table)
}

impl Step for Directories {
    fn name(&self) -> String {
        "directories".to_owned()
    }

    fn check(&self, site: &Site) -> Result<State, StepError> {
        let differences: Vec<String> = table(site)?
            .into_iter()
            .filter(|(path, access)| {
                !(is_shared(path) && path.is_dir()) && access.difference(path).is_some()
            })
            .filter_map(|(path, access)| access.difference(&path))
            .collect();
        Ok(match differences.len() {
            0 => State::Right(Vec::new()),
            1 => State::Needs(differences[0].clone()),
            more => State::Needs(format!("{} and {} more", differences[0], more - 1)),
        })
    }

    fn apply(&self, site: &Site) -> Result<(), StepError> {
        for (path, access) in table(site)? {
            if is_shared(&path) && path.is_dir() {
                continue;
            }
            if access.difference(&path).is_some() {
                doing(&format!(
                    "{} ({}:{} {:04o})",
                    path.display(),
                    access.uid,
                    access.gid,
                    access.mode
                ));
                file::ensure_directory(&path, access)?;
            }
        }
        Ok(())
    }

    fn repair(&self, site: &Site) -> String {
        format!("ls -ld {0} {0}/*", site.instance.layout.state().display())
    }
}

/// A directory that belongs to the host: created when missing, never changed.
fn is_shared(path: &std::path::Path) -> bool {
    path.ends_with("usr/local/bin")
}
