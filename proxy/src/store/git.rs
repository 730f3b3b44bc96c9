//! The store's own git repository, used through plumbing that runs nothing from it.
//!
//! A checkout may bring hooks, filters, a file monitor, text converters or a remote that runs a
//! command. None of them is reached: hooks are looked for in a place that has none, blobs are
//! written without filters, the index is fed with names and ids, the network is off, and no
//! configuration but the repository's own is read.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Why the history could not be used.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// git does not start.
    #[error("git cannot be started (is it installed?)")]
    Start(#[source] std::io::Error),
    /// git refused.
    #[error("git {what}: {said}")]
    Failed {
        /// Which of its commands.
        what: &'static str,
        /// Its own words.
        said: String,
    },
    /// Not a repository that is safe to write to.
    #[error("the store's .git is not a directory of its own")]
    Linked,
    /// The history that is kept without git.
    #[error("the folder .history")]
    Folder(#[from] std::io::Error),
}

/// One repository.
#[derive(Debug)]
pub(super) struct Git {
    store: PathBuf,
}

/// One commit that touched an entry.
#[derive(Debug)]
pub(super) struct Commit {
    pub(super) id: String,
    pub(super) time: String,
    pub(super) subject: String,
}

impl Git {
    pub(super) fn new(store: &Path) -> Self {
        Self {
            store: store.to_owned(),
        }
    }

    /// The content of `file` in the newest commit.
    pub(super) fn newest(&self, file: &str) -> Result<Option<Vec<u8>>, GitError> {
        match self.head()? {
            Some(head) => self.content(&head, file),
            None => Ok(None),
        }
    }

    /// The content of `file` in one commit; nothing if it was not there.
    pub(super) fn content(&self, commit: &str, file: &str) -> Result<Option<Vec<u8>>, GitError> {
        let listed = self.run("ls-tree", &["-z", commit, "--", file], None, None)?;
        // MODE SP TYPE SP ID TAB NAME NUL
        let listed = String::from_utf8_lossy(&listed);
        let mut words = listed.split(['\t', ' ']);
        let (Some("100644" | "100755"), Some("blob"), Some(id)) =
            (words.next(), words.next(), words.next())
        else {
            return Ok(None);
        };
        self.run("cat-file", &["blob", id], None, None).map(Some)
    }

    /// Commits `bytes` as `file` on top of the newest commit, with nothing else that may be staged
    /// or changed in the checkout. Does nothing if it is there already.
    pub(super) fn commit(&self, file: &str, bytes: &[u8], message: &str) -> Result<(), GitError> {
        let head = self.head()?;
        if self.newest(file)?.as_deref() == Some(bytes) {
            return Ok(());
        }
        let blob = self.word(
            "hash-object",
            &["-w", "--no-filters", "--stdin"],
            Some(bytes),
            None,
        )?;
        let index = self
            .store
            .join(format!(".git/portcullis-{}", uuid::Uuid::new_v4().simple()));
        let made = self.commit_with(&index, head.as_deref(), file, &blob, message);
        // Gone already where it was never written.
        let _ = std::fs::remove_file(&index);
        let commit = made?;
        let former = head.unwrap_or_default();
        let zero = "0".repeat(commit.len());
        let expected = if former.is_empty() { &zero } else { &former };
        self.run(
            "update-ref",
            &["-m", "portcullis", "HEAD", &commit, expected],
            None,
            None,
        )?;
        // What the checkout's own index says about this one file follows.
        let entry = format!("100644,{blob},{file}");
        self.run(
            "update-index",
            &["--add", "--cacheinfo", &entry],
            None,
            None,
        )?;
        Ok(())
    }

    fn commit_with(
        &self,
        index: &Path,
        head: Option<&str>,
        file: &str,
        blob: &str,
        message: &str,
    ) -> Result<String, GitError> {
        if let Some(head) = head {
            self.run("read-tree", &[head], None, Some(index))?;
        }
        let entry = format!("100644,{blob},{file}");
        self.run(
            "update-index",
            &["--add", "--cacheinfo", &entry],
            None,
            Some(index),
        )?;
        let tree = self.word("write-tree", &[], None, Some(index))?;
        let mut arguments = vec![tree.as_str(), "-F", "-"];
        if let Some(head) = head {
            arguments.extend(["-p", head]);
        }
        self.word("commit-tree", &arguments, Some(message.as_bytes()), None)
    }

    /// Commits that touched `file`, newest first.
    pub(super) fn log(&self, file: &str) -> Result<Vec<Commit>, GitError> {
        if self.head()?.is_none() {
            return Ok(Vec::new());
        }
        let told = self.run(
            "log",
            &[
                "-z",
                "--no-show-signature",
                "--no-ext-diff",
                "--no-textconv",
                "--format=%H%x1f%cI%x1f%s",
                "HEAD",
                "--",
                file,
            ],
            None,
            None,
        )?;
        let told = String::from_utf8_lossy(&told);
        let commit = |line: &str| {
            let mut fields = line.split('\u{1f}');
            Some(Commit {
                id: fields.next()?.to_owned(),
                time: fields.next()?.to_owned(),
                subject: fields.next()?.to_owned(),
            })
        };
        Ok(told.split('\0').filter_map(commit).collect())
    }

    fn head(&self) -> Result<Option<String>, GitError> {
        match self.word(
            "rev-parse",
            &["--verify", "--quiet", "HEAD^{commit}"],
            None,
            None,
        ) {
            Ok(id) => Ok(Some(id)),
            Err(GitError::Failed { said, .. }) if said.is_empty() => Ok(None),
            Err(problem) => Err(problem),
        }
    }

    fn word(
        &self,
        what: &'static str,
        arguments: &[&str],
        input: Option<&[u8]>,
        index: Option<&Path>,
    ) -> Result<String, GitError> {
        let told = self.run(what, arguments, input, index)?;
        Ok(String::from_utf8_lossy(&told).trim().to_owned())
    }

    fn run(
        &self,
        what: &'static str,
        arguments: &[&str],
        input: Option<&[u8]>,
        index: Option<&Path>,
    ) -> Result<Vec<u8>, GitError> {
        let directory = self.store.join(".git");
        let own = std::fs::symlink_metadata(&directory).is_ok_and(|found| found.is_dir());
        if !own {
            return Err(GitError::Linked);
        }
        let mut command = Command::new("git");
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("LC_ALL", "C")
            .env("HOME", "/nonexistent")
            .envs([
                ("GIT_CONFIG_NOSYSTEM", "1"),
                ("GIT_CONFIG_GLOBAL", "/dev/null"),
                ("GIT_ATTR_NOSYSTEM", "1"),
                ("GIT_TERMINAL_PROMPT", "0"),
                ("GIT_NO_LAZY_FETCH", "1"),
                ("GIT_ALLOW_PROTOCOL", "none"),
                ("GIT_NO_REPLACE_OBJECTS", "1"),
                ("GIT_LITERAL_PATHSPECS", "1"),
                ("GIT_OPTIONAL_LOCKS", "0"),
                ("GIT_AUTHOR_NAME", "portcullis"),
                ("GIT_AUTHOR_EMAIL", "portcullis@localhost"),
                ("GIT_COMMITTER_NAME", "portcullis"),
                ("GIT_COMMITTER_EMAIL", "portcullis@localhost"),
            ])
            .current_dir(&self.store)
            .args(["--no-pager", "--git-dir"])
            .arg(&directory)
            .arg("--work-tree")
            .arg(&self.store);
        for setting in [
            "core.hooksPath=/dev/null",
            "core.fsmonitor=false",
            "core.untrackedCache=false",
            "core.attributesFile=/dev/null",
            "core.sparseCheckout=false",
            "core.splitIndex=false",
            "core.bare=false",
            "commit.gpgSign=false",
            "log.showSignature=false",
            "core.pager=cat",
            "protocol.allow=never",
            "gc.auto=0",
            "maintenance.auto=false",
        ] {
            command.args(["-c", setting]);
        }
        if let Some(index) = index {
            command.env("GIT_INDEX_FILE", index);
        }
        command
            .arg(what)
            .args(arguments)
            .stdin(if input.is_some() {
                Stdio::piped()
            } else {
                Stdio::null()
            })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().map_err(GitError::Start)?;
        if let (Some(input), Some(mut to)) = (input, child.stdin.take()) {
            // What it does not read it says itself, by failing. Entries fit into a pipe.
            let _ = to.write_all(input);
        }
        let mut told = Vec::new();
        if let Some(mut out) = child.stdout.take() {
            out.read_to_end(&mut told).map_err(GitError::Start)?;
        }
        let ended = child.wait_with_output().map_err(GitError::Start)?;
        if ended.status.success() {
            return Ok(told);
        }
        Err(GitError::Failed {
            what,
            said: String::from_utf8_lossy(&ended.stderr).trim().to_owned(),
        })
    }
}
