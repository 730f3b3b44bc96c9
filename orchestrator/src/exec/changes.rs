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

use super::staging::is_repository;

/// Directory entries looked at; beyond that the list says that it is incomplete.
const MOST: usize = 2_000_000;

/// Files that tools run, or take commands from, without being asked to run that file.
const TASK_FILES: [&str; 77] = [
    ".bazelrc",
    ".dir-locals.el",
    ".envrc",
    ".exrc",
    ".gitattributes",
    ".gitconfig",
    ".gitmodules",
    ".justfile",
    ".lfsconfig",
    ".mcp.json",
    ".mise.toml",
    ".npmrc",
    ".nvim.lua",
    ".nvimrc",
    ".pnpmfile.cjs",
    ".pre-commit-config.yaml",
    ".tool-versions",
    ".vimrc",
    ".yarnrc",
    ".yarnrc.yml",
    "BUILD",
    "BUILD.bazel",
    "CMakeLists.txt",
    "Containerfile",
    "Dockerfile",
    "Earthfile",
    "GNUmakefile",
    "Gemfile",
    "Gruntfile.js",
    "Jenkinsfile",
    "Justfile",
    "MODULE.bazel",
    "Makefile",
    "Procfile",
    "Rakefile",
    "SConstruct",
    "Taskfile.yaml",
    "Taskfile.yml",
    "Tiltfile",
    "Vagrantfile",
    "WORKSPACE",
    "build.gradle",
    "build.gradle.kts",
    "build.rs",
    "build.sbt",
    "build.zig",
    "compose.yaml",
    "compose.yml",
    "composer.json",
    "conftest.py",
    "default.nix",
    "deno.json",
    "docker-compose.yaml",
    "docker-compose.yml",
    "flake.nix",
    "gulpfile.js",
    "justfile",
    "lefthook.yml",
    "makefile",
    "meson.build",
    "mise.toml",
    "mix.exs",
    "noxfile.py",
    "package.json",
    "pom.xml",
    "pyproject.toml",
    "rust-toolchain",
    "rust-toolchain.toml",
    "settings.gradle",
    "settings.gradle.kts",
    "setup.cfg",
    "setup.py",
    "shell.nix",
    "sitecustomize.py",
    "tasks.py",
    "tox.ini",
    "wscript",
];

/// Directories whose every changed file counts.
const TASK_DIRECTORIES: [&str; 14] = [
    ".cargo",
    ".claude",
    ".codex",
    ".continue",
    ".cursor",
    ".devcontainer",
    ".gemini",
    ".github",
    ".husky",
    ".idea",
    ".mvn",
    ".vscode",
    ".yarn",
    ".zed",
];

/// Directories in a git directory whose every file can name commands: hooks, remotes of the old
/// kind, and the steps of a rebase that is under way.
const GIT_DIRECTORIES: [&str; 6] = [
    "branches",
    "hooks",
    "rebase-apply",
    "rebase-merge",
    "remotes",
    "sequencer",
];

/// Why a changed file is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Git runs it, or reads commands from it: hooks, configuration, attributes of a repository.
    Git,
    /// A repository beside the workspace's own, new or changed: it has a configuration of its own.
    Repository,
    /// Its executable bit is set.
    Executable,
    /// A build tool, package manager, editor or direnv takes commands from it.
    Task,
}

/// One changed file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Changed {
    /// Relative to the workspace; `.` is the workspace itself.
    #[serde(serialize_with = "super::summary::readable")]
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
/// neither followed nor opened; no file is opened at all. `repository` says whether `root/.git` was
/// there before.
pub(super) fn since(root: &Path, since: (i64, i64), repository: bool) -> Changes {
    let mut search = Search {
        root,
        since,
        repository,
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
    repository: bool,
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
        if self.is_changed_repository(directory) {
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
                // One that was moved here keeps the times of what is in it.
                if self.is_new(&meta) && named(&path, &TASK_DIRECTORIES) {
                    self.add(&path, Reason::Task);
                }
                self.directory(&path, depth + 1);
            } else if self.is_new(&meta)
                && let Some(reason) = self.reason(&path, &meta)
            {
                self.add(&path, reason);
            }
        }
    }

    fn add(&mut self, path: &Path, reason: Reason) {
        let relative = path.strip_prefix(self.root).unwrap_or(path);
        let path = if relative.as_os_str().is_empty() {
            Path::new(".")
        } else {
            relative
        };
        self.found.push(Changed {
            path: path.to_owned(),
            reason,
        });
    }

    fn is_new(&self, meta: &fs::Metadata) -> bool {
        (meta.ctime(), meta.ctime_nsec()) >= self.since
    }

    /// A directory that git would take for a repository and whose parts are new, or which was moved
    /// here. The workspace's own counts only when it was none before; what lies in it, by its
    /// configuration.
    fn is_changed_repository(&self, directory: &Path) -> bool {
        if !is_repository(directory) {
            return false;
        }
        let own = self.root.join(".git");
        if self.repository && directory == own {
            return false;
        }
        let new = |path: PathBuf| path.symlink_metadata().is_ok_and(|meta| self.is_new(&meta));
        let configured = ["config", "config.worktree", "commondir"]
            .iter()
            .any(|name| new(directory.join(name)));
        let inside_own = self.repository && directory.starts_with(&own);
        configured || !inside_own && (new(directory.join("HEAD")) || new(directory.to_owned()))
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
            // What `git clone` puts there; no hook has such a name, so git never runs one.
            if parents.last() == Some(&"hooks") && name.ends_with(".sample") {
                return None;
            }
            let commands = matches!(
                name,
                "config" | "config.worktree" | "commondir" | "gitdir" | "attributes"
            ) || GIT_DIRECTORIES
                .iter()
                .any(|directory| parents.contains(directory));
            return commands.then_some(Reason::Git);
        }
        // A link by the name of such a directory makes one of whatever it leads to.
        if TASK_FILES.contains(&name)
            || TASK_DIRECTORIES.contains(&name)
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

