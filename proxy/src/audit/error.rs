//! Why a record is not in the log.

/// Why a record is not in the log.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AuditError {
    /// The directory or the file cannot be used.
    #[error("cannot open the audit log {path}: {problem}")]
    Open {
        /// Directory or file.
        path: String,
        /// What the system said.
        problem: String,
    },
    /// Another process writes this log.
    #[error("the audit log {path} is being written by another process")]
    Busy {
        /// The file.
        path: String,
    },
    /// The log holds no readable record to continue from.
    #[error(
        "the audit log {path} has content but no readable record: move it aside, then start again"
    )]
    Corrupt {
        /// The file.
        path: String,
    },
    /// Writing or syncing failed and has not succeeded since.
    #[error("the audit log cannot be written: {0}")]
    Unavailable(String),
}
