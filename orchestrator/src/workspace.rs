//! Workspaces: one directory per run, writable by the run's container uid and by nobody else.
//!
//! The owner is an id of the run's slice, which the orchestrator may not become; `newuidmap` lets
//! it act for that id inside a user namespace, so both [`Workspaces::create`] and
//! [`Workspaces::remove`] go through `lxc-usernsexec`. Removal never follows a symbolic link, never leaves
//! the directory's file system, and never opens what it removes (WRK-01, WRK-05).

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::unistd::{Gid, Uid, chown};

use crate::container::Slice;
use policy::grant::RunId;

/// Why a workspace could not be made or removed.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// The directory itself.
    #[error("workspace {path}")]
    Io {
        /// Which.
        path: PathBuf,
        /// What failed.
        #[source]
        source: io::Error,
    },
    /// Acting for the slice's ids.
    #[error(
        "workspace {path}: acting for ids {first} and following failed: {said}\n  hint: this account needs the \
         range in /etc/subuid and /etc/subgid, and newuidmap must be installed setuid"
    )]
    Ids {
        /// Which workspace.
        path: PathBuf,
        /// First id of the slice.
        first: u32,
        /// What the tools said.
        said: String,
    },
}

/// The workspaces of one orchestrator.
#[derive(Debug, Clone)]
pub struct Workspaces {
    directory: PathBuf,
}

impl Workspaces {
    /// Workspaces beneath `directory`, which and whose parents must be searchable by everyone.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
        }
    }

    /// Where the workspace of a run is, whether or not it exists.
    pub fn path(&self, run: &RunId) -> PathBuf {
        self.directory.join(run.as_str())
    }

    /// Makes an empty workspace owned by the slice's agent.
    ///
    /// # Errors
    /// It exists, or the slice is not ours to act for.
    pub fn create(&self, run: &RunId, slice: Slice) -> Result<PathBuf, WorkspaceError> {
        let path = self.path(run);
        let failed = |source| WorkspaceError::Io {
            path: path.clone(),
            source,
        };
        fs::create_dir_all(&self.directory).map_err(failed)?;
        fs::set_permissions(&self.directory, fs::Permissions::from_mode(0o711)).map_err(failed)?;
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(failed)?;
        let agent = slice.agent();
        let given = if Uid::effective().is_root() {
            chown(
                &path,
                Some(Uid::from_raw(agent)),
                Some(Gid::from_raw(agent)),
            )
            .map_err(|error| failed(error.into()))
        } else {
            self.as_slice(
                slice,
                &path,
                &["chown", "-h", "--", &format!("{INNER_AGENT}:{INNER_AGENT}")],
            )
        };
        if let Err(error) = given {
            let _empty = fs::remove_dir(&path);
            return Err(error);
        }
        Ok(path)
    }

    /// Removes a workspace and whatever the run left in it. A missing one is no error. Only for
    /// runs that are proven gone.
    ///
    /// # Errors
    /// Something is left.
    pub fn remove(&self, run: &RunId, slice: Slice) -> Result<(), WorkspaceError> {
        let path = self.path(run);
        match path.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(source) => return Err(WorkspaceError::Io { path, source }),
            Ok(meta) if !meta.is_dir() => {
                let source = io::Error::other("is not a directory");
                return Err(WorkspaceError::Io { path, source });
            }
            Ok(meta) if meta.uid() == slice.agent() || meta.uid() == Uid::effective().as_raw() => {}
            Ok(meta) => {
                let source = io::Error::other(format!("belongs to uid {}", meta.uid()));
                return Err(WorkspaceError::Io { path, source });
            }
        }
        if Uid::effective().is_root() {
            // Opens directories relative to each other without following links.
            return fs::remove_dir_all(&path).map_err(|source| WorkspaceError::Io { path, source });
        }
        // Directories that their owner may not enter are opened up first: inside the namespace we
        // are root over exactly these ids.
        self.as_slice(slice, &path, &["rm", "-rf", "--one-file-system", "--"])
    }

    /// Runs `tool … PATH` in a user namespace where we are root, and the slice's ids follow.
    fn as_slice(&self, slice: Slice, path: &Path, tool: &[&str]) -> Result<(), WorkspaceError> {
        let mut command = Command::new("lxc-usernsexec");
        let own = [
            ("u", Uid::effective().as_raw()),
            ("g", Gid::effective().as_raw()),
        ];
        for (kind, id) in own {
            command.args(["-m", &format!("{kind}:0:{id}:1")]);
            command.args(["-m", &format!("{kind}:1:{}:{}", slice.first, slice.count)]);
        }
        let output = command
            .arg("--")
            .args(tool)
            .arg(path)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("LC_ALL", "C")
            .current_dir("/")
            .stdin(Stdio::null())
            .output()
            .map_err(|source| WorkspaceError::Io {
                path: path.to_owned(),
                source,
            })?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(WorkspaceError::Ids {
            path: path.to_owned(),
            first: slice.first,
            said,
        })
    }
}

/// The agent's id inside the namespace of [`Workspaces::as_slice`]: one after ours, then the slice.
const INNER_AGENT: u32 = 1 + crate::container::slices::AGENT_ID;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn removal_does_not_follow_what_a_run_planted() {
        if !Uid::effective().is_root() {
            // Giving a directory away needs root or a subordinate range; the acceptance suite
            // covers the latter with an account made for it.
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (precious, workspaces) = (dir.path().join("precious"), dir.path().join("ws"));
        fs::create_dir(&precious).unwrap();
        fs::write(precious.join("file"), "kept").unwrap();
        let workspaces = Workspaces::new(workspaces);
        let run: RunId = "r1".parse().unwrap();
        let slice = Slice {
            first: 1_700_000_000,
            count: 1024,
        };
        let path = workspaces.create(&run, slice).unwrap();
        assert_eq!(path.metadata().unwrap().uid(), slice.agent());
        symlink(&precious, path.join("out")).unwrap();
        fs::create_dir(path.join("closed")).unwrap();
        fs::set_permissions(path.join("closed"), fs::Permissions::from_mode(0o000)).unwrap();
        workspaces.remove(&run, slice).unwrap();
        workspaces.remove(&run, slice).unwrap();
        assert!(!path.exists() && precious.join("file").exists());

        symlink(&precious, workspaces.path(&run)).unwrap();
        assert!(
            workspaces.remove(&run, slice).is_err(),
            "a link in its place is not followed"
        );
        assert!(precious.join("file").exists());
    }
}
