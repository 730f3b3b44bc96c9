//! The other way to work on a repository: on a clone that belongs to the run, handed back as a
//! branch.
//!
//! Git runs on the host twice, always as the owner of the caller's repository and never inside
//! anything the run has written: once to clone before, once to fetch after. What is fetched from is a
//! repository made by us, into which only object files are copied from the clone; its
//! configuration, hooks and references are never read by git (WRK-02).

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, lchown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::ExecError;
use crate::container::{Slice, passable_directory};

/// A repository of the caller's and the clone made of it.
#[derive(Debug)]
pub(super) struct Clone {
    source: PathBuf,
    owner: (u32, u32),
    /// The clone's working tree: the workspace.
    pub(super) work: PathBuf,
    scratch: PathBuf,
    start: String,
}

impl Clone {
    /// Clones the repository around `directory` into `scratch` and gives the clone to the slice's
    /// agent.
    ///
    /// # Errors
    /// `directory` is in no repository, or git fails.
    pub(super) fn make(directory: &Path, scratch: &Path, slice: Slice) -> Result<Self, ExecError> {
        let meta = directory
            .metadata()
            .map_err(ExecError::io("reading the current directory"))?;
        let owner = (meta.uid(), meta.gid());
        let top = git(owner, directory, &["rev-parse", "--show-toplevel"]).map_err(|error| {
            ExecError::Said(format!(
                "{} is in no repository that could be cloned ({error})\n  hint: work in a git repository, or on \
                 a file system that can be mapped (ext4, xfs, btrfs)",
                directory.display()
            ))
        })?;
        let source = PathBuf::from(top);
        let making = || ExecError::io(format!("making {}", scratch.display()));
        passable_directory(scratch).map_err(making())?;
        lchown(scratch, Some(owner.0), Some(owner.1)).map_err(making())?;
        let work = scratch.join("work");
        let (from, to) = (text(&source)?, text(&work)?);
        git(
            owner,
            scratch,
            &[
                "clone",
                "-q",
                "--no-hardlinks",
                "--template=",
                "--",
                from,
                to,
            ],
        )?;
        // Inside, the path on this host means nothing: pushes and fetches go where the source's go.
        match git(owner, &source, &["config", "--get", "remote.origin.url"]) {
            Ok(url) => git(owner, &work, &["remote", "set-url", "origin", &url])?,
            Err(_no_remote) => git(owner, &work, &["remote", "remove", "origin"])?,
        };
        let start = git(owner, &work, &["rev-parse", "HEAD"])?;
        give(&work, slice.agent()).map_err(ExecError::io("giving the clone to the run"))?;
        Ok(Self {
            source,
            owner,
            work,
            scratch: scratch.to_owned(),
            start,
        })
    }

    /// Fetches what the clone's `HEAD` is now as the branch `portcullis/RUN`. `None` when it is
    /// what it was.
    ///
    /// # Errors
    /// The clone is damaged, or git finds its objects bad.
    pub(super) fn hand_back(&self, run: &str) -> Result<Option<String>, ExecError> {
        let reading = || ExecError::io("reading what the run committed");
        let head = head_of(&self.work.join(".git")).map_err(reading())?;
        if head == self.start {
            return Ok(None);
        }
        let transfer = self.scratch.join("transfer");
        git(
            self.owner,
            &self.scratch,
            &["init", "-q", "--bare", "--template=", text(&transfer)?],
        )?;
        copy_objects(&self.work.join(".git/objects"), &transfer.join("objects"))
            .map_err(reading())?;
        fs::create_dir_all(transfer.join("refs/heads")).map_err(reading())?;
        fs::write(transfer.join("refs/heads/work"), format!("{head}\n")).map_err(reading())?;
        give_to(&transfer, self.owner).map_err(reading())?;
        let branch = format!("portcullis/{run}");
        let refspec = format!("refs/heads/work:refs/heads/{branch}");
        let options = [
            "fetch",
            "-q",
            "--no-tags",
            "--no-write-fetch-head",
            "--no-recurse-submodules",
            "--",
        ];
        let mut arguments = options.to_vec();
        arguments.extend([text(&transfer)?, &refspec]);
        git(self.owner, &self.source, &arguments)?;
        Ok(Some(branch))
    }

