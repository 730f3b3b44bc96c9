//! Why a run was not opened, extended or closed.

use policy::grant::RunId;

use crate::policies::PolicyError;
use crate::vault::VaultError;

/// Why a run was not opened, extended or closed.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The path and the body name different runs.
    #[error("the path names run {path}, the grant names run {grant}")]
    Mismatch {
        /// From the path.
        path: RunId,
        /// From the body.
        grant: RunId,
    },
    /// The peer may not open this profile.
    #[error("{user} may not open runs with profile {profile}: see [[control.peer]]")]
    Profile {
        /// The peer.
        user: String,
        /// The profile.
        profile: String,
    },
    /// The peer may not send a policy.
    #[error("{user} may not send a policy of its own: see inline in [[control.peer]]")]
    Inline {
        /// The peer.
        user: String,
    },
    /// The run belongs to somebody else.
    #[error("run {run} was opened by another peer")]
    NotYours {
        /// The run.
        run: RunId,
    },
    /// The policy that was sent is broken.
    #[error("{0}")]
    Policy(PolicyError),
    /// That epoch, or a later one, has ended or been superseded.
    #[error("epoch {epoch} of run {run} has ended; the next that may open is {next}")]
    Ended {
        /// The run.
        run: RunId,
        /// The epoch asked for.
        epoch: u64,
        /// The lowest that may still open.
        next: u64,
    },
    /// The same epoch is open with other contents.
    #[error("epoch {epoch} of run {run} is open with another grant, uid range, token or policy")]
    Conflict {
        /// The run.
        run: RunId,
        /// The epoch.
        epoch: u64,
    },
    /// No such run is open.
    #[error("run {run} is not open")]
    NotOpen {
        /// The run.
        run: RunId,
    },
    /// The lease is too long or nothing.
    #[error("a lease is 1 to {most} seconds")]
    Lease {
        /// The longest.
        most: u64,
    },
    /// The range holds the gate's own uid.
    #[error("the uid range holds the gate's own uid")]
    OwnUid,
    /// The kernel could not tell the run's processes from others.
    #[error("the uid range is not mapped in the gate's user namespace")]
    Unmapped,
    /// Neither a uid nor a token is of the run.
    #[error("the run has neither peer_uids nor token_sha256: nobody could use it")]
    NobodysRun,
    /// Another open run, or an agent of the configuration, has the same token.
    #[error("another open run or a [[listen.identity]] has this token: make one for each")]
    TokenTaken,
    /// Too many runs are open.
    #[error("{most} runs are open, which is the limit")]
    Full {
        /// The limit.
        most: usize,
    },
    /// The token cannot be kept.
    #[error("the run's token cannot be kept")]
    Token(#[source] VaultError),
    /// The socket cannot be made.
    #[error("cannot make the socket {path}: {problem}")]
    Socket {
        /// The socket or its directory.
        path: String,
        /// What the system said.
        problem: String,
    },
    /// Nobody accepts connections any more.
    #[error("the gate is stopping")]
    Stopping,
}
