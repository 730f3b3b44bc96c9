//! The system a run sees: a small read-only tree over which the host's `/usr` is mounted.
//!
//! Nothing of the host's `/etc`, `/home`, `/root`, `/var` or `/run` is in it, except copies of a
//! short list of world-readable distribution files that programs under `/usr` need
//! ([`COPIED`]; never credentials). [`create`] may be run any time, also while containers use the
//! tree: every file is replaced by a rename, and only when it differs.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::environment::files;

/// What is copied from the host's `/etc` when it exists. A trailing `*` matches any ending.
pub const COPIED: [&str; 20] = [
    "alternatives",
    "ld.so.cache",
    "mime.types",
    "magic",
    "magic.mime",
    "protocols",
    "services",
    "rpc",
    "networks",
    "terminfo",
    "fonts",
    "debian_version",
    "os-release",
    "lsb-release",
    "ca-certificates.conf",
    "python3*",
    "perl",
    "java-*",
    // Not its settings, which may hold a password.
    "maven/m2.conf",
    "maven/logging",
];

/// Directories and mount points.
const DIRECTORIES: [&str; 18] = [
    "dev",
    "etc/apt",
    "etc/maven",
    "etc/ssl/certs",
    "etc/pki/tls/certs",
    "home/agent",
    "mnt",
    "opt/agent",
    "opt/portcullis/trust",
    "proc",
    "root",
    "run/portcullis",
    "srv",
    "sys",
    "tmp",
    "usr",
    "var/lib",
    "work",
];

