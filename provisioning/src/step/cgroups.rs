//! The control groups below which the orchestrator limits its runs, handed to its account.

use std::fs;
use std::path::Path;

use super::{State, Step, StepError, doing};
use crate::cgroup;
use crate::file::{Access, FileError};
use crate::site::Site;

/// A subtree per controller, where systemd does not delegate one.
#[derive(Debug)]
pub struct Cgroups;

impl Step for Cgroups {
    fn name(&self) -> String {
        "control groups".to_owned()
    }

    fn check(&self, site: &Site) -> Result<State, StepError> {
        let root = Path::new(cgroup::ROOT);
        let access = site
            .access("orchestrator", 0o755)
            .ok_or(StepError::NoAccount("orchestrator"))?;
        let directories = cgroup::directories(root, site.instance.layout.name());
        if directories.is_empty() {
            return Ok(State::Needs(format!(
                "no memory or pids controller is mounted below {}",
                root.display()
            )));
        }
        let mut problems = Vec::new();
        for directory in directories {
            if let Some(difference) = access.difference(&directory) {
                problems.push(difference);
                continue;
            }
            for path in cgroup::handed_files(&directory) {
                let owner = Access {
                    mode: 0o644,
                    ..access
                };
                problems.extend(owner.difference(&path));
            }
        }
        Ok(State::from_problems(problems))
    }

    fn apply(&self, site: &Site) -> Result<(), StepError> {
        let access = site
            .access("orchestrator", 0o755)
            .ok_or(StepError::NoAccount("orchestrator"))?;
        let root = Path::new(cgroup::ROOT);
        if cgroup::is_unified(root) {
            let path = root.join("cgroup.subtree_control");
            doing("enable the memory and pids controllers");
            fs::write(&path, "+memory +pids").map_err(FileError::new("write", &path))?;
        }
        for directory in cgroup::directories(root, site.instance.layout.name()) {
            doing(&format!(
                "{}, handed to the orchestrator",
                directory.display()
            ));
            crate::file::ensure_directory(&directory, access)?;
            for path in cgroup::handed_files(&directory) {
                crate::file::hand_over(
                    &path,
                    Access {
                        mode: 0o644,
                        ..access
                    },
                )?;
            }
        }
        Ok(())
    }

    fn repair(&self, _: &Site) -> String {
        "mount | grep cgroup; cat /proc/cgroups".to_owned()
    }
}
