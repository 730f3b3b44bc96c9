//! Which places of a working directory tools of the host take commands from, or answer at.
//!
//! Everything is read on disk, before the run, and given relative to the directory.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

use nix::unistd::{Uid, User};

use crate::exec::clone::command;

/// Git directories of a repository with its submodules and worktrees are few; beyond this a clone
/// is made instead.
const MOST_REPOSITORIES: usize = 1000;

/// Entries looked at for sockets; a larger tree is cloned.
const MOST_ENTRIES: usize = 2_000_000;

/// Keys of git's configuration whose values are commands (suffixes after the last dot).
const COMMAND_KEYS: [&str; 20] = [
    "askpass",
    "clean",
    "cmd",
    "command",
    "diff",
    "difffilter",
    "driver",
    "editor",
    "external",
    "fsmonitor",
    "gitproxy",
    "helper",
    "pager",
    "process",
    "program",
    "receivepack",
    "smudge",
    "sshcommand",
    "textconv",
    "uploadpack",
];

/// The git directories beneath `root`, parents first: `.git` itself, those of submodules at any
/// depth and of worktrees elsewhere, and the directories that lead to them.
pub(super) fn git_directories(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = vec![PathBuf::from(".git")];
    let mut open = vec![PathBuf::from(".git/modules"), ".git/worktrees".into()];
    while let Some(directory) = open.pop() {
        let on_disk = root.join(&directory);
        if !on_disk.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
            continue;
        }
        if is_repository(&on_disk) {
            open.extend(["modules", "worktrees"].map(|name| directory.join(name)));
        } else {
            for entry in fs::read_dir(&on_disk)? {
                open.push(directory.join(entry?.file_name()));
            }
        }
        found.push(directory);
        if found.len() > MOST_REPOSITORIES {
            return Err(io::Error::other("it has more than 1000 submodules"));
        }
    }
    found.sort();
    Ok(found)
}

/// Whether git would take this directory for a git directory.
pub(in crate::exec) fn is_repository(directory: &Path) -> bool {
    let has = |name: &str| directory.join(name).symlink_metadata().is_ok();
    has("HEAD") && (has("objects") || has("commondir"))
}

/// Places inside `root` that git's configuration names: a hooks directory in the working tree, an
/// included file, a script that is run as filter, editor or the like. Asked of git itself as the owner,
/// so that included files, other spellings and the owner's own configuration count. Some may not exist yet.
pub(super) fn named_by_config(root: &Path, owner: (u32, u32)) -> Vec<PathBuf> {
    let ask = |arguments: &[&str]| {
        let mut git = command(owner, root);
        if let Ok(Some(user)) = User::from_uid(Uid::from_raw(owner.0)) {
            git.env("HOME", user.dir);
        }
        // Without git, or without a repository, nothing is named by a configuration.
        let output = git.args(arguments).output().ok()?;
        output.status.success().then_some(output.stdout)
    };
    let mut found = Vec::new();
    if let Some(hooks) = ask(&["rev-parse", "--git-path", "hooks"]) {
        found.extend(inside(root, root, &String::from_utf8_lossy(&hooks)));
    }
    let listed = ask(&["config", "--list", "--includes", "--show-origin", "-z"]);
    let listed = String::from_utf8_lossy(listed.as_deref().unwrap_or_default()).into_owned();
    let mut fields = listed.split('\0');
    while let (Some(origin), Some(setting)) = (fields.next(), fields.next()) {
        let Some(file) = origin.strip_prefix("file:").map(|file| root.join(file)) else {
            continue;
        };
        found.extend(inside(root, root, &file.to_string_lossy()));
        let Some((key, value)) = setting.split_once('\n') else {
            continue;
        };
        let last = key.rsplit('.').next().unwrap_or_default();
        if key.starts_with("include") && last == "path" {
            let from = file.parent().unwrap_or(root);
            found.extend(inside(root, from, value));
        } else if COMMAND_KEYS.contains(&last)
            || key.starts_with("alias.")
            || key.starts_with("pager.")
        {
            let words = value.split(|c: char| c.is_whitespace() || "\"'!;&|()".contains(c));
            let scripts = words.filter_map(|word| inside(root, root, word));
            found.extend(scripts.filter(|path| root.join(path).is_file()));
        }
    }
    // The repository's own are closed in any case.
    found.retain(|path| !path.starts_with(".git"));
    found.sort();
    found.dedup();
    found
}

/// `path` (from `from`, if it is relative) relative to `root`, if it lies beneath.
fn inside(root: &Path, from: &Path, path: &str) -> Option<PathBuf> {
    let path = normal(&from.join(path.trim_end_matches('\n')));
    let rest = path.strip_prefix(root).ok()?;
    (rest.components().count() > 0).then(|| rest.to_owned())
}