const FILES: [(&str, &str); 13] = [
    (
        "etc/passwd",
        "root:x:0:0:root:/root:/bin/sh\n\
         agent:x:1000:1000:agent:/home/agent:/bin/bash\n\
         nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    ),
    (
        "etc/group",
        "root:x:0:\ntty:x:5:\nagent:x:1000:\nnogroup:x:65534:\n",
    ),
    (
        "etc/hosts",
        "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n",
    ),
    ("etc/hostname", "run\n"),
    ("etc/host.conf", "multi on\n"),
    (
        "etc/nsswitch.conf",
        "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nprotocols: files\n\
         services: files\nrpc: files\nnetworks: files\n",
    ),
    // The relay answers there, as the gate says: a listed name has an address, no other exists.
    (
        "etc/resolv.conf",
        "nameserver 127.0.0.1\noptions timeout:5 attempts:2\n",
    ),
    ("etc/gitconfig", files::GITCONFIG),
    (
        "etc/apt/apt.conf",
        "Acquire::http::Proxy \"http://127.0.0.1:3128\";\n\
         Acquire::https::Proxy \"http://127.0.0.1:3128\";\n\
         Acquire::https::CaInfo \"/etc/ssl/certs/ca-certificates.crt\";\n",
    ),
    ("etc/ssl/openssl.cnf", ""),
    ("etc/ssl/certs/ca-certificates.crt", ""),
    ("etc/machine-id", ""),
    ("opt/portcullis/relay", ""),
];

const LINKS: [(&str, &str); 10] = [
    ("bin", "usr/bin"),
    ("sbin", "usr/sbin"),
    ("lib", "usr/lib"),
    ("etc/mtab", "../proc/self/mounts"),
    ("etc/localtime", "/usr/share/zoneinfo/Etc/UTC"),
    ("etc/ssl/cert.pem", "certs/ca-certificates.crt"),
    (
        "etc/pki/tls/certs/ca-bundle.crt",
        "../../../ssl/certs/ca-certificates.crt",
    ),
    ("var/tmp", "../tmp"),
    ("var/run", "../run"),
    ("run/shm", "../dev/shm"),
];

/// The gate as every run sees it.
const GATE: &str = "http://127.0.0.1:3128";

/// Files that are mount points: an existing one stays as it is, in use or not.
const MOUNT_POINTS: [&str; 3] = [
    "etc/gitconfig",
    "etc/ssl/certs/ca-certificates.crt",
    "opt/portcullis/relay",
];

/// Makes or completes the tree at `directory`.
///
/// # Errors
/// A part cannot be made; the message names it.
pub fn create(directory: &Path) -> io::Result<()> {
    for name in DIRECTORIES {
        make_directory(directory, &directory.join(name))?;
    }
    for (name, text) in FILES {
        let path = directory.join(name);
        if !(MOUNT_POINTS.contains(&name) && path.exists()) {
            write(
                &path,
                text.as_bytes(),
                if name.ends_with("relay") {
                    0o755
                } else {
                    0o644
                },
            )?;
        }
    }
    if let Some(settings) = files::maven_settings(GATE) {
        let path = directory.join("etc/maven/settings.xml");
        write(&path, settings.as_bytes(), 0o644)?;
    }
    for (name, target) in LINKS {
        link(&directory.join(name), Path::new(target))?;
    }
    // Which of these exist depends on the machine; /lib64 holds the loader on most.
    for name in ["lib32", "lib64", "libx32"] {
        if Path::new("/usr").join(name).is_dir() {
            link(&directory.join(name), &Path::new("usr").join(name))?;
        }
    }
    for pattern in COPIED {
        for from in matching(Path::new("/etc"), pattern)? {
            if let Ok(name) = from.strip_prefix("/etc") {
                copy(&from, &directory.join("etc").join(name))?;
            }
        }
    }
    Ok(())
}

fn named(path: &Path) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Makes `path`, which lies beneath `top`. Whatever the umask: the ids inside are others than ours,
/// and must be able to look.
fn make_directory(top: &Path, path: &Path) -> io::Result<()> {
    fs::create_dir_all(path).map_err(named(path))?;
    for at in path.ancestors().take_while(|at| at.starts_with(top)) {
        let mode = at.metadata().map_err(named(at))?.permissions().mode();
        if mode & 0o7777 != 0o755 {
            fs::set_permissions(at, fs::Permissions::from_mode(0o755)).map_err(named(at))?;
        }
    }
    Ok(())
}

fn write(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    if fs::read(path).is_ok_and(|old| old == content)
        && path
            .symlink_metadata()
            .is_ok_and(|meta| meta.mode() & 0o777 == mode)
    {
        return Ok(());
    }
    let beside = beside(path);
    fs::write(&beside, content).map_err(named(path))?;
    fs::set_permissions(&beside, fs::Permissions::from_mode(mode)).map_err(named(path))?;
    fs::rename(&beside, path).map_err(named(path))
}

fn link(path: &Path, target: &Path) -> io::Result<()> {
    if fs::read_link(path).is_ok_and(|old| old == target) {
        return Ok(());
    }
    let beside = beside(path);
    let _left_by_a_crash = fs::remove_file(&beside);
    symlink(target, &beside).map_err(named(path))?;
    fs::rename(&beside, path).map_err(named(path))
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    PathBuf::from(name)
}

/// Copies links, world-readable regular files and directories of those; skips everything else.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let meta = from.symlink_metadata().map_err(named(from))?;
    if meta.is_symlink() {
        return link(to, &fs::read_link(from).map_err(named(from))?);
    }
    let readable_by_all = meta.mode() & 0o004 != 0;
    if meta.is_file() && readable_by_all {
        let executable = meta.mode() & 0o111 != 0;
        let content = fs::read(from).map_err(named(from))?;
        return write(to, &content, if executable { 0o755 } else { 0o644 });
    }
    if meta.is_dir() && readable_by_all {
        make_directory(to, to)?;
        for entry in fs::read_dir(from).map_err(named(from))? {
            let entry = entry.map_err(named(from))?;
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

fn matching(directory: &Path, pattern: &str) -> io::Result<Vec<PathBuf>> {
    let Some(start) = pattern.strip_suffix('*') else {
        let path = directory.join(pattern);
        return Ok(if path.symlink_metadata().is_ok() {
            vec![path]
        } else {
            Vec::new()
        });
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(named(directory))? {
        let entry = entry.map_err(named(directory))?;
        if entry.file_name().to_string_lossy().starts_with(start) {
            found.push(entry.path());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(directory: &Path) -> Vec<(PathBuf, u64)> {
        let mut found = Vec::new();
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let meta = entry.path().symlink_metadata().unwrap();
            found.push((entry.path(), meta.ino()));
            if meta.is_dir() {
                found.extend(listing(&entry.path()));
            }
        }
        found.sort();
        found
    }

    #[test]
    fn a_second_time_changes_nothing_and_a_damaged_file_is_repaired() {
        let dir = tempfile::tempdir().unwrap();
        create(dir.path()).unwrap();
        let before = listing(dir.path());
        create(dir.path()).unwrap();
        assert_eq!(before, listing(dir.path()));
        let hosts = dir.path().join("etc/hosts");
        fs::write(&hosts, "127.0.0.1 github.com\n").unwrap();
        create(dir.path()).unwrap();
        assert!(fs::read_to_string(&hosts).unwrap().contains("localhost"));
    }

    #[test]
    fn only_what_everyone_may_read_is_copied() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (name, mode) in [("open", 0o644), ("closed", 0o640)] {
            fs::write(from.path().join(name), "x").unwrap();
            fs::set_permissions(from.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
            copy(&from.path().join(name), &to.path().join(name)).unwrap();
        }
        assert!(to.path().join("open").exists());
        assert!(!to.path().join("closed").exists());
    }
}
