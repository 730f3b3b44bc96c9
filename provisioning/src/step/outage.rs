//! A gate that a killed `portcullis prove --kill-gate` has left down.

use super::{State, Step, StepError, doing};
use crate::prove::outage;
use crate::site::Site;

/// Nobody keeps the gate's supervisor, or systemd, from starting it.
#[derive(Debug)]
pub struct Outage;

impl Step for Outage {
    fn name(&self) -> String {
        "nothing holds the gate down".to_owned()
    }

    fn check(&self, site: &Site) -> Result<State, StepError> {
        let remains = outage::remains(&site.instance, site.systemd);
        Ok(State::from_problems(remains.into_iter().collect()))
    }

    fn apply(&self, site: &Site) -> Result<(), StepError> {
        doing("let go of the gate");
        outage::clear(&site.instance, site.systemd)
            .map_err(|error| StepError::Said(crate::output::chain(&error)))
    }

    fn repair(&self, site: &Site) -> String {
        format!("{} status", site.instance.layout.command().display())
    }
}
