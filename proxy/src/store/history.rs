//! Former versions of entries: commits of the store's own repository, or files in `.history/`.

use jiff::Timestamp;

use super::files::Files;
use super::git::{Git, GitError};
use super::name::EntryName;

const FOLDER: &str = ".history";

/// One former version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// A commit, or the time the version was put away.
    pub id: String,
    /// RFC 3339.
    pub time: String,
    /// What was said about it; may be empty.
    pub subject: String,
}

/// Where versions are kept.
#[derive(Debug)]
pub(super) enum History {
    Git(Git),
    Folder,
}

impl History {
    pub(super) fn of(files: &Files) -> Self {
        let git = files.path().join(".git");
        match std::fs::symlink_metadata(&git) {
            Ok(_) => Self::Git(Git::new(files.path())),
            Err(_) => Self::Folder,
        }
    }

    /// Makes sure that `former`, which is about to be replaced, can be had again.
    pub(super) fn keep(
        &self,
        files: &Files,
        name: &EntryName,
        former: &[u8],
    ) -> Result<(), GitError> {
        match self {
            Self::Git(git) => git.commit(
                &name.file(),
                former,
                &format!("Keep {name} as it was found\n"),
            ),
            Self::Folder => keep_copy(files, name, former),
        }
    }

    /// Records what has just been written.
    pub(super) fn record(
        &self,
        files: &Files,
        name: &EntryName,
        sealed: &[u8],
        message: &str,
    ) -> Result<(), GitError> {
        match self {
            Self::Git(git) => git.commit(&name.file(), sealed, &format!("{message}\n")),
            // A copy, since others may overwrite the entry without keeping anything.
            Self::Folder => keep_copy(files, name, sealed),
        }
    }

    /// Newest first.
    pub(super) fn versions(
        &self,
        files: &Files,
        name: &EntryName,
    ) -> Result<Vec<Version>, GitError> {
        match self {
            Self::Git(git) => {
                let commits = git.log(&name.file())?.into_iter();
                Ok(commits
                    .map(|commit| Version {
                        id: commit.id,
                        time: commit.time,
                        subject: commit.subject,
                    })
                    .collect())
            }
            Self::Folder => {
                let ids = copies(files, name)?;
                let version = |id: String| Version {
                    time: readable(&id),
                    id,
                    subject: String::new(),
                };
                Ok(ids.into_iter().map(version).collect())
            }
        }
    }

    /// The encrypted content of one version; nothing if the entry was not there then.
    pub(super) fn content(
        &self,
        files: &Files,
        name: &EntryName,
        version: &Version,
    ) -> Result<Option<Vec<u8>>, GitError> {
        match self {
            Self::Git(git) => git.content(&version.id, &name.file()),
            Self::Folder => Ok(files.read(&format!("{FOLDER}/{name}/{}.gpg", version.id))?),
        }
    }
}

/// Puts a copy of `sealed` away, unless it is the newest one already.
fn keep_copy(files: &Files, name: &EntryName, sealed: &[u8]) -> Result<(), GitError> {
    let file = |id: &str| format!("{FOLDER}/{name}/{id}.gpg");
    if let Some(newest) = copies(files, name)?.first()
        && files.read(&file(newest))?.as_deref() == Some(sealed)
    {
        return Ok(());
    }
    let stamp = Timestamp::now().strftime("%Y%m%dT%H%M%S.%9fZ").to_string();
    Ok(files.write(&file(&stamp), sealed)?)
}

/// Ids of the copies, newest first.
fn copies(files: &Files, name: &EntryName) -> Result<Vec<String>, GitError> {
    let folder = files.path().join(FOLDER).join(name.as_str());
    let found = match std::fs::read_dir(&folder) {
        Ok(found) => found,
        Err(problem) if problem.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(problem) => return Err(problem.into()),
    };
    let mut ids: Vec<String> = found
        .flatten()
        .filter_map(|entry| {
            let file = entry.file_name().into_string().ok()?;
            file.strip_suffix(".gpg")
                .filter(|id| !id.starts_with('.'))
                .map(str::to_owned)
        })
        .collect();
    ids.sort();
    ids.reverse();
    Ok(ids)
}

/// `20261130T101500.123456789Z` as RFC 3339; as it is where it is something else.
fn readable(id: &str) -> String {
    id.parse::<Timestamp>()
        .map_or_else(|_| id.to_owned(), |time| format!("{time:.0}"))
}
