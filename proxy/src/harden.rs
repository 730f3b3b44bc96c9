//! Giving power away before anything is touched, and proving that it is gone.
//!
//! Called once, while the process still has a single thread: capability sets belong to threads.
//! The bounding set goes first (it needs CAP_SETPCAP, which the uid change takes), then groups,
//! gid and uid, then the other sets. What was dropped is read back; a leftover is an error.

mod uids;

use std::collections::BTreeSet;

use caps::CapSet;
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{Gid, Uid, User, setgroups, setresgid, setresuid};

pub use uids::VisibleUids;

/// What kept the process from becoming harmless.
#[derive(Debug, thiserror::Error)]
pub enum HardenError {
    /// Started as root without being told whom to become.
    #[error("refusing to run as root: name the service user with --user NAME")]
    Root,
    /// `--user` names root.
    #[error("refusing to run as uid 0: --user {0} is root")]
    UserIsRoot(String),
    /// `--user` names nobody.
    #[error("there is no user {0}")]
    NoSuchUser(String),
    /// `--user` was given to a process that cannot change its uid.
    #[error("already running as uid {have}, cannot become {wanted}")]
    CannotBecome {
        /// Present uid.
        have: u32,
        /// Asked-for name.
        wanted: String,
    },
    /// A capability call failed.
    #[error("could not drop the {set} capabilities: {problem}")]
    Capabilities {
        /// Which set.
        set: &'static str,
        /// What the system said.
        problem: String,
    },
    /// Another system call failed.
    #[error("could not {what}")]
    System {
        /// What was being done.
        what: &'static str,
        /// What the system said.
        #[source]
        source: nix::Error,
    },
    /// Everything was called, yet something is left.
    #[error("still holding after the drop: {0}")]
    LeftOver(String),
}

/// What the process is after [`drop_privileges`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hardened {
    /// The uid that everything from here on runs as; never 0.
    pub uid: u32,
    /// Its primary group.
    pub gid: u32,
    /// Other processes that already ran under this uid (they could trace this one's files, though
    /// not its memory). Reported in status.
    pub neighbours: Vec<u32>,
}

/// Becomes `user` (required as root), drops every capability, sets no_new_privs, forbids core dumps
/// and tracing, and raises the descriptor limit.
///
/// # Errors
/// [`HardenError`]: nothing may be served after one.
pub fn drop_privileges(user: Option<&str>) -> Result<Hardened, HardenError> {
    if Uid::effective().is_root() || Uid::current().is_root() {
        let target = resolve(user.ok_or(HardenError::Root)?)?;
        clear_bounding()?;
        become_user(&target)?;
    } else if let Some(wanted) = user {
        let target = resolve(wanted)?;
        if target.uid != Uid::current() {
            return Err(HardenError::CannotBecome {
                have: Uid::current().as_raw(),
                wanted: wanted.to_owned(),
            });
        }
    }
    for (set, name) in [
        (CapSet::Ambient, "ambient"),
        (CapSet::Inheritable, "inheritable"),
        (CapSet::Effective, "effective"),
        (CapSet::Permitted, "permitted"),
    ] {
        caps::clear(None, set).map_err(|problem| HardenError::Capabilities {
            set: name,
            problem: problem.to_string(),
        })?;
    }
    prctl::set_no_new_privs().map_err(system("set no_new_privs"))?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0).map_err(system("forbid core dumps"))?;
    raise(Resource::RLIMIT_NOFILE, "raise the descriptor limit")?;
    raise(Resource::RLIMIT_MEMLOCK, "raise the locked memory limit")?;
    prctl::set_dumpable(false).map_err(system("become non-dumpable"))?;
    verify()?;
    let uid = Uid::current().as_raw();
    Ok(Hardened {
        uid,
        gid: Gid::current().as_raw(),
        neighbours: neighbours(uid),
    })
}

