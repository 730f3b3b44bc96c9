//! The read-only system of the run containers, assembled by the orchestrator as its own user.

use super::{State, Step, StepError, doing};
use crate::process::Call;
use crate::site::Site;

/// `portcullis-orchestrator rootfs create`.
#[derive(Debug)]
pub struct Rootfs;

impl Step for Rootfs {
    fn name(&self) -> String {
        "root file system of runs".to_owned()
    }

    fn check(&self, site: &Site) -> Result<State, StepError> {
        let rootfs = site.instance.layout.rootfs();
        Ok(State::from_problems(if rootfs.join("etc").is_dir() {
            Vec::new()
        } else {
            vec![format!("{} is missing", rootfs.display())]
        }))
    }

    fn apply(&self, site: &Site) -> Result<(), StepError> {
        let layout = &site.instance.layout;
        doing(&format!("assemble {}", layout.rootfs().display()));
        Call::new(layout.binary("portcullis-orchestrator"))
            .args(["rootfs", "create", "--config"])
            .arg(layout.config("orchestrator"))
            .run()?;
        Ok(())
    }

    fn repair(&self, site: &Site) -> String {
        format!("rm -rf {}", site.instance.layout.rootfs().display())
    }
}
