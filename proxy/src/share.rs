//! What agents' containers get from a gate that is a container itself: a directory that both mount, the agents read-only.
//!
//! It holds the socket that they come in by, what their entrypoint needs (the image brings that), the gate's certificate
//! (`ca.pem`) and the same merged with the system's roots (`bundle.pem`). Nothing else of the gate's is on that mount, or
//! the gate does not start.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::ca::{self, CaError};
use crate::config::{Config, SecretSource};

/// How often it is looked whether the authority has changed.
const EVERY: Duration = Duration::from_secs(2);
/// The system's own bundle on Debian and Ubuntu, and in our image.
const ROOTS: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Where things come from and go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// The directory that agents mount.
    pub directory: PathBuf,
    /// What the image brings for them; copied as it is.
    pub from: PathBuf,
}

/// Why agents can be given nothing.
#[derive(Debug, thiserror::Error)]
pub enum ShareError {
    /// Not a volume, so that nothing tells what else agents would get with it.
    #[error(
        "{0} is not a volume of its own\n  hint: mount one there and give agents the same one, read-only"
    )]
    NoVolume(String),
    /// Somebody who mounts the volume would have this as well.
    #[error(
        "{key}: {path} lies on the volume {volume} that agents mount\n  hint: keep it on another volume, or on a tmpfs"
    )]
    Exposed {
        /// The key in the configuration.
        key: &'static str,
        /// What it names.
        path: String,
        /// The mount point.
        volume: String,
    },
    /// `[listen] unix` names no socket there, and no agent may come by the network.
    #[error(
        "no socket of [listen] unix lies in {0}\n  hint: write unix = [\"{0}/gate.sock\"] in proxy.toml, or token = [\"ADDRESS:PORT\"] for agents on a network"
    )]
    NoSocket(String),
    /// A file could not be read or written.
    #[error("cannot {what} {path}")]
    File {
        /// What was being done.
        what: &'static str,
        /// With what.
        path: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The authority's certificate.
    #[error(transparent)]
    Ca(#[from] CaError),
}

impl Share {
    /// Sees to it that nothing but what is meant for agents lies on their volume.
    ///
    /// # Errors
    /// [`ShareError`]: no volume, or something of the gate's own on it.
    pub fn check(&self, config: &Config) -> Result<(), ShareError> {
        let failed = failed("read", Path::new("/proc/self/mountinfo"));
        let table = fs::read_to_string("/proc/self/mountinfo").map_err(failed)?;
        self.check_mounts(config, &mount_points(&table))
    }

    fn check_mounts(&self, config: &Config, mounts: &[PathBuf]) -> Result<(), ShareError> {
        let volume = mount_of(&self.directory, mounts);
        let shown = self.directory.display().to_string();
        if volume != settled(&self.directory) {
            return Err(ShareError::NoVolume(shown));
        }
        let reached = config.listen.as_ref().is_some_and(|listen| {
            let here = |socket: &PathBuf| socket.parent() == Some(&self.directory);
            !listen.token.is_empty() || listen.unix.iter().any(here)
        });
        if !reached {
            return Err(ShareError::NoSocket(shown));
        }
        for (key, path) in private(config) {
            if mount_of(&path, mounts) == volume {
                return Err(ShareError::Exposed {
                    key,
                    path: path.display().to_string(),
                    volume: volume.display().to_string(),
                });
            }
        }
        Ok(())
    }

    /// Copies what the image brings and writes the certificates, whatever was there before.
    ///
    /// # Errors
    /// [`ShareError`]
    pub fn fill(&self, config: &Config) -> Result<(), ShareError> {
        copy(&self.from, &self.directory)?;
        self.certificates(config)?;
        Ok(())
    }

    /// Writes the certificates where they differ; whether they did.
    fn certificates(&self, config: &Config) -> Result<bool, ShareError> {
        let authority = ca::export(&config.ca_directory)?;
        let roots = Path::new(ROOTS);
        let mut bundle = fs::read_to_string(roots).map_err(failed("read", roots))?;
        if !bundle.ends_with('\n') {
            bundle.push('\n');
        }
        bundle.push_str(&authority);
        let mut changed = false;
        for (name, text) in [("bundle.pem", &bundle), ("ca.pem", &authority)] {
            let path = self.directory.join(name);
            changed |= write(&path, text.as_bytes(), 0o644).map_err(failed("write", &path))?;
        }
        Ok(changed)
    }
}

/// Follows the authority, until the task is dropped: during a rotation agents trust both.
pub async fn keep(share: Share, config: std::sync::Arc<Config>) {
    let mut said = None;
    loop {
        tokio::time::sleep(EVERY).await;
        let (share, config) = (share.clone(), std::sync::Arc::clone(&config));
        let done = tokio::task::spawn_blocking(move || share.certificates(&config)).await;
        match done {
            Ok(Ok(false)) => said = None,
            Ok(Ok(true)) => tracing::info!("agents' copy of the certificates was renewed"),
            Ok(Err(problem)) => {
                let text = problem.to_string();
                if said.as_ref() != Some(&text) {
                    tracing::error!("agents' copy of the certificates is not renewed: {text}");
                    said = Some(text);
                }
            }
            Err(problem) => tracing::error!("agents' copy of the certificates: {problem}"),
        }
    }
}

/// What no agent may have, with the key that names it.
fn private(config: &Config) -> Vec<(&'static str, PathBuf)> {
    let mut places = vec![
        ("control.socket", config.control.socket.clone()),
        ("runs.directory", config.runs_directory.clone()),
        ("ca.directory", config.ca_directory.clone()),
        ("audit.directory", config.audit_directory.clone()),
    ];
    if let Some(store) = &config.store {
        places.push(("store.directory", store.directory.clone()));
        places.push(("store.key", store.key.clone()));
    }
    for credential in config.credentials.values() {
        match &credential.source {
            SecretSource::File(path) => places.push(("credential.file", path.clone())),
            SecretSource::Descriptor(_) | SecretSource::Entry(_) => {}
        }
    }
    places
}

/// The fifth field of each line of `mountinfo`, its octal escapes undone.
fn mount_points(table: &str) -> Vec<PathBuf> {
    let field = |line: &str| line.split(' ').nth(4).map(unescaped);
    table.lines().filter_map(field).map(PathBuf::from).collect()
}

fn unescaped(text: &str) -> String {
    let escapes = [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ];
    escapes
        .iter()
        .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// The mount that a path lies on, by the deepest mount point above it.
fn mount_of(path: &Path, mounts: &[PathBuf]) -> PathBuf {
    let path = settled(path);
    let above = mounts.iter().filter(|point| path.starts_with(point));
    let deepest = above.max_by_key(|point| point.components().count());
    deepest.cloned().unwrap_or_else(|| PathBuf::from("/"))
}

/// A path without links, as far as it exists.
fn settled(path: &Path) -> PathBuf {
    match (fs::canonicalize(path), path.parent(), path.file_name()) {
        (Ok(found), _, _) => found,
        (Err(_), Some(parent), Some(name)) => settled(parent).join(name),
        (Err(_), _, _) => path.to_owned(),
    }
}

/// Copies files and directories; what is there already with the same content stays untouched.
fn copy(from: &Path, to: &Path) -> Result<(), ShareError> {
    for entry in fs::read_dir(from).map_err(failed("read", from))? {
        let entry = entry.map_err(failed("read", from))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let metadata = entry.metadata().map_err(failed("read", &source))?;
        if metadata.is_dir() {
            match fs::create_dir(&target) {
                Err(problem) if problem.kind() != std::io::ErrorKind::AlreadyExists => {
                    return Err(failed("make", &target)(problem));
                }
                Ok(()) | Err(_) => copy(&source, &target)?,
            }
            continue;
        }
        let content = fs::read(&source).map_err(failed("read", &source))?;
        let mode = if metadata.mode() & 0o100 == 0 {
            0o644
        } else {
            0o755
        };
        write(&target, &content, mode).map_err(failed("write", &target))?;
    }
    Ok(())
}

/// Replaces a file in one step, unless it is as it should be. A program that runs keeps the former one.
fn write(path: &Path, content: &[u8], mode: u32) -> std::io::Result<bool> {
    let is = |found: &fs::Metadata| found.is_file() && found.mode() & 0o7777 == mode;
    if fs::symlink_metadata(path).is_ok_and(|found| is(&found))
        && fs::read(path).is_ok_and(|found| found == content)
    {
        return Ok(false);
    }
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(".new");
    let fresh = PathBuf::from(fresh);
    match fs::remove_file(&fresh) {
        Err(problem) if problem.kind() != std::io::ErrorKind::NotFound => return Err(problem),
        Ok(()) | Err(_) => {}
    }
    let mut options = fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&fresh)?;
    file.write_all(content)?;
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    Ok(true)
}

fn failed(what: &'static str, path: &Path) -> impl Fn(std::io::Error) -> ShareError + use<> {
    let path = path.display().to_string();
    move |source| ShareError::File {
        what,
        path: path.clone(),
        source,
    }
}

#[cfg(test)]
mod tests;