/// Reads back everything that [`drop_privileges`] promises for the calling thread.
///
/// # Errors
/// [`HardenError::LeftOver`] naming what is still there.
pub fn verify() -> Result<(), HardenError> {
    let left = |what: &str| Err(HardenError::LeftOver(what.to_owned()));
    let ids = nix::unistd::getresuid().map_err(system("read the uids"))?;
    if ids.real.is_root() || ids.effective.is_root() || ids.saved.is_root() {
        return left("uid 0");
    }
    let groups = nix::unistd::getresgid().map_err(system("read the gids"))?;
    let root = Gid::from_raw(0);
    if groups.real == root || groups.effective == root || groups.saved == root {
        return left("gid 0");
    }
    for (set, name) in [
        (CapSet::Ambient, "ambient capabilities"),
        (CapSet::Inheritable, "inheritable capabilities"),
        (CapSet::Effective, "effective capabilities"),
        (CapSet::Permitted, "permitted capabilities"),
    ] {
        match caps::read(None, set) {
            Ok(held) if held.is_empty() => {}
            Ok(_) => return left(name),
            Err(problem) => {
                return Err(HardenError::Capabilities {
                    set: name,
                    problem: problem.to_string(),
                });
            }
        }
    }
    if !prctl::get_no_new_privs().map_err(system("read no_new_privs"))? {
        return left("the right to gain privileges (no_new_privs is off)");
    }
    if prctl::get_dumpable().map_err(system("read dumpable"))? {
        return left("a dumpable memory image");
    }
    Ok(())
}

fn resolve(name: &str) -> Result<User, HardenError> {
    let found = match name.parse::<u32>() {
        Ok(uid) => User::from_uid(Uid::from_raw(uid)),
        Err(_) => User::from_name(name),
    };
    let user = found
        .map_err(system("look up the service user"))?
        .ok_or_else(|| HardenError::NoSuchUser(name.to_owned()))?;
    if user.uid.is_root() || user.gid.as_raw() == 0 {
        return Err(HardenError::UserIsRoot(name.to_owned()));
    }
    Ok(user)
}

/// Drops what the bounding set really holds: the kernel may know more or fewer bits than a library.
fn clear_bounding() -> Result<(), HardenError> {
    let failed = |problem: caps::errors::CapsError| HardenError::Capabilities {
        set: "bounding",
        problem: problem.to_string(),
    };
    for capability in caps::read(None, CapSet::Bounding).map_err(failed)? {
        caps::drop(None, CapSet::Bounding, capability).map_err(failed)?;
    }
    match caps::read(None, CapSet::Bounding)
        .map_err(failed)?
        .is_empty()
    {
        true => Ok(()),
        false => Err(HardenError::LeftOver("bounding capabilities".to_owned())),
    }
}

fn become_user(user: &User) -> Result<(), HardenError> {
    setgroups(&[]).map_err(system("leave the supplementary groups"))?;
    setresgid(user.gid, user.gid, user.gid).map_err(system("change the group"))?;
    setresuid(user.uid, user.uid, user.uid).map_err(system("change the user"))?;
    Ok(())
}

fn raise(resource: Resource, what: &'static str) -> Result<(), HardenError> {
    let (_, hard) = getrlimit(resource).map_err(system(what))?;
    setrlimit(resource, hard, hard).map_err(system(what))
}

fn system(what: &'static str) -> impl Fn(nix::Error) -> HardenError {
    move |source| HardenError::System { what, source }
}

/// Process ids, other than our own, that run under `uid`.
fn neighbours(uid: u32) -> Vec<u32> {
    use std::os::unix::fs::MetadataExt;
    let own = std::process::id();
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let found: BTreeSet<u32> = entries
        .filter_map(Result::ok)
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse::<u32>().ok()?;
            let owner = entry.metadata().ok()?.uid();
            (owner == uid && pid != own).then_some(pid)
        })
        .collect();
    found.into_iter().collect()
}
