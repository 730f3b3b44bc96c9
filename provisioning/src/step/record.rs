//! The instance's own record, by which `status`, `down` and the next `up` know it. It comes first, so that whatever is
//! made after it can be found and removed again.

use std::fs;

use super::{State, Step, StepError, doing};
use crate::file::{self, Access};
use crate::site::Site;

/// `instance.toml`.
#[derive(Debug)]
pub struct InstanceRecord;

impl Step for InstanceRecord {
    fn name(&self) -> String {
        "instance record".to_owned()
    }

    fn check(&self, site: &Site) -> Result<State, StepError> {
        let path = site.instance.layout.config("instance");
        let found = fs::read_to_string(&path).unwrap_or_default();
        Ok(State::from_problems(if found == site.instance.text() {
            Vec::new()
        } else {
            vec![format!("{} does not say what is wanted", path.display())]
        }))
    }

    fn apply(&self, site: &Site) -> Result<(), StepError> {
        let layout = &site.instance.layout;
        doing(&format!("write {}", layout.config("instance").display()));
        file::ensure_directory(&layout.etc(), Access::root(0o755))?;
        Ok(site.instance.save()?)
    }

    fn repair(&self, site: &Site) -> String {
        format!("cat {}", site.instance.layout.config("instance").display())
    }
}