    /// Removes the clone. Links in it are removed, not followed.
    pub(super) fn remove(&self) {
        let _best_effort = fs::remove_dir_all(&self.scratch);
    }
}

/// Runs git as `owner`, with nothing in the caller's configuration able to run a program.
fn git(owner: (u32, u32), directory: &Path, arguments: &[&str]) -> Result<String, ExecError> {
    let mut command = command(owner, directory);
    for setting in [
        "core.hooksPath=/dev/null",
        "core.fsmonitor=false",
        "protocol.file.allow=always",
        "gc.auto=0",
        "maintenance.auto=false",
        "transfer.fsckObjects=true",
        "submodule.recurse=false",
    ] {
        command.args(["-c", setting]);
    }
    command
        .args(arguments)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1");
    let doing = || format!("running git {}", arguments.first().unwrap_or(&""));
    let output = command.output().map_err(|source| ExecError::Io {
        doing: doing(),
        source,
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(ExecError::Said(format!("{} failed: {said}", doing())));
    }
    Ok(String::from_utf8_lossy(&output.stdout)
        .trim_end_matches('\n')
        .to_owned())
}

/// Git in `directory` as `owner`, with an environment of ours and otherwise its own configuration.
pub(super) fn command(owner: (u32, u32), directory: &Path) -> Command {
    let mut command = Command::new("git");
    command
        .current_dir(directory)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("HOME", "/nonexistent")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::null());
    if nix::unistd::Uid::effective().is_root() {
        command.uid(owner.0).gid(owner.1);
    }
    command
}

fn text(path: &Path) -> Result<&str, ExecError> {
    path.to_str()
        .ok_or_else(|| ExecError::Said(format!("{} is not UTF-8", path.display())))
}

fn give(path: &Path, id: u32) -> io::Result<()> {
    give_to(path, (id, id))
}

/// Changes the owner of a tree that nobody else is writing to. Links themselves change owner.
fn give_to(path: &Path, (uid, gid): (u32, u32)) -> io::Result<()> {
    lchown(path, Some(uid), Some(gid))?;
    if path.symlink_metadata()?.is_dir() {
        for entry in fs::read_dir(path)? {
            give_to(&entry?.path(), (uid, gid))?;
        }
    }
    Ok(())
}

/// Bytes that a file may claim beyond (twice) what it takes on disk.
const HOLES: u64 = 1024 * 1024;

/// Opens a regular file without following a link in its last place; the run is over, so nothing
/// changes under us, and every directory on the way has been checked to be one.
fn open_plain(path: &Path) -> io::Result<fs::File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    let meta = file.metadata()?;
    // Compressed data has no holes: whoever copies one copies terabytes of nothing.
    if meta.len() > HOLES + 2 * 512 * meta.blocks() {
        return Err(io::Error::other(format!(
            "{} claims to be larger than it is",
            path.display()
        )));
    }
    if !meta.is_file() {
        return Err(io::Error::other(format!(
            "{} is not a regular file",
            path.display()
        )));
    }
    Ok(file)
}

fn real_directory(path: &Path) -> io::Result<()> {
    if path.symlink_metadata()?.is_dir() {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "{} is not a directory",
        path.display()
    )))
}

