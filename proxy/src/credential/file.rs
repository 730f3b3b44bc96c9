//! Reading a secret's file: a regular file, not a link, that only we or root own and nobody else
//! may read. What is read never passes through a buffer that is not zeroised.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use nix::unistd::Uid;
use zeroize::Zeroizing;

use super::lint::SECRET_BYTES_MAX;
use super::{CredentialError, Flaw};
use crate::config::CredentialConfig;

pub(super) fn read(config: &CredentialConfig) -> Result<Zeroizing<Vec<u8>>, CredentialError> {
    let failed = |problem: String, hint: String| CredentialError::File {
        name: config.name.clone(),
        file: config.file.clone(),
        problem,
        hint,
    };
    let shown = config.file.display();
    // Non-blocking, so that a fifo put in its place cannot hold up the start.
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(&config.file);
    let file = opened.map_err(|problem| match problem.raw_os_error() {
        Some(libc::ELOOP) => failed(
            "is a symbolic link".to_owned(),
            "name the file itself: a link can be pointed elsewhere by whoever owns it".to_owned(),
        ),
        Some(libc::ENOENT) => failed(
            "does not exist".to_owned(),
            format!("write the secret there: install -m 600 /dev/stdin {shown}"),
        ),
        Some(_) | None => failed(
            format!("cannot be opened: {problem}"),
            format!("chown it to the gate's user and chmod 600 {shown}"),
        ),
    })?;
    let metadata = file
        .metadata()
        .map_err(|problem| failed(problem.to_string(), String::new()))?;
    if !metadata.is_file() {
        return Err(failed(
            "is not a regular file".to_owned(),
            "put the secret into an ordinary file".to_owned(),
        ));
    }
    let mode = metadata.mode() & 0o7777;
    if mode != 0o600 && mode != 0o400 {
        return Err(failed(
            format!("has mode {mode:04o}; only 0600 or 0400 keep others out"),
            format!("chmod 600 {shown}"),
        ));
    }
    let own = Uid::effective().as_raw();
    if metadata.uid() != own && metadata.uid() != 0 {
        return Err(failed(
            format!(
                "belongs to uid {}, neither the gate's ({own}) nor root",
                metadata.uid()
            ),
            format!("chown {own} {shown}"),
        ));
    }
    // One byte more than a secret with its line end may have, and never a reallocation: those
    // would leave copies behind.
    let most = SECRET_BYTES_MAX + 3;
    let mut bytes = Zeroizing::new(vec![0; most]);
    let mut filled = 0;
    let mut file = file;
    while filled < most {
        match file.read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(problem) if problem.kind() == std::io::ErrorKind::Interrupted => {}
            Err(problem) => {
                return Err(failed(
                    format!("cannot be read: {problem}"),
                    "try again".to_owned(),
                ));
            }
        }
    }
    if filled == most {
        return Err(CredentialError::Value {
            name: config.name.clone(),
            file: config.file.clone(),
            flaw: Flaw::TooLong,
        });
    }
    bytes.truncate(filled);
    Ok(bytes)
}
