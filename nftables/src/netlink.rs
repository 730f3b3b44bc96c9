//! The kernel side: one batch in, a faithful picture out. The only module with `unsafe`.
//!
//! JUSTIFICATION for `unsafe`: libnftnl is a C library and nftnl, its Rust face, can neither read
//! anything back nor express dynamic sets, `fib`, `reject` or named counters. Everything that can be
//! done on bytes (framing, errors, sequence numbers) is done on bytes, in safe code.
//!
//! Every receive has a deadline: a kernel that does not answer is an error, never a hang.

#![allow(
    unsafe_code,
    reason = "libnftnl is a C library; see the module's justification"
)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "libnftnl's own constants are declared wider than its parameters"
)]

mod changes;
mod frames;
mod parse;
mod read;
mod tracked;
mod write;

use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;
use std::{fmt, io};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::TimeVal;

pub use changes::{Author, Change, Monitor};
pub use parse::Place;
pub use read::{Element, ObservedChain, ObservedRule, ObservedSet, ObservedTable, Others};
pub(crate) use tracked::answers;
pub(crate) use write::boundaries as interval_keys;

use crate::config::Scope;
use crate::ruleset::Ruleset;

/// `NFT_OBJECT_COUNTER` of linux/netfilter/nf_tables.h, which libc does not carry.
const OBJECT_COUNTER: u32 = 1;

/// How long the kernel may take for one answer.
const DEADLINE: Duration = Duration::from_secs(5);

/// The kernel refused, or could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    #[error("{doing} needs CAP_NET_ADMIN in this network namespace")]
    NotPermitted { doing: String },
    #[error("{doing}")]
    Io {
        doing: String,
        #[source]
        source: io::Error,
    },
    #[error("the kernel's rules changed during each of {0} attempts to read them")]
    Restless(u32),
    #[error("the kernel sent a message that cannot be understood while {doing}")]
    Malformed { doing: String },
}

impl NetlinkError {
    pub(crate) fn new(doing: impl fmt::Display, source: io::Error) -> Self {
        let doing = doing.to_string();
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::NotPermitted { doing },
            _ => Self::Io { doing, source },
        }
    }
}

/// Replaces (or creates) the table in one transaction: either all of it stands, or nothing
/// changed. There is no instant without rules.
///
/// The kernel switches old rules off and new ones on in one step, but a packet that is half-way
/// through the chains at that step can see the new chain before it and the old one after it, both
/// empty, and set elements likewise. With policy drop it is dropped; with policy accept it leaves
/// (measured: 34 packets in 200 replacements under a sending agent). So in scope `agents` a copy
/// of the rules in a table of its own stands guard while the table is replaced.
pub fn replace(ruleset: &Ruleset) -> Result<(), NetlinkError> {
    let guard = match ruleset.scope {
        Scope::Guest => None,
        Scope::Agents => {
            let standing = Connection::open()?.table_flags(&ruleset.table)?.is_some();
            standing.then(|| Ruleset {
                table: guard_name(&ruleset.table),
                ..ruleset.clone()
            })
        }
    };
    if let Some(guard) = &guard {
        commit(guard)?;
    }
    commit(ruleset)?;
    remove_one(&guard_name(&ruleset.table))?;
    Ok(())
}

/// Deletes the table and a guard that an interrupted replacement left; `false` when there was none.
pub fn remove(table: &str) -> Result<bool, NetlinkError> {
    let guard = remove_one(&guard_name(table))?;
    Ok(remove_one(table)? || guard)
}

/// Whether an interrupted replacement left its guard behind.
pub fn guard_left(table: &str) -> Result<bool, NetlinkError> {
    Ok(Connection::open()?
        .table_flags(&guard_name(table))?
        .is_some())
}

/// How the name of a guard ends.
pub(crate) const GUARD: &str = "-guard";

fn guard_name(table: &str) -> String {
    format!("{table}{GUARD}")
}

fn commit(ruleset: &Ruleset) -> Result<(), NetlinkError> {
    let (batch, labels) = write::replacement(ruleset)?;
    Connection::open()?.commit(&batch, &labels)
}

fn remove_one(table: &str) -> Result<bool, NetlinkError> {
    if Connection::open()?.table_flags(table)?.is_none() {
        return Ok(false);
    }
    let (batch, labels) = write::removal(table)?;
    Connection::open()?.commit(&batch, &labels)?;
    Ok(true)
}

/// Whether this process may do anything here at all.
pub fn permitted() -> Result<(), NetlinkError> {
    Connection::open()?.generation().map(|_| ())
}

