//! System accounts that own nothing but their own part, cannot log in and have no home.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
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

/// The ids that what an account kept belongs to: a guest that is made anew finds its data under them.
fn kept(site: &Site, name: &str) -> Option<(u32, u32)> {
    let layout = &site.instance.layout;
    let places = [
        (layout.user("proxy"), layout.proxy_state()),
        (layout.user("orchestrator"), layout.orchestrator_state()),
        (layout.user("standin"), layout.stand_in()),
    ];
    let (_, place) = places.into_iter().find(|(owner, _)| owner == name)?;
    let found = fs::symlink_metadata(place).ok()?;
    (found.is_dir() && found.uid() != 0 && found.gid() != 0).then(|| (found.uid(), found.gid()))
}

/// Why an account cannot have the ids of what it kept.
fn in_the_way(name: &str, ids: (u32, u32)) -> Option<StepError> {
    let user = User::from_uid(ids.0.into()).ok().flatten();
    let group = Group::from_gid(ids.1.into()).ok().flatten();
    let other = user
        .map(|user| user.name)
        .or_else(|| group.map(|group| group.name))
        .filter(|other| other != name)?;
    Some(StepError::Said(format!(
        "what {name} kept belongs to {}:{}, and that is {other} here\n  hint: give {other} other ids (usermod --uid, groupmod --gid), or hand the data to others by chown",
        ids.0, ids.1
    )))
}

/// Makes one account, with the ids it had if it had some.
fn create(name: &str, ids: Option<(u32, u32)>) -> Result<(), ProcessError> {
    let Some((uid, gid)) = ids else {
        return add(&["--user-group"], name);
    };
    if Group::from_name(name).ok().flatten().is_none() {
        Call::new("/usr/sbin/groupadd")
            .args(["--system", "--gid", &gid.to_string()])
            .arg(name)
            .run()?;
    }
    add(
        &["--uid", &uid.to_string(), "--gid", &gid.to_string()],
        name,
    )
}

/// Somebody else may be adding users at this moment; their lock is waited for.
fn add(ids: &[&str], name: &str) -> Result<(), ProcessError> {
    let deadline = Instant::now() + LOCK_PATIENCE;
    loop {
        // Without --system useradd would also hand out subordinate ids, by which an agent becomes a uid that the
        // boundary does not name.
        let outcome = Call::new("/usr/sbin/useradd")
            .args(["--system", "--no-create-home"])
            .args(ids.iter().copied())
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
            let ids = kept(site, &name);
            if let Some(problem) = ids.and_then(|ids| in_the_way(&name, ids)) {
                return Err(problem);
            }
            create(&name, ids)?;
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
