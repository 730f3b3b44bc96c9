//! Why a guest could not be made, remade, looked at or removed.

use std::path::PathBuf;

use thiserror::Error;

use super::http::HttpError;
use super::name::NameError;
use crate::process::ProcessError;

/// Every failure names the guest or volume, and what to do.
#[derive(Debug, Error)]
pub enum GuestError {
    #[error(transparent)]
    Name(#[from] NameError),
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error(
        "neither Incus nor LXD listens here (looked for {0})\n  hint: `apt-get install incus` (Debian 13, Ubuntu 24.04) or `apt-get install lxd` (Debian 12), or name the socket by --socket"
    )]
    NoSocket(String),
    #[error("{asked}: {said}")]
    Refused { asked: String, said: String },
    #[error("{asked}: the answer is not what the API says: {what}")]
    Shape { asked: String, what: String },
    #[error(
        "there is no guest {0}\n  hint: `portcullis guest list` shows those there are, `portcullis guest create {0}` makes one"
    )]
    NoGuest(String),
    #[error(
        "there is a guest {0} already\n  hint: `portcullis guest recreate {0}` makes it anew and keeps its data volume"
    )]
    Exists(String),
    #[error(
        "{0} is a virtual machine, and guests are containers\n  hint: choose another name; a machine of its own is made without this command, and provisioned by `portcullis up` inside"
    )]
    Machine(String),
    #[error(
        "{0} is privileged: its root would be this host's\n  hint: `portcullis guest destroy {0}`, then create it anew; guests are unprivileged"
    )]
    Privileged(String),
    #[error(
        "{0} was not made by `portcullis guest create`\n  hint: choose another name; what somebody else made is left alone"
    )]
    Foreign(String),
    #[error(
        "the volume {volume} is in use by {by}\n  hint: destroy that guest first, which keeps the volume, or name another by --data"
    )]
    VolumeTaken { volume: String, by: String },
    #[error(
        "the volume {volume} could not be taken off {guest}, and nothing was removed: {why}\n  hint: a volume that is attached may go with its guest; repair that first, then try again"
    )]
    Attached {
        volume: String,
        guest: String,
        why: String,
    },
    #[error(
        "{0} has no data volume\n  hint: what it keeps would go with it; `portcullis guest destroy {0} --without-data` if that is meant"
    )]
    NoVolume(String),
    #[error(
        "the data on {volume} is not what it was: {before} before, {after} afterwards\n  hint: look at {volume} before anything runs on it"
    )]
    Changed {
        volume: String,
        before: String,
        after: String,
    },
    #[error("in {guest}: `{command}` ended with {code}: {said}")]
    Inside {
        guest: String,
        command: String,
        code: i64,
        said: String,
    },
    #[error(
        "{guest} did not come up in {seconds} s: {last}\n  hint: `portcullis guest shell {guest}`"
    )]
    NotUp {
        guest: String,
        seconds: u64,
        last: String,
    },
    #[error("cannot read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{0}")]
    Said(String),
}