/// The number by which the kernel's notices name the thread that calls this: the one it has in the first pid namespace,
/// which it cannot see in another. The answer to who asks for the generation carries the same.
pub(crate) fn own_number() -> Result<Option<u32>, NetlinkError> {
    Ok(changes::author_number(&Connection::open()?.generation()?))
}

/// Everything the kernel holds under this table's name, or `None` when there is no such table.
/// Consistent: no transaction came between the parts. Where somebody changes rules without a pause, whatever tables, there is no
/// such moment; then it is what two readings in a row agree upon.
pub fn observe(table: &str) -> Result<Option<ObservedTable>, NetlinkError> {
    const ATTEMPTS: u32 = 20;
    const UNDISTURBED: u32 = 4;
    let mut connection = Connection::open()?;
    let mut former = None;
    for attempt in 0..ATTEMPTS {
        let before = connection.generation()?;
        let observed = connection.observe(table);
        if before == connection.generation()? {
            return observed;
        }
        // What went between two questions is an error, and no reading.
        let observed = match observed {
            Ok(observed) => Some(observed),
            Err(_) => {
                connection = Connection::open()?;
                None
            }
        };
        let agreed = observed.as_ref().zip(former.as_ref());
        if attempt >= UNDISTURBED && agreed.is_some_and(|(now, then)| same_rules(now, then)) {
            return Ok(observed.flatten());
        }
        former = observed;
    }
    Err(NetlinkError::Restless(ATTEMPTS))
}

/// Whether both are the same but for what packets and time change.
fn same_rules(one: &Option<ObservedTable>, other: &Option<ObservedTable>) -> bool {
    let (one, other) = match (one, other) {
        (None, None) => return true,
        (Some(one), Some(other)) => (one, other),
        (None, Some(_)) | (Some(_), None) => return false,
    };
    let dynamic = libc::NFT_SET_EVAL.cast_unsigned();
    let sets = |table: &ObservedTable| -> Vec<(String, ObservedSet)> {
        let sets = table.sets.iter().map(|(name, set)| {
            let mut set = set.clone();
            if set.flags & dynamic != 0 {
                set.elements.clear();
            }
            for element in &mut set.elements {
                element.counted = (0, 0);
                // Whether it lapses, and not when.
                element.lapses_in = element.lapses_in.map(|_| 0);
            }
            (name.clone(), set)
        });
        sets.collect()
    };
    one.flags == other.flags
        && one.counters.keys().eq(other.counters.keys())
        && one.other_objects == other.other_objects
        && one.chains == other.chains
        && one.rules == other.rules
        && sets(one) == sets(other)
}

/// Chains and rules of every table but this one and its guard.
pub fn others(table: &str) -> Result<Others, NetlinkError> {
    let mine = [table.to_owned(), guard_name(table)];
    Connection::open()?.others(&mine)
}

/// One question to `NETLINK_SOCK_DIAG`: a request body in, answer bodies out.
pub(crate) fn diagnose(kind: u16, flags: i32, body: &[u8]) -> Result<Vec<Vec<u8>>, NetlinkError> {
    let doing = "looking for open connections";
    ask(mnl::Bus::SockDiag, kind, flags, body, doing)
}

/// One question to the kernel.
fn ask(
    bus: mnl::Bus,
    kind: u16,
    flags: i32,
    body: &[u8],
    doing: &str,
) -> Result<Vec<Vec<u8>>, NetlinkError> {
    let asking = || {
        let socket = open(bus)?;
        socket.bind(0, 0)?;
        set_deadline(&socket, DEADLINE)?;
        Ok(socket)
    };
    let socket = asking().map_err(|error| NetlinkError::new(doing, error))?;
    let message = frames::message(kind, libc::NLM_F_REQUEST | libc::NLM_F_ACK | flags, body);
    socket
        .send(&message)
        .map_err(|error| NetlinkError::new(doing, error))?;
    let mut answers = Vec::new();
    loop {
        for frame in frames::receive(&socket, doing)? {
            match frame.error_code() {
                Some(0) => return Ok(answers),
                Some(code) => {
                    let error = io::Error::from_raw_os_error(code);
                    return Err(NetlinkError::new(doing, error));
                }
                None if i32::from(frame.kind) == libc::NLMSG_DONE => return Ok(answers),
                None => answers.push(frame.payload().to_vec()),
            }
        }
    }
}

