//! Programs of this machine that make their caller somebody else.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Where systems keep programs, helpers of other programs included.
const DIRECTORIES: [&str; 10] = [
    "/bin",
    "/sbin",
    "/lib",
    "/usr/bin",
    "/usr/sbin",
    "/usr/lib",
    "/usr/libexec",
    "/usr/local",
    "/opt",
    "/snap/bin",
];
/// How deep below one of them.
const DEPTH: u32 = 4;
const SET_IDS: u32 = 0o6000;

/// Those that are there; what is a link to another is left to that one.
#[must_use]
pub fn directories() -> Vec<PathBuf> {
    let all = DIRECTORIES.iter().map(PathBuf::from);
    all.filter(|path| fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()))
        .collect()
}

/// Set-user-id and set-group-id programs in and below these directories that others than their owner may execute.
#[must_use]
pub fn set_user_id(directories: &[PathBuf]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for directory in directories {
        below(directory, DEPTH, &mut found);
    }
    found.sort();
    found
}

fn below(directory: &Path, depth: u32, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(metadata) = fs::symlink_metadata(&path) else {
            continue;
        };
        if metadata.is_dir() && depth > 0 {
            below(&path, depth - 1, found);
        } else if metadata.is_file()
            && metadata.mode() & SET_IDS != 0
            && metadata.mode() & 0o011 != 0
        {
            found.push(path);
        }
    }
}

/// Whether the same look finds a file that is made for it.
///
/// # Errors
/// When none could be made.
pub fn sees_its_own() -> io::Result<bool> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("ours");
    fs::write(&path, "")?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4755))?;
    Ok(set_user_id(&[directory.path().to_owned()]) == [path])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_with_an_id_of_their_own_are_found_wherever_they_lie() {
        let directory = tempfile::tempdir().unwrap();
        let put = |name: &str, mode| {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        let wanted = [put("a/b/helper", 0o2755), put("ping", 0o4755)];
        put("plain", 0o755);
        put("for-its-owner-alone", 0o4700);
        assert_eq!(set_user_id(&[directory.path().to_owned()]), wanted);
        assert!(sees_its_own().unwrap());
        assert!(!directories().is_empty());
    }
}
