//! System accounts that own nothing but their own part, cannot log in and have no home.

use std::thread;
use std::time::{Duration, Instant};

use nix::unistd::{Group, User};

use super::{State, Step, StepError, doing};
use crate::process::{Call, ProcessError};
use crate::site::Site;

const LOCK_PATIENCE: Duration = Duration::from_secs(20);

/// The accounts of the instance.
#[derive(Debug)]
pub struct Users;

impl Users {
    fn problems(site: &Site) -> Vec<(String, String)> {
        let mut problems = Vec::new();
        for (name, _) in site.instance.accounts() {
            match User::from_name(&name).ok().flatten() {
                None => problems.push((name.clone(), format!("{name} does not exist"))),
                Some(user) if user.uid.is_root() || user.gid.as_raw() == 0 => {
                    problems.push((name.clone(), format!("{name} is root or in root's group")));
                }
                Some(user) => {
                    let group = Group::from_name(&name).ok().flatten();
                    if group.is_none_or(|group| group.gid != user.gid) {
                        problems.push((name.clone(), format!("{name} has no group of its own")));
                    }
                }
            }
        }
        problems
    }
}

/// Makes one account. Somebody else may be adding users at this moment; their lock is waited for.
fn create(name: &str) -> Result<(), ProcessError> {
    let deadline = Instant::now() + LOCK_PATIENCE;
    loop {
        // Without --system useradd would also hand out subordinate ids, by which an agent becomes a uid that the
        // boundary does not name.
        let outcome = Call::new("/usr/sbin/useradd")
            .args(["--system", "--user-group", "--no-create-home"])
            .args(["--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin"])
            .args(["--comment", "Portcullis"])
            .arg(name)
            .run();
        match outcome {
            Err(ProcessError::Failed { said, .. })
                if said.contains("cannot lock") && Instant::now() < deadline =>
            {
                thread::sleep(Duration::from_millis(200));
            }
            other => return other.map(drop),
        }
    }
}

impl Step for Users {
    fn name(&self) -> String {
        "users".to_owned()
    }

    fn check(&self, site: &Site) -> Result<State, StepError> {
        Ok(State::from_problems(
            Self::problems(site)
                .into_iter()
                .map(|(_, text)| text)
                .collect(),
        ))
    }

    fn apply(&self, site: &Site) -> Result<(), StepError> {
        for (name, purpose) in site.instance.accounts() {
            if User::from_name(&name).ok().flatten().is_some() {
                continue;
            }
            doing(&format!("create the system user {name} ({purpose})"));
            create(&name)?;
        }
        Ok(())
    }

    fn repair(&self, site: &Site) -> String {
        let wrong = Self::problems(site);
        match wrong.first() {
            Some((name, _)) => format!("getent passwd {name}; userdel {name}"),
            None => "getent passwd".to_owned(),
        }
    }
}
