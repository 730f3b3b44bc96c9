//! Is the kernel boundary in force, here and now?
//!
//! `portcullis-boundary watch` rewrites a small status file each second. The gate believes it only
//! when [`policy::boundary`] does, and when it lies in a file that only root can write. Anything
//! else means: serve nothing.

pub mod refusals;

use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use policy::boundary::{FRESH_MS, Here, Problem, STATUS_BYTES_MAX, judge};
use serde::Serialize;
use tokio::sync::watch;

/// How long one answer is reused before the file is read again.
pub const CACHED_FOR: Duration = Duration::from_secs(1);

/// Where the proof comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The file that `portcullis-boundary watch` writes.
    Status(PathBuf),
    /// Somebody else vouches, for the stated reason.
    External(String),
}

/// The boundary holds, as far as this machine can show.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum BoundaryProof {
    /// Read back from the kernel by `portcullis-boundary`.
    Kernel {
        /// SHA-256 of the ruleset in force.
        ruleset_hash: String,
        /// `agents` or `guest`.
        scope: String,
        /// The nft table.
        table: String,
    },
    /// Not proven here: the operator says who enforces it.
    External {
        /// The operator's words.
        reason: String,
    },
}

/// Why the boundary is not proven. Every variant means that the gate serves nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BoundaryProblem {
    /// No file, or not readable.
    #[error("cannot read the boundary status {path}: {problem}")]
    Unreadable {
        /// The status file.
        path: String,
        /// What the system said.
        problem: String,
    },
    /// Somebody other than root could have written it.
    #[error("the boundary status {path} can be written by others than root")]
    Untrusted {
        /// The status file.
        path: String,
    },
    /// What it says is no proof.
    #[error(transparent)]
    Judged(#[from] Problem),
    /// This process cannot even tell where it is.
    #[error("cannot tell this machine's {what}: {problem}")]
    Unknown {
        /// Boot id, namespace or clock.
        what: &'static str,
        /// What the system said.
        problem: String,
    },
}

/// The boundary as this gate sees it. Cheap to ask: the answer is reused for [`CACHED_FOR`].
#[derive(Debug)]
pub struct Boundary {
    source: Source,
    owner: u32,
    last: Mutex<Option<(Instant, Result<BoundaryProof, BoundaryProblem>)>>,
    proven: watch::Sender<bool>,
}

impl Boundary {
    /// Nothing is read yet; [`Boundary::check`] does.
    #[must_use]
    pub fn new(source: Source) -> Self {
        Self {
            source,
            owner: 0,
            last: Mutex::new(None),
            proven: watch::Sender::new(true),
        }
    }

    /// The proof, or why there is none, as of at most [`CACHED_FOR`] ago.
    ///
    /// # Errors
    /// [`BoundaryProblem`]: missing, stale, foreign, corrupt or not in force.
    pub fn check(&self) -> Result<BoundaryProof, BoundaryProblem> {
        self.answer(CACHED_FOR)
    }

    /// The same as of now: the file is read anew, and [`Boundary::check`] answers with it from here on.
    ///
    /// # Errors
    /// As [`Boundary::check`].
    pub fn look(&self) -> Result<BoundaryProof, BoundaryProblem> {
        self.answer(Duration::ZERO)
    }

    /// Whether there is a proof, without it: each request asks this.
    ///
    /// # Errors
    /// As [`Boundary::check`].
    pub fn holds(&self) -> Result<(), BoundaryProblem> {
        match &self.source {
            Source::External(_) => Ok(()),
            Source::Status(path) => self.read(path, CACHED_FOR, |answer| match answer {
                Ok(_) => Ok(()),
                Err(problem) => Err(problem.clone()),
            }),
        }
    }

    fn answer(&self, may_be_old: Duration) -> Result<BoundaryProof, BoundaryProblem> {
        match &self.source {
            Source::External(reason) => Ok(BoundaryProof::External {
                reason: reason.clone(),
            }),
            Source::Status(path) => self.read(path, may_be_old, Clone::clone),
        }
    }

    fn read<T>(
        &self,
        path: &Path,
        may_be_old: Duration,
        tell: impl FnOnce(&Result<BoundaryProof, BoundaryProblem>) -> T,
    ) -> T {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, answer)) = &*last
            && at.elapsed() < may_be_old
        {
            return tell(answer);
        }
        let answer = here().and_then(|here| read(path, self.owner, &here));
        let now = answer.is_ok();
        let (_, answer) = last.insert((Instant::now(), answer));
        self.proven
            .send_if_modified(|before| std::mem::replace(before, now) != now);
        tell(answer)
    }

    /// Tells when an answer of [`Boundary::check`] differs from the one before. Somebody has to ask.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<bool> {
        self.proven.subscribe()
    }

    /// Where the proof comes from.
    #[must_use]
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// The status file, unless somebody else vouches.
    #[must_use]
    pub fn status_file(&self) -> Option<&Path> {
        match &self.source {
            Source::Status(path) => Some(path),
            Source::External(_) => None,
        }
    }
}

fn here() -> Result<Here, BoundaryProblem> {
    let unknown = |what| {
        move |problem: std::io::Error| BoundaryProblem::Unknown {
            what,
            problem: problem.to_string(),
        }
    };
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map_err(unknown("boot id"))?
        .trim()
        .to_owned();
    let netns = std::fs::metadata("/proc/self/ns/net")
        .map_err(unknown("network namespace"))?
        .ino();
    let clock = clock_gettime(ClockId::CLOCK_BOOTTIME)
        .map_err(|problem| unknown("boot clock")(problem.into()))?;
    let boottime_ms = u64::try_from(Duration::from(clock).as_millis()).unwrap_or(u64::MAX);
    Ok(Here {
        boot_id,
        netns,
        boottime_ms,
    })
}

fn read(path: &Path, owner: u32, here: &Here) -> Result<BoundaryProof, BoundaryProblem> {
    let name = || path.display().to_string();
    let unreadable = |problem: std::io::Error| BoundaryProblem::Unreadable {
        path: name(),
        problem: problem.to_string(),
    };
    let mut file = File::open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if !written_only_by(&metadata, owner) {
        return Err(BoundaryProblem::Untrusted { path: name() });
    }
    let mut text = String::new();
    file.by_ref()
        .take(STATUS_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(unreadable)?;
    let proof = judge(&text, here, FRESH_MS)?;
    Ok(BoundaryProof::Kernel {
        ruleset_hash: proof.ruleset_hash,
        scope: proof.scope,
        table: proof.table,
    })
}

fn written_only_by(metadata: &Metadata, owner: u32) -> bool {
    metadata.is_file() && metadata.uid() == owner && metadata.mode() & 0o022 == 0
}

#[cfg(test)]
mod tests;
