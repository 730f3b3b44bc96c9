//! What runs guests, behind one small trait. A driver does as it is told; what may be done in which order is
//! [`super::keeper`]'s.

use std::path::PathBuf;

use super::error::GuestError;
use super::name::Name;

/// What a guest is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A distribution image the host of the guests has, or knows where to get.
    Image(String),
    /// A root file system of one's own: a tar file or a directory.
    Rootfs(PathBuf),
}

/// A guest that is to be made. It gets no privilege that can be asked for here.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub name: Name,
    pub source: Source,
    /// The data volume; made when it is not there.
    pub volume: Name,
    /// A bridge or network of the host's; without one the guest has an interface that leads to the host alone.
    pub network: Option<String>,
}

/// A guest as the driver sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guest {
    pub name: String,
    pub is_container: bool,
    pub is_unprivileged: bool,
    pub is_running: bool,
    /// Made by this command, or somebody else's.
    pub is_ours: bool,
    /// The data volume that is attached.
    pub volume: Option<String>,
    /// What it was made of, as it was asked for, for `recreate`.
    pub wanted: Option<(Source, Option<String>)>,
}

/// What a command inside left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    pub code: i64,
    pub output: String,
    pub error: String,
}

/// Whoever runs guests. Every method returns when what it does is done.
pub trait Driver {
    /// What it is, for a person.
    fn shown(&self) -> String;

    /// Every guest, somebody else's too.
    ///
    /// # Errors
    /// When it cannot be asked.
    fn list(&self) -> Result<Vec<Guest>, GuestError>;

    /// By whom a volume is used; `None` when there is no such volume, nobody when it is free.
    ///
    /// # Errors
    /// When it cannot be asked.
    fn volume(&self, name: &str) -> Result<Option<Vec<String>>, GuestError>;

    /// Makes the volume, empty.
    ///
    /// # Errors
    /// When it cannot.
    fn make_volume(&self, name: &Name) -> Result<(), GuestError>;

    /// Makes the container, unprivileged, with nesting, stopped, without the volume.
    ///
    /// # Errors
    /// When it cannot; nothing of it is left then.
    fn make(&self, wanted: &Wanted) -> Result<(), GuestError>;

    /// Puts the volume at [`super::DATA`].
    ///
    /// # Errors
    /// When it cannot.
    fn attach(&self, guest: &str, volume: &str) -> Result<(), GuestError>;

    /// Takes the volume off.
    ///
    /// # Errors
    /// When it cannot.
    fn detach(&self, guest: &str, volume: &str) -> Result<(), GuestError>;

    /// Starts a stopped guest.
    ///
    /// # Errors
    /// When it cannot.
    fn start(&self, guest: &str) -> Result<(), GuestError>;

    /// Stops a guest, by force when it does not in time.
    ///
    /// # Errors
    /// When it cannot.
    fn stop(&self, guest: &str) -> Result<(), GuestError>;

    /// Removes a stopped guest and its root file system.
    ///
    /// # Errors
    /// When it cannot.
    fn remove(&self, guest: &str) -> Result<(), GuestError>;

    /// Runs a command inside as root, without input.
    ///
    /// # Errors
    /// When it could not be run; how it ended is no error.
    fn run(&self, guest: &str, command: &[&str]) -> Result<Ended, GuestError>;

    /// Writes a file of root's inside.
    ///
    /// # Errors
    /// When it cannot.
    fn put(
        &self,
        guest: &str,
        path: &str,
        from: &std::path::Path,
        mode: u32,
    ) -> Result<(), GuestError>;

    /// The command that opens a shell inside for a person, with its environment.
    ///
    /// # Errors
    /// When there is none here.
    fn shell(&self, guest: &str) -> Result<Vec<String>, GuestError>;
}