/// The commit that `HEAD` of a repository names, read without git.
fn head_of(repository: &Path) -> io::Result<String> {
    real_directory(repository)?;
    let small = |path: &Path| {
        let mut text = String::new();
        open_plain(path)?
            .take(16 * 1024 * 1024)
            .read_to_string(&mut text)?;
        Ok::<_, io::Error>(text)
    };
    let bad = || io::Error::other("HEAD names no commit");
    let head = small(&repository.join("HEAD"))?;
    let Some(name) = head.trim().strip_prefix("ref: ") else {
        return object_id(&head).ok_or_else(bad);
    };
    let safe = name.starts_with("refs/heads/")
        && name
            .split('/')
            .all(|part| !part.is_empty() && part != "." && part != "..");
    if !safe {
        return Err(bad());
    }
    let mut at = repository.to_owned();
    let parts: Vec<&str> = name.split('/').collect();
    for part in &parts[..parts.len() - 1] {
        at.push(part);
        if at.symlink_metadata().is_ok_and(|meta| !meta.is_dir()) {
            return Err(bad());
        }
    }
    match small(&repository.join(name)) {
        Ok(text) => object_id(&text).ok_or_else(bad),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let packed = small(&repository.join("packed-refs"))?;
            packed
                .lines()
                .find_map(|line| line.split_once(' ').filter(|(_, other)| *other == name))
                .and_then(|(id, _)| object_id(id))
                .ok_or_else(bad)
        }
        Err(error) => Err(error),
    }
}

fn object_id(text: &str) -> Option<String> {
    let text = text.trim();
    let hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    (hex && matches!(text.len(), 40 | 64)).then(|| text.to_owned())
}

/// Copies packs and loose objects, regular files by their expected names only.
fn copy_objects(from: &Path, to: &Path) -> io::Result<()> {
    real_directory(from)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let loose = name.len() == 2 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !(loose || name == "pack") || !entry.file_type()?.is_dir() {
            continue;
        }
        let target = to.join(&name);
        fs::create_dir_all(&target)?;
        for file in fs::read_dir(entry.path())? {
            let file = file?;
            let name = file.file_name().to_string_lossy().into_owned();
            let wanted = if loose {
                name.bytes().all(|byte| byte.is_ascii_hexdigit())
            } else {
                name.starts_with("pack-") && (name.ends_with(".pack") || name.ends_with(".idx"))
            };
            if wanted && file.file_type()?.is_file() {
                io::copy(
                    &mut open_plain(&file.path())?,
                    &mut fs::File::create(target.join(name))?,
                )?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn objects_that_are_no_plain_files_of_their_size_are_not_copied() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("pack")).unwrap();
        fs::write(from.join("pack/pack-1.pack"), "real").unwrap();
        symlink("/etc/hostname", from.join("pack/pack-2.pack")).unwrap();
        copy_objects(&from, &to).unwrap();
        assert_eq!(fs::read(to.join("pack/pack-1.pack")).unwrap(), b"real");
        assert!(!to.join("pack/pack-2.pack").exists());
        let hole = fs::File::create(from.join("pack/pack-3.pack")).unwrap();
        hole.set_len(1 << 40).unwrap();
        assert!(copy_objects(&from, &to).is_err(), "a terabyte of nothing");
    }

    #[test]
    fn a_head_that_leads_elsewhere_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let git = dir.path();
        let id = "0123456789abcdef0123456789abcdef01234567";
        fs::create_dir_all(git.join("refs/heads")).unwrap();
        fs::write(git.join("refs/heads/a"), format!("{id}\n")).unwrap();
        fs::write(git.join("HEAD"), "ref: refs/heads/a\n").unwrap();
        assert_eq!(head_of(git).unwrap(), id);
        fs::write(git.join("HEAD"), id).unwrap();
        assert_eq!(head_of(git).unwrap(), id);
        for bad in [
            "ref: refs/heads/../../../etc/shadow",
            "ref: /etc/shadow",
            "ref: refs/heads/",
            "x",
        ] {
            fs::write(git.join("HEAD"), bad).unwrap();
            assert!(head_of(git).is_err(), "{bad}");
        }
        fs::write(git.join("elsewhere"), id).unwrap();
        symlink(git.join("elsewhere"), git.join("refs/heads/link")).unwrap();
        fs::write(git.join("HEAD"), "ref: refs/heads/link").unwrap();
        assert!(head_of(git).is_err());
    }
}
