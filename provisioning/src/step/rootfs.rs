//! The read-only system of the run containers, assembled by the orchestrator as its own user: root writes nothing below
//! a directory that another account could have replaced by a link.

use std::fs;
use std::path::{Path, PathBuf};

use super::{State, Step, StepError, doing};
use crate::control;
use crate::file::{self, Access};
use crate::site::Site;

/// What the tree is copied from, beside the orchestrator's own list.
const SOURCES: [&str; 2] = ["/etc/ld.so.cache", "/etc/os-release"];

/// `portcullis-orchestrator rootfs create`.
#[derive(Debug)]
pub struct Rootfs;

/// Where it is noted what the tree was last assembled from.
fn stamp(site: &Site) -> PathBuf {
    site.instance.layout.state().join("rootfs.stamp")
}

fn wanted(site: &Site) -> Result<String, StepError> {
    let mut text = file::identity(&site.instance.layout.binary("portcullis-orchestrator"))?;
    for source in SOURCES {
        text.push('\n');
        text.push_str(&file::identity(Path::new(source)).unwrap_or_default());
    }
    Ok(text)
}

impl Step for Rootfs {
    fn name(&self) -> String {
        "root file system of runs".to_owned()
    }

    fn check(&self, site: &Site) -> Result<State, StepError> {
        let rootfs = site.instance.layout.rootfs();
        Ok(State::from_problems(if !rootfs.is_dir() {
            vec![format!("{} is missing", rootfs.display())]
        } else if fs::read_to_string(stamp(site)).ok() != Some(wanted(site)?) {
            vec!["the program or the system it is made from has changed".to_owned()]
        } else {
            Vec::new()
        }))
    }

    fn apply(&self, site: &Site) -> Result<(), StepError> {
        let layout = &site.instance.layout;
        doing(&format!(
            "assemble {}, as the orchestrator's user",
            layout.rootfs().display()
        ));
        control::orchestrator(&site.instance, &["rootfs", "create"])
            .as_user(&layout.user("orchestrator"))?
            .run()?;
        Ok(file::write(
            &stamp(site),
            wanted(site)?.as_bytes(),
            Access::root(0o644),
        )?)
    }

    fn repair(&self, site: &Site) -> String {
        format!("rm -rf {}", site.instance.layout.rootfs().display())
    }
}
