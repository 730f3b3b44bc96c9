//! Becoming somebody: user, groups, capabilities and no_new_privs, and then a fresh program.
//!
//! The process that makes an attempt is `/proc/self/exe`, executed anew after the change of user: what the kernel forbids
//! a process that once had more rights (writing its own id map, for one) would otherwise look like a refusal.

use std::fmt;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::str::FromStr;

use caps::{CapSet, Capability};
use nix::sys::prctl;
use nix::unistd::{Gid, Uid, setgid, setgroups, setuid};
use thiserror::Error;

use crate::process::SEARCH_PATH;

/// This very program, whatever directories lead to it.
pub const SELF: &str = "/proc/self/exe";

/// A user to be, written `UID:GID`, with what it keeps behind a `+`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    pub uid: u32,
    pub gid: u32,
    pub keeps: Keeps,
}

/// What a user keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Keeps {
    /// Nothing: no capability, and none to be gained.
    Nothing,
    /// CAP_NET_RAW: containers give it unasked, and a raw socket needs it.
    RawSockets,
    /// The right to gain rights by executing a file: the strongest agent that may be about.
    NewPrivileges,
}

const KEEPS: [(&str, Keeps); 2] = [
    ("+net_raw", Keeps::RawSockets),
    ("+new_privs", Keeps::NewPrivileges),
];

impl Keeps {
    /// As it stands behind a user: nothing, or a word with a `+`.
    #[must_use]
    pub fn word(self) -> &'static str {
        let kept = KEEPS.iter().find(|(_, keeps)| *keeps == self);
        kept.map_or("", |(word, _)| word)
    }
}

#[derive(Debug, Error)]
pub enum IdentityError {
    #[error("{0:?} is not UID:GID")]
    Form(String),
    #[error("cannot {what}")]
    System {
        what: &'static str,
        #[source]
        source: nix::Error,
    },
    #[error("cannot change the capabilities: {0}")]
    Capabilities(String),
    #[error("cannot execute this program anew")]
    Execute(#[source] io::Error),
}

impl Identity {
    /// A user with its primary group.
    #[must_use]
    pub fn of(uid: u32) -> Self {
        let user = nix::unistd::User::from_uid(Uid::from_raw(uid));
        let gid = user.ok().flatten().map_or(uid, |user| user.gid.as_raw());
        Self {
            uid,
            gid,
            keeps: Keeps::Nothing,
        }
    }

    /// The same user, keeping that.
    #[must_use]
    pub fn keeping(self, keeps: Keeps) -> Self {
        Self { keeps, ..self }
    }

    /// Becomes that user for good and executes this program with those arguments. Returns only when something failed.
    pub fn execute(self, arguments: &[String]) -> IdentityError {
        if let Err(error) = self.assume() {
            return error;
        }
        IdentityError::Execute(
            Command::new(SELF)
                .args(arguments)
                .env_clear()
                .env("PATH", SEARCH_PATH)
                .env("LC_ALL", "C.UTF-8")
                .current_dir("/")
                .exec(),
        )
    }

    fn assume(self) -> Result<(), IdentityError> {
        let failed = |what| move |source| IdentityError::System { what, source };
        let refused =
            |error: caps::errors::CapsError| IdentityError::Capabilities(error.to_string());
        let raw = self.keeps == Keeps::RawSockets;
        let gains = self.keeps == Keeps::NewPrivileges;
        for capability in caps::all() {
            let kept = gains || raw && capability == Capability::CAP_NET_RAW;
            if !kept && caps::has_cap(None, CapSet::Bounding, capability).unwrap_or(false) {
                caps::drop(None, CapSet::Bounding, capability).map_err(refused)?;
            }
        }
        if raw {
            prctl::set_keepcaps(true).map_err(failed("keep a capability"))?;
        }
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        setgroups(&[]).map_err(failed("leave the groups"))?;
        setgid(gid).map_err(failed("set the group"))?;
        setuid(uid).map_err(failed("set the user"))?;
        if raw {
            let raw = [Capability::CAP_NET_RAW].into_iter().collect();
            for set in [CapSet::Effective, CapSet::Permitted, CapSet::Inheritable] {
                caps::set(None, set, &raw).map_err(refused)?;
            }
            caps::set(None, CapSet::Ambient, &raw).map_err(refused)?;
        }
        if gains {
            return Ok(());
        }
        prctl::set_no_new_privs().map_err(failed("set no_new_privs"))
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}{}", self.uid, self.gid, self.keeps.word())
    }
}

impl FromStr for Identity {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || IdentityError::Form(text.to_owned());
        let kept = KEEPS
            .iter()
            .find_map(|(word, keeps)| Some((text.strip_suffix(word)?, *keeps)));
        let (ids, keeps) = kept.unwrap_or((text, Keeps::Nothing));
        let (uid, gid) = ids.split_once(':').ok_or_else(wrong)?;
        Ok(Self {
            uid: uid.parse().map_err(|_| wrong())?,
            gid: gid.parse().map_err(|_| wrong())?,
            keeps,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_read_as_it_is_written() {
        for text in ["1500:1500", "0:7", "1900:1900+net_raw", "5:5+new_privs"] {
            assert_eq!(text.parse::<Identity>().unwrap().to_string(), text);
        }
        for text in ["1500", "a:b", "-1:0", "1:2+raw"] {
            assert!(text.parse::<Identity>().is_err(), "{text}");
        }
    }
}
