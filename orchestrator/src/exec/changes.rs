//! What a run left behind that a tool of the host would execute.
//!
//! A run may change any file of its workspace; most are only data until somebody builds or tests.
//! Listed are changed files that run *by themselves* or by everyday commands: executables, what git
//! and direnv take commands from, and the task files that build tools, package managers and
//! editors run ([`Reason`] is the whole set). Changed means: the kernel's change time is not before
//! the start of the run, which no program inside can forge.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// Directory entries looked at; beyond that the list says that it is incomplete.
const MOST: usize = 2_000_000;

/// Files that tools run, or take commands from, without being asked to run that file.
const TASK_FILES: [&str; 36] = [
    ".bazelrc",
    ".envrc",
    ".gitattributes",
    ".gitconfig",
    ".gitmodules",
    ".lfsconfig",
    ".mise.toml",
    ".npmrc",
    ".pnpmfile.cjs",
    ".pre-commit-config.yaml",
    ".tool-versions",
    ".yarnrc",
    ".yarnrc.yml",
    "CMakeLists.txt",
    "GNUmakefile",
    "Gemfile",
    "Jenkinsfile",
    "Justfile",
    "Makefile",
    "Rakefile",
    "Taskfile.yml",
    "Vagrantfile",
    "build.gradle",
    "build.gradle.kts",
    "build.rs",
    "composer.json",
    "conftest.py",
    "justfile",
    "makefile",
    "mise.toml",
    "package.json",
    "pom.xml",
    "pyproject.toml",
    "rust-toolchain.toml",
    "setup.py",
    "sitecustomize.py",
];

/// Directories whose every changed file counts.
const TASK_DIRECTORIES: [&str; 6] = [
    ".cargo",
    ".devcontainer",
    ".husky",
    ".idea",
    ".mvn",
    ".vscode",
];

/// Why a changed file is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Git runs it, or reads commands from it: hooks, configuration, attributes of a repository.
    Git,
    /// A whole repository that was not there before, with a configuration of its own.
    Repository,
    /// Its executable bit is set.
    Executable,
    /// A build tool, package manager, editor or direnv takes commands from it.
    Task,
}

/// One changed file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Changed {
    /// Relative to the workspace.
    pub path: PathBuf,
    /// Why it matters.
    pub reason: Reason,
}

/// Everything found, and whether the search reached its end.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    pub(super) files: Vec<Changed>,
    pub(super) complete: bool,
}

/// Searches `root` for files whose change time is `since` (seconds and nanoseconds of the epoch) or later. Links are
/// neither followed nor opened; no file is opened at all.
pub(super) fn since(root: &Path, since: (i64, i64)) -> Changes {
    let mut search = Search {
        root,
        since,
        seen: 0,
        found: Vec::new(),
        skipped: false,
    };
    search.directory(root, 0);
    search.found.sort();
    Changes {
        files: search.found,
        complete: !search.skipped,
    }
}

struct Search<'a> {
    root: &'a Path,
    since: (i64, i64),
    seen: usize,
    found: Vec<Changed>,
    skipped: bool,
}

impl Search<'_> {
    fn directory(&mut self, directory: &Path, depth: usize) {
        let Ok(entries) = fs::read_dir(directory) else {
            self.skipped = true;
            return;
        };
        if self.is_new_repository(directory) {
            self.add(directory, Reason::Repository);
        }
        for entry in entries {
            let Ok((path, meta)) = entry.and_then(|entry| Ok((entry.path(), entry.metadata()?)))
            else {
                continue;
            };
            self.seen += 1;
            if self.seen > MOST || depth > 200 {
                self.skipped = true;
                return;
            }
            if meta.is_dir() {
                self.directory(&path, depth + 1);
            } else if (meta.ctime(), meta.ctime_nsec()) >= self.since
                && let Some(reason) = self.reason(&path, &meta)
            {
                self.add(&path, reason);
            }
        }
    }

    fn add(&mut self, path: &Path, reason: Reason) {
        let path = path.strip_prefix(self.root).unwrap_or(path).to_owned();
        self.found.push(Changed { path, reason });
    }

    /// A directory that git would take for a repository, whose `HEAD` and `config` are new; the
    /// workspace's own `.git` never counts.
    fn is_new_repository(&self, directory: &Path) -> bool {
        let own = directory
            .strip_prefix(self.root)
            .is_ok_and(|path| path == Path::new(".git"));
        let new = |name: &str| {
            directory
                .join(name)
                .symlink_metadata()
                .is_ok_and(|meta| (meta.ctime(), meta.ctime_nsec()) >= self.since)
        };
        !own && directory.join("objects").is_dir() && new("HEAD") && new("config")
    }

    fn reason(&self, path: &Path, meta: &fs::Metadata) -> Option<Reason> {
        let relative = path.strip_prefix(self.root).ok()?;
        let name = relative.file_name()?.to_str().unwrap_or_default();
        let parents: Vec<&str> = relative
            .parent()?
            .components()
            .filter_map(|part| part.as_os_str().to_str())
            .collect();
        if name == ".git" {
            return Some(Reason::Repository);
        }
        if parents.contains(&".git") {
            let commands = matches!(
                name,
                "config" | "config.worktree" | "commondir" | "gitdir" | "attributes"
            ) || parents.contains(&"hooks");
            return commands.then_some(Reason::Git);
        }
        if TASK_FILES.contains(&name)
            || TASK_DIRECTORIES
                .iter()
                .any(|directory| parents.contains(directory))
        {
            return Some(Reason::Task);
        }
        let executable = meta.is_file() && meta.mode() & 0o111 != 0;
        executable.then_some(Reason::Executable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn what_the_host_would_run_is_listed_and_the_rest_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let put = |name: &str, mode: u32| {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "x").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        };
        put("src/main.rs", 0o644);
        put("run.sh", 0o755);
        put(".git/hooks/pre-commit", 0o755);
        put(".git/objects/ab/cdef", 0o444);
        put(".git/modules/m/config", 0o644);
        put("sub/.git/config", 0o644);
        put("sub/.git/HEAD", 0o644);
        fs::create_dir(root.join("sub/.git/objects")).unwrap();
        put("package.json", 0o644);
        put(".husky/pre-push", 0o644);
        symlink("/etc/shadow", root.join("link")).unwrap();
        let all = since(root, (0, 0));
        let found: Vec<(&str, Reason)> = all
            .files
            .iter()
            .map(|file| (file.path.to_str().unwrap(), file.reason))
            .collect();
        assert_eq!(
            found,
            [
                (".git/hooks/pre-commit", Reason::Git),
                (".git/modules/m/config", Reason::Git),
                (".husky/pre-push", Reason::Task),
                ("package.json", Reason::Task),
                ("run.sh", Reason::Executable),
                ("sub/.git", Reason::Repository),
                ("sub/.git/config", Reason::Git),
            ]
        );
        assert!(all.complete);
        assert_eq!(since(root, (i64::MAX, 0)).files, []);
    }
}