/// A netlink socket to nf_tables.
struct Connection {
    socket: mnl::Socket,
    sequence: u32,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("sequence", &self.sequence)
            .finish_non_exhaustive()
    }
}

impl Connection {
    fn open() -> Result<Self, NetlinkError> {
        let connected = || {
            let socket = open(mnl::Bus::Netfilter)?;
            socket.bind(0, 0)?;
            set_deadline(&socket, DEADLINE)?;
            Ok(socket)
        };
        let socket = connected().map_err(|error| NetlinkError::new("opening netlink", error))?;
        Ok(Self {
            socket,
            sequence: 0,
        })
    }

    fn make_room(&self, bytes: usize) -> io::Result<()> {
        const ORDINARY: usize = 64 * 1024;
        if bytes > ORDINARY {
            // SAFETY: the descriptor belongs to the socket, which outlives this borrow.
            let descriptor = unsafe { BorrowedFd::borrow_raw(self.socket.as_raw_fd()) };
            setsockopt(&descriptor, sockopt::SndBufForce, &(4 * bytes))?;
            setsockopt(&descriptor, sockopt::RcvBufForce, &(4 * bytes))?;
        }
        Ok(())
    }

    /// Sends a batch and waits until each of its messages is acknowledged.
    fn commit(
        &mut self,
        batch: &nftnl::FinalizedBatch,
        labels: &[String],
    ) -> Result<(), NetlinkError> {
        let doing = "changing nftables";
        // One datagram: a transaction cut in two would be none. Its size is bounded by the number of
        // ranges, so that the buffers are made to fit it and its answers.
        let bytes: Vec<u8> = batch.into_iter().flatten().copied().collect();
        self.make_room(bytes.len())
            .and_then(|()| self.socket.send(&bytes))
            .map_err(|error| NetlinkError::new(doing, error))?;
        let expected = batch.sequence_numbers();
        // Newer kernels acknowledge the batch's begin and end too: then our first message is second.
        let extra = expected.len().saturating_sub(labels.len());
        let first = if extra == 2 {
            expected.start + 1
        } else {
            expected.start
        };
        let mut open = expected.len();
        while open > 0 {
            for frame in frames::receive(&self.socket, doing)? {
                let Some(code) = frame.error_code() else {
                    continue;
                };
                if code != 0 {
                    let index = frame
                        .sequence
                        .checked_sub(first)
                        .map(|index| index as usize);
                    let label = index.and_then(|index| labels.get(index));
                    let doing = match label {
                        Some(label) => format!("{doing}: {label}"),
                        None => doing.to_owned(),
                    };
                    return Err(NetlinkError::new(doing, io::Error::from_raw_os_error(code)));
                }
                if expected.contains(&frame.sequence) {
                    open -= 1;
                }
            }
        }
        Ok(())
    }
}

/// A socket that no program inherits which another thread starts meanwhile: it would be root's in somebody else's hands. The
/// library opens them without that.
fn open(bus: mnl::Bus) -> io::Result<mnl::Socket> {
    let socket = mnl::Socket::open(bus)?;
    // SAFETY: the descriptor belongs to `socket`, which outlives this borrow.
    let descriptor = unsafe { BorrowedFd::borrow_raw(socket.as_raw_fd()) };
    fcntl(descriptor, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    Ok(socket)
}

/// The same patience with netlink sockets of other modules.
pub(crate) fn limit_waiting(socket: &impl AsRawFd) -> io::Result<()> {
    set_deadline(socket, DEADLINE)
}

fn set_deadline(socket: &impl AsRawFd, deadline: Duration) -> io::Result<()> {
    // SAFETY: the descriptor belongs to `socket`, which outlives this borrow.
    let descriptor = unsafe { BorrowedFd::borrow_raw(socket.as_raw_fd()) };
    let micros = i64::try_from(deadline.as_micros()).unwrap_or(i64::MAX);
    let value = TimeVal::new(micros / 1_000_000, micros % 1_000_000);
    setsockopt(&descriptor, sockopt::ReceiveTimeout, &value)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_program_inherits_a_socket_of_ours() {
        for bus in [mnl::Bus::Netfilter, mnl::Bus::SockDiag] {
            let socket = open(bus).unwrap();
            // SAFETY: as above.
            let descriptor = unsafe { BorrowedFd::borrow_raw(socket.as_raw_fd()) };
            let flags = fcntl(descriptor, FcntlArg::F_GETFD).unwrap();
            assert!(FdFlag::from_bits_retain(flags).contains(FdFlag::FD_CLOEXEC));
        }
    }
}
