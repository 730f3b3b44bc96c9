//! Reading a file that only we or root can have written and nobody else can read: keys, tokens.
//!
//! The file is opened once, never through a link, and judged by what was opened. What is read
//! never passes through a buffer that is not zeroised.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::unistd::Uid;
use zeroize::Zeroizing;

/// What is wrong with a file, and what to do about it. Names no content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfit {
    /// Continues a sentence that begins with the file's name.
    pub problem: String,
    /// A remedy; may be empty.
    pub hint: String,
}

impl Unfit {
    fn new(problem: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            problem: problem.into(),
            hint: hint.into(),
        }
    }
}

/// Reads at most `most` bytes of `path`; one byte more is [`Unfit`]. Owners other than root and the
/// effective uid are refused, modes other than 0600 and 0400 too.
///
/// # Errors
/// [`Unfit`]
pub fn read(path: &Path, most: usize) -> Result<Zeroizing<Vec<u8>>, Unfit> {
    let own = Uid::effective().as_raw();
    read_owned(path, most, &[own])
}

/// As [`read`], for a file that may belong to one of `owners` or to root.
///
/// # Errors
/// [`Unfit`]
pub fn read_owned(path: &Path, most: usize, owners: &[u32]) -> Result<Zeroizing<Vec<u8>>, Unfit> {
    let file = open(path)?;
    let shown = path.display();
    let metadata = file
        .metadata()
        .map_err(|problem| Unfit::new(problem.to_string(), ""))?;
    if !metadata.is_file() {
        return Err(Unfit::new(
            "is not a regular file",
            "put the secret into an ordinary file",
        ));
    }
    let mode = metadata.mode() & 0o7777;
    if mode != 0o600 && mode != 0o400 {
        return Err(Unfit::new(
            format!("has mode {mode:04o}; only 0600 or 0400 keep others out"),
            format!("chmod 600 {shown}"),
        ));
    }
    if metadata.uid() != 0 && !owners.contains(&metadata.uid()) {
        let own = owners.first().copied().unwrap_or_default();
        return Err(Unfit::new(
            format!(
                "belongs to uid {}, neither the gate's ({own}) nor root",
                metadata.uid()
            ),
            format!("chown {own} {shown}"),
        ));
    }
    fill(file, most)
}

fn open(path: &Path) -> Result<File, Unfit> {
    let shown = path.display();
    // Non-blocking, so that a fifo put in its place cannot hold up the start.
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(path);
    opened.map_err(|problem| match problem.raw_os_error() {
        Some(libc::ELOOP) => Unfit::new(
            "is a symbolic link",
            "name the file itself: a link can be pointed elsewhere by whoever owns it",
        ),
        Some(libc::ENOENT) => Unfit::new(
            "does not exist",
            format!("write the secret there: install -m 600 /dev/stdin {shown}"),
        ),
        Some(_) | None => Unfit::new(
            format!("cannot be opened: {problem}"),
            format!("chown it to the gate's user and chmod 600 {shown}"),
        ),
    })
}

/// Reads to the end, without a reallocation: that would leave copies behind.
///
/// # Errors
/// [`Unfit`] for more than `most` bytes and for what the system says.
pub fn fill(mut from: impl Read, most: usize) -> Result<Zeroizing<Vec<u8>>, Unfit> {
    let mut bytes = Zeroizing::new(vec![0; most.saturating_add(1)]);
    let mut filled = 0;
    while filled < bytes.len() {
        match from.read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(problem) if problem.kind() == std::io::ErrorKind::Interrupted => {}
            Err(problem) => {
                return Err(Unfit::new(
                    format!("cannot be read: {problem}"),
                    "try again",
                ));
            }
        }
    }
    if filled > most {
        return Err(Unfit::new(
            format!("is longer than {} KiB", most / 1024),
            "this is probably another file",
        ));
    }
    bytes.truncate(filled);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn file(mode: u32) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"0123456789").unwrap();
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        file
    }

    #[test]
    fn reads_only_what_nobody_else_can() {
        for mode in [0o600, 0o400] {
            assert_eq!(
                read(file(mode).path(), 10).unwrap().as_slice(),
                b"0123456789"
            );
        }
        for mode in [0o640, 0o604, 0o666, 0o620, 0o700, 0o4600] {
            let refused = read(file(mode).path(), 10).unwrap_err();
            assert!(
                refused.problem.contains("mode"),
                "{mode:o}: {}",
                refused.problem
            );
        }
    }

    #[test]
    fn a_link_a_directory_and_too_much_are_refused() {
        let target = file(0o600);
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(target.path(), &link).unwrap();
        assert_eq!(read(&link, 10).unwrap_err().problem, "is a symbolic link");
        assert_eq!(
            read(folder.path(), 10).unwrap_err().problem,
            "is not a regular file"
        );
        assert!(
            read(target.path(), 9)
                .unwrap_err()
                .problem
                .contains("longer")
        );
        assert!(read(target.path(), 10).is_ok());
    }
}
