//! The idempotent steps a host becomes this by: each can tell whether it is needed, do its part, and prove it.
//!
//! [`carry_out`] runs a list of them. A step that is right is left alone, so a second `up` changes nothing, and one that
//! goes on after a failure repeats nothing.

use std::time::Instant;

use thiserror::Error;

use crate::file::FileError;
use crate::instance::InstanceError;
use crate::manifest::ManifestError;
use crate::output;
use crate::process::ProcessError;
use crate::site::Site;
use crate::subid::SubidError;
use crate::supervise::SuperviseError;

pub mod audit_key;
pub mod authority;
pub mod binaries;
pub mod cgroups;
pub mod configuration;
pub mod credential;
pub mod directories;
pub mod outage;
pub mod record;
pub mod rootfs;
pub mod rules;
pub mod running;
pub mod settings;
pub mod stand_in;
pub mod subordinate;
pub mod trust;
pub mod units;
pub mod users;

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Nothing to do; notes are for the person, such as a file that was edited by hand and kept.
    Right(Vec<String>),
    /// What is to be done, and why.
    Needs(String),
}

impl State {
    /// Right when nothing is wrong, otherwise everything that is.
    #[must_use]
    pub fn from_problems(problems: Vec<String>) -> Self {
        if problems.is_empty() {
            Self::Right(Vec::new())
        } else {
            Self::Needs(problems.join("; "))
        }
    }
}

/// What is done with the steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// Say what would be done.
    Plan,
    /// Do what is missing, as far as the step of that name.
    Apply { until: Option<String> },
    /// Prove each.
    Verify,
}

impl Mode {
    /// The name of the last step that is taken, when not all are.
    #[must_use]
    pub fn until(&self) -> Option<&str> {
        match self {
            Self::Apply { until } => until.as_deref(),
            Self::Plan | Self::Verify => None,
        }
    }
}

/// Why a step could not be taken.
#[derive(Debug, Error)]
pub enum StepError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error(transparent)]
    Subid(#[from] SubidError),
    #[error(transparent)]
    Supervise(#[from] SuperviseError),
    #[error(transparent)]
    Instance(#[from] InstanceError),
    #[error("the account of {0} does not exist yet")]
    NoAccount(&'static str),
    #[error("{0}")]
    Said(String),
}

/// One step.
pub trait Step {
    /// A short name, as printed.
    fn name(&self) -> String;

    /// Looks, changes nothing.
    ///
    /// # Errors
    /// When it cannot tell.
    fn check(&self, site: &Site) -> Result<State, StepError>;

    /// Does what the check found missing. Says each thing it does.
    ///
    /// # Errors
    /// At the first thing that fails; what was done stays done and is found right by the next check.
    fn apply(&self, site: &Site) -> Result<(), StepError>;

    /// Proves that it is done; the check again, unless a step knows better.
    ///
    /// # Errors
    /// When it is not.
    fn verify(&self, site: &Site) -> Result<(), StepError> {
        match self.check(site)? {
            State::Right(_) => Ok(()),
            State::Needs(what) => Err(StepError::Said(format!(
                "still not right afterwards: {what}"
            ))),
        }
    }

    /// The command that shows or repairs what usually goes wrong here.
    fn repair(&self, site: &Site) -> String;
}

/// A step that failed: which, why, and what repairs it.
#[derive(Debug, Error)]
#[error(
    "step {name:?} failed: {why}\n  repair: {repair}\n  then run `portcullis up` again; it goes on from here"
)]
pub struct Failure {
    name: String,
    why: String,
    repair: String,
}

/// The steps as far as the one of that name, or all.
///
/// # Errors
/// When there is none of that name; it is told which there are.
pub fn up_to<'s>(
    steps: &'s [Box<dyn Step>],
    until: Option<&str>,
) -> Result<&'s [Box<dyn Step>], StepError> {
    let Some(until) = until else {
        return Ok(steps);
    };
    let names = || steps.iter().map(|step| step.name());
    match names().position(|name| name == until) {
        Some(last) => Ok(&steps[..=last]),
        None => {
            let names: Vec<String> = names().collect();
            Err(StepError::Said(format!(
                "there is no step {until:?}\n  hint: the steps are {}",
                names.join(", ")
            )))
        }
    }
}

/// Says what each step would do, and changes nothing. True when none would do anything.
pub fn plan(steps: &[Box<dyn Step>], site: &Site) -> bool {
    let mut right = 0;
    for step in steps {
        let said = match step.check(site) {
            Ok(State::Right(_)) => {
                right += 1;
                "right".to_owned()
            }
            Ok(State::Needs(why)) => format!("to do: {why}"),
            // What it looks at is made by a step before it.
            Err(problem) => format!("to be seen: {}", output::chain(&problem)),
        };
        output::say(&format!("{}: {said}", step.name()));
    }
    let to_do = steps.len() - right;
    output::say(&format!(
        "{to_do} of {} steps have something to do",
        steps.len()
    ));
    to_do == 0
}

/// Proves each step, and changes nothing. True when all hold.
pub fn verify(steps: &[Box<dyn Step>], site: &Site) -> bool {
    let mut held = 0;
    for step in steps {
        match step.verify(site) {
            Ok(()) => {
                held += 1;
                output::say(&format!("{}: holds", step.name()));
            }
            Err(problem) => {
                output::say(&format!(
                    "{}: DOES NOT HOLD: {}",
                    step.name(),
                    output::chain(&problem)
                ));
                output::say(&format!("  repair: {}", step.repair(site)));
            }
        }
    }
    output::say(&format!("{held} of {} steps hold", steps.len()));
    held == steps.len()
}

/// Carries out the steps in order and returns how many changed something.
///
/// # Errors
/// At the first step that fails.
pub fn carry_out(steps: &[Box<dyn Step>], site: &Site) -> Result<usize, Failure> {
    let mut changed = 0;
    for (index, step) in steps.iter().enumerate() {
        output::say_part(&format!(
            "[{:2}/{}] {}: ",
            index + 1,
            steps.len(),
            step.name()
        ));
        let began = Instant::now();
        let outcome = take(step.as_ref(), site);
        match outcome {
            Ok(false) => {}
            Ok(true) => {
                changed += 1;
                output::say(&format!(
                    "        done in {:.2} s",
                    began.elapsed().as_secs_f32()
                ));
            }
            Err(error) => {
                output::say("        FAILED");
                return Err(Failure {
                    name: step.name(),
                    why: output::chain(&error),
                    repair: step.repair(site),
                });
            }
        }
    }
    Ok(changed)
}

/// Says one thing a step does.
pub fn doing(what: &str) {
    output::say(&format!("        {what}"));
}

fn take(step: &dyn Step, site: &Site) -> Result<bool, StepError> {
    match step
        .check(site)
        .inspect_err(|_| output::say("cannot tell"))?
    {
        State::Right(notes) => {
            output::say("already right");
            notes.iter().for_each(|note| doing(note));
            Ok(false)
        }
        State::Needs(why) => {
            output::say(&why);
            step.apply(site)?;
            step.verify(site)?;
            Ok(true)
        }
    }
}

#[cfg(test)]
mod tests;