fn named(path: &Path, names: &[&str]) -> bool {
    path.file_name()
        .is_some_and(|name| names.iter().any(|other| name == *other))
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
        put(".git/hooks/pre-push.sample", 0o755);
        put(".git/objects/ab/cdef", 0o444);
        put(".git/modules/m/config", 0o644);
        put("sub/.git/config", 0o644);
        put("sub/.git/HEAD", 0o644);
        fs::create_dir(root.join("sub/.git/objects")).unwrap();
        put("package.json", 0o644);
        put(".husky/pre-push", 0o644);
        symlink("/etc/shadow", root.join("link")).unwrap();
        let all = since(root, (0, 0), true);
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
                (".husky", Reason::Task),
                (".husky/pre-push", Reason::Task),
                ("package.json", Reason::Task),
                ("run.sh", Reason::Executable),
                ("sub/.git", Reason::Repository),
                ("sub/.git/config", Reason::Git),
            ]
        );
        assert!(all.complete);
        assert_eq!(since(root, (i64::MAX, 0), true).files, []);
    }

    /// A tree from before, and what each way of changing it is listed as.
    #[test]
    fn no_way_of_putting_a_place_for_commands_there_is_missed() {
        type Case = (&'static str, fn(&Path), &'static [(&'static str, Reason)]);
        let repository = |at: &Path| {
            fs::create_dir_all(at.join("objects")).unwrap();
            fs::write(at.join("HEAD"), "").unwrap();
            fs::write(at.join("config"), "").unwrap();
        };
        let changes: [Case; 9] = [
            ("nothing", |_| {}, &[]),
            (
                "a link to a directory",
                |root| symlink("plain", root.join(".vscode")).unwrap(),
                &[(".vscode", Reason::Task)],
            ),
            (
                "a directory that was moved",
                |root| fs::rename(root.join("plain"), root.join(".husky")).unwrap(),
                &[(".husky", Reason::Task)],
            ),
            (
                "another configuration for an old bare repository",
                |root| fs::write(root.join("bare/config"), "x").unwrap(),
                &[("bare", Reason::Repository)],
            ),
            (
                "an old bare repository that was moved",
                |root| fs::rename(root.join("bare"), root.join("moved")).unwrap(),
                &[("moved", Reason::Repository)],
            ),
            (
                "a repository whose parts are elsewhere",
                |root| {
                    fs::write(root.join("plain/HEAD"), "").unwrap();
                    fs::write(root.join("plain/commondir"), "../bare").unwrap();
                },
                &[("plain", Reason::Repository)],
            ),
            (
                "the directory itself becomes one",
                |root| {
                    fs::create_dir(root.join("objects")).unwrap();
                    fs::write(root.join("HEAD"), "").unwrap();
                },
                &[(".", Reason::Repository)],
            ),
            (
                "a rebase under way",
                |root| {
                    fs::create_dir(root.join(".git/rebase-merge")).unwrap();
                    fs::write(root.join(".git/rebase-merge/git-rebase-todo"), "").unwrap();
                },
                &[(".git/rebase-merge/git-rebase-todo", Reason::Git)],
            ),
            (
                "a file that only holds data",
                |root| fs::write(root.join("plain/data"), "").unwrap(),
                &[],
            ),
        ];
        for (name, change, expected) in changes {
            let dir = tempfile::tempdir().unwrap();
            let root = dir.path();
            repository(&root.join(".git"));
            repository(&root.join("bare"));
            fs::create_dir(root.join("plain")).unwrap();
            fs::write(root.join("plain/pre-commit"), "").unwrap();
            // Times of files are coarse: wait until they show a later one.
            let old = root.join("plain").metadata().unwrap();
            let old = (old.ctime(), old.ctime_nsec());
            let tick = dir.path().with_extension("tick");
            let began = loop {
                fs::write(&tick, "").unwrap();
                let meta = tick.metadata().unwrap();
                let now = (meta.ctime(), meta.ctime_nsec());
                if now > old {
                    break now;
                }
            };
            fs::remove_file(&tick).unwrap();
            change(root);
            let found = since(root, began, true).files;
            let found: Vec<_> = found
                .iter()
                .map(|file| (file.path.to_str().unwrap(), file.reason))
                .collect();
            assert_eq!(found, expected, "{name}");
        }
        let dir = tempfile::tempdir().unwrap();
        repository(&dir.path().join(".git"));
        let found = since(dir.path(), (0, 0), false).files;
        assert_eq!(found[0].path, Path::new(".git"), "where there was none");
    }
}
