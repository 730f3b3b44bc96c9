//! What the steps work on: the instance that is wanted, and what the caller brought along.

use std::path::{Path, PathBuf};

use nix::unistd::User;

use crate::file::Access;
use crate::instance::Instance;

/// The wanted instance and the means to get there.
#[derive(Debug)]
pub struct Site {
    pub instance: Instance,
    /// Where the freshly built binaries are.
    pub binaries: PathBuf,
    /// A file with the upstream token, when the person gave one this time.
    pub token_file: Option<PathBuf>,
    /// Whether systemd is process 1 here and looks after the services.
    pub systemd: bool,
}

impl Site {
    /// Whether systemd runs this host.
    #[must_use]
    pub fn host_has_systemd() -> bool {
        Path::new("/run/systemd/system").is_dir()
    }

    /// What belongs to the account of a role, with that mode; `None` until the account exists.
    #[must_use]
    pub fn access(&self, role: &str, mode: u32) -> Option<Access> {
        let user = User::from_name(&self.instance.layout.user(role))
            .ok()
            .flatten()?;
        Some(Access {
            uid: user.uid.as_raw(),
            gid: user.gid.as_raw(),
            mode,
        })
    }
}