/// The path without `.` and `..`, by the letter.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                normal.pop();
            }
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => normal.push(part),
        }
    }
    normal
}

/// Sockets and pipes in the tree: whoever listens there is a process of the host.
pub(super) fn endpoints(root: &Path) -> io::Result<Vec<PathBuf>> {
    let device = root.metadata()?.dev();
    let (mut found, mut seen) = (Vec::new(), 0);
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        // The owner cannot enter it, so neither can the run.
        let Ok(entries) = fs::read_dir(&directory) else {
            continue;
        };
        for entry in entries {
            let entry = entry?;
            seen += 1;
            if seen > MOST_ENTRIES {
                return Err(io::Error::other("it holds more than 2,000,000 files"));
            }
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            if kind.is_dir() {
                // What is mounted beneath is not taken along.
                if entry.metadata().is_ok_and(|meta| meta.dev() == device) {
                    open.push(entry.path());
                }
            } else if kind.is_socket() || kind.is_fifo() {
                let path = entry.path();
                found.push(path.strip_prefix(root).unwrap_or(&path).to_owned());
            }
        }
    }
    Ok(found)
}

/// What a crash must not make us forget: a directory and the names that must not have appeared in it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Journal {
    pub(super) directory: PathBuf,
    pub(super) absent: Vec<PathBuf>,
}

impl Journal {
    pub(super) fn write(&self, file: &Path) -> io::Result<()> {
        let paths = std::iter::once(&self.directory).chain(&self.absent);
        let lines: Vec<&[u8]> = paths.map(|path| path.as_os_str().as_bytes()).collect();
        fs::write(file, lines.join(&0))
    }

    pub(super) fn read(file: &Path) -> io::Result<Self> {
        let bytes = fs::read(file)?;
        let mut paths = bytes
            .split(|byte| *byte == 0)
            .map(|path| PathBuf::from(std::ffi::OsStr::from_bytes(path)));
        Ok(Self {
            directory: paths.next().unwrap_or_default(),
            absent: paths.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_the_configuration_names_inside_the_tree_is_found_however_it_is_spelt() {
        let dir = tempfile::tempdir().unwrap();
        let root = &dir.path().canonicalize().unwrap();
        let meta = root.metadata().unwrap();
        let owner = (meta.uid(), meta.gid());
        assert!(named_by_config(root, owner).is_empty(), "no repository");
        let init = command(owner, root).args(["init", "-q"]).status().unwrap();
        assert!(init.success());
        let own = fs::read_to_string(root.join(".git/config")).unwrap();
        for name in ["more", "tools/fsm.py", "tools/edit"] {
            fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
            fs::write(root.join(name), "").unwrap();
        }
        let absolute = format!("[core]\n\thooksPath = {}/deep/hooks\n", root.display());
        for (text, named) in [
            ("[core]\n\thooksPath = .githooks ; why\n", ".githooks"),
            ("[core] hooksPath = .githooks\n", ".githooks"),
            ("[core]\n\thookspath=\"a b/hooks\"\n", "a b/hooks"),
            (absolute.as_str(), "deep/hooks"),
            ("[include]\n\tpath = ../more\n", "more"),
            ("[include] path = ../missing\n", "missing"),
            (
                "[core]\n\tfsmonitor = python3 tools/fsm.py\n",
                "tools/fsm.py",
            ),
            (
                "[filter \"x\"]\n\tclean = ./tools/fsm.py %f\n",
                "tools/fsm.py",
            ),
            ("[alias]\n\tx = !tools/edit\n", "tools/edit"),
        ] {
            fs::write(root.join(".git/config"), format!("{own}{text}")).unwrap();
            assert_eq!(
                named_by_config(root, owner),
                [PathBuf::from(named)],
                "{text}"
            );
        }
        for text in [
            "[include]\n\tpath = ../../outside\n",
            "[user]\n\tname = tools\n",
            "[core]\n\tfsmonitor = true\n",
        ] {
            fs::write(root.join(".git/config"), format!("{own}{text}")).unwrap();
            assert!(named_by_config(root, owner).is_empty(), "{text}");
        }
    }

    #[test]
    fn a_journal_carries_any_name() {
        let dir = tempfile::tempdir().unwrap();
        let odd = PathBuf::from(std::ffi::OsStr::from_bytes(b"a\n\xff"));
        let journal = Journal {
            directory: "/home/a b".into(),
            absent: vec![".envrc".into(), odd],
        };
        journal.write(&dir.path().join("j")).unwrap();
        assert_eq!(Journal::read(&dir.path().join("j")).unwrap(), journal);
    }
}
