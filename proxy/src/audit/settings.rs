//! How the log is kept: when a new file is begun, and how often it is vouched for.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use super::signing::Signer;
use super::workers::Workers;

/// Makes what was written to a file durable.
pub(super) type Sync = Arc<dyn Fn(&File) -> std::io::Result<()> + Send + std::marker::Sync>;

/// What a measurement leaves out, to see what it costs. A gate has no such thing compiled in.
#[derive(Debug, Clone, Copy)]
pub(super) enum Without {
    Nothing,
    /// Nobody waits for the disk.
    #[cfg(feature = "measure")]
    Wait,
    /// There are no lines.
    #[cfg(feature = "measure")]
    Log,
}

impl Without {
    pub(super) fn is_wait_left_out(self) -> bool {
        match self {
            Self::Nothing => false,
            #[cfg(feature = "measure")]
            Self::Wait | Self::Log => true,
        }
    }

    pub(super) fn is_log_left_out(self) -> bool {
        match self {
            Self::Nothing => false,
            #[cfg(feature = "measure")]
            Self::Wait => false,
            #[cfg(feature = "measure")]
            Self::Log => true,
        }
    }
}

/// How the log is kept.
#[derive(Clone)]
pub struct Settings {
    /// A file of so many bytes is closed and a new one begun.
    pub segment_bytes: u64,
    /// A file that has been written for so long is closed and a new one begun.
    pub segment_age: Duration,
    /// A checkpoint is written after so many lines.
    pub checkpoint_records: u64,
    /// A checkpoint is written after so long, if there was a line.
    pub checkpoint_every: Duration,
    /// Signs checkpoints; without it they are not signed.
    pub signer: Option<Arc<Signer>>,
    /// A closed file is compressed after so long.
    pub compress_after: Duration,
    /// So many closed files are kept at most.
    pub keep_files: Option<usize>,
    /// Closed files are kept as long as they have so many bytes together.
    pub keep_bytes: Option<u64>,
    /// Closed files are kept so long.
    pub keep_for: Option<Duration>,
    /// The threads that serve, if the log is to know whether they are at work.
    pub workers: Option<Arc<Workers>>,
    /// What is left out, which is nothing but in a measurement.
    pub(super) without: Without,
    pub(super) sync: Sync,
    /// Makes the names in a directory durable.
    pub(super) sync_directory: Sync,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            segment_bytes: 64 * 1024 * 1024,
            segment_age: Duration::from_secs(24 * 3600),
            checkpoint_records: 10_000,
            checkpoint_every: Duration::from_secs(60),
            signer: None,
            compress_after: Duration::from_secs(600),
            keep_files: None,
            keep_bytes: None,
            keep_for: None,
            workers: None,
            without: Without::Nothing,
            sync: Arc::new(File::sync_data),
            sync_directory: Arc::new(File::sync_all),
        }
    }
}

#[cfg(feature = "measure")]
impl Settings {
    /// Has nobody wait for the disk. For measurements alone: no configuration leads here.
    #[must_use]
    pub fn measured_without_wait(mut self) -> Self {
        self.without = Without::Wait;
        self
    }

    /// Keeps no record of requests. As above.
    #[must_use]
    pub fn measured_without_log(mut self) -> Self {
        self.without = Without::Log;
        self
    }
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("segment_bytes", &self.segment_bytes)
            .field("segment_age", &self.segment_age)
            .field("checkpoint_records", &self.checkpoint_records)
            .field("checkpoint_every", &self.checkpoint_every)
            .finish_non_exhaustive()
    }
}
