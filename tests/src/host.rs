//! Throw-away users of the host: numbers without an account, a home of their own, no privilege.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::unistd::{Uid, User};

/// A uid (and gid) that no account and no other test of this machine uses.
pub fn uid() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        // Far from accounts and from the usual subordinate ranges; spread by process.
        let base = 1_900_000_000 + (std::process::id() % 100_000) * 1_000;
        let uid = base + NEXT.fetch_add(1, Ordering::SeqCst);
        if User::from_uid(Uid::from_raw(uid)).is_ok_and(|user| user.is_none()) {
            return uid;
        }
    }
}

/// Makes `path` (and what is missing above it) and hands it to `uid` with `mode`.
pub fn directory(path: &Path, uid: u32, mode: u32) {
    fs::create_dir_all(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    own(path, uid, mode);
}

/// Writes `text` to `path` and hands it to `uid` with `mode`.
pub fn file(path: &Path, text: &str, uid: u32, mode: u32) {
    fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    own(path, uid, mode);
}

/// Hands `path` to `uid` with `mode`.
pub fn own(path: &Path, uid: u32, mode: u32) {
    chown(path, Some(uid), Some(uid))
        .unwrap_or_else(|error| panic!("{}: {error} (the suite runs as root)", path.display()));
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// A temporary folder that other uids may pass through, under `/tmp`.
pub fn scratch() -> tempfile::TempDir {
    let dir = tempfile::Builder::new()
        .prefix("portcullis-")
        .tempdir()
        .expect("room in /tmp");
    own(dir.path(), 0, 0o711);
    dir
}
