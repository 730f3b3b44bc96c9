//! A directory mounted a second time with other owners: what belongs to one id on disk belongs to
//! another through the mount, and the other way round for what is written through it.
//!
//! Needs `CAP_SYS_ADMIN` in the first user namespace and a file system that supports it (ext4,
//! xfs, btrfs and others, depending on the kernel). Where it is refused the caller falls back to a
//! clone; see `docs/exec.md`.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::check;

/// Which single user and group on disk appears as which id through the mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping {
    /// Owner on disk.
    pub disk_uid: u32,
    /// Group on disk.
    pub disk_gid: u32,
    /// Host uid that the owner appears as.
    pub seen_uid: u32,
    /// Host gid that the group appears as.
    pub seen_gid: u32,
}

/// Mounts the tree at `source` (without what is mounted beneath it) on `target`, mapped, writable,
/// `nosuid` and `nodev`. The mount belongs to the mount namespace of the calling thread.
///
/// # Errors
/// The kernel or the file system refuses idmapped mounts, or a path does not exist.
pub fn mount(source: &Path, target: &Path, mapping: Mapping) -> io::Result<()> {
    let namespace = user_namespace(mapping)?;
    let tree = open_tree(source)?;
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_IDMAP | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV,
        attr_clr: 0,
        propagation: 0,
        userns_fd: u64::try_from(namespace.as_raw_fd()).unwrap_or(u64::MAX),
    };
    // SAFETY: the path is an empty C string, the structure lives for the call and its size is
    // passed with it; the kernel reads and does not keep either.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    })?;
    let target = CString::new(target.as_os_str().as_bytes())?;
    // SAFETY: both paths are C strings that live for the call; the tree descriptor is open.
    check(unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_FDCWD,
            target.as_ptr(),
            MOVE_MOUNT_F_EMPTY_PATH,
        )
    })
}

/// `MOVE_MOUNT_F_EMPTY_PATH` of `linux/mount.h`.
const MOVE_MOUNT_F_EMPTY_PATH: libc::c_uint = 4;

fn open_tree(source: &Path) -> io::Result<OwnedFd> {
    let source = CString::new(source.as_os_str().as_bytes())?;
    let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC;
    // SAFETY: the path is a C string that lives for the call.
    let answer =
        unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, source.as_ptr(), flags) };
    check(answer)?;
    let fd = i32::try_from(answer).map_err(io::Error::other)?;
    // SAFETY: the kernel has just returned this new descriptor to us and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A user namespace that carries the mapping. It outlives the process that made it through the
/// descriptor returned.
fn user_namespace(mapping: Mapping) -> io::Result<File> {
    let mut command = Command::new("/bin/cat");
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .env_clear();
    // SAFETY: the closure makes one system call and touches no memory.
    unsafe {
        command.pre_exec(|| check(libc::unshare(libc::CLONE_NEWUSER)));
    }
    let mut child = command.spawn()?;
    let of_child = |name: &str| format!("/proc/{}/{name}", child.id());
    let made = fs::write(
        of_child("uid_map"),
        line(mapping.disk_uid, mapping.seen_uid),
    )
    .and_then(|()| {
        fs::write(
            of_child("gid_map"),
            line(mapping.disk_gid, mapping.seen_gid),
        )
    })
    .and_then(|()| File::open(of_child("ns/user")));
    drop(child.stdin.take());
    child.wait()?;
    made
}

fn line(disk: u32, seen: u32) -> String {
    format!("{disk} {seen} 1\n")
}
