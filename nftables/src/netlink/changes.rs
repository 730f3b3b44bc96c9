//! What others do to the rules and routes, as the kernel tells it.

use std::collections::BTreeSet;
use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::frames::{self, Frame};
use super::{NetlinkError, Place};

/// Multicast groups of linux/rtnetlink.h: routes and routing rules, IPv4 and IPv6.
const ROUTES: [u32; 4] = [7, 11, 8, 19];
/// Attributes of linux/netfilter/nf_tables.h: the table's name is attribute 1 of every object.
const TABLE: u16 = 1;
const GEN_PROC_PID: u16 = 2;
const GEN_PROC_NAME: u16 = 3;

/// One transaction of somebody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Absent when the kernel's notice was lost: it sent more than fits into a buffer.
    pub author: Option<Author>,
    /// Tables in which something came, went or became another; none for routes.
    pub tables: BTreeSet<Place>,
}

impl Change {
    /// By nobody in particular: a notice that was lost, or a route's.
    pub(crate) fn lost() -> Self {
        Self {
            author: None,
            tables: BTreeSet::new(),
        }
    }
}

/// The program that asked the kernel for it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Author {
    /// Of the thread, in the first pid namespace.
    pub pid: u32,
    /// At most 15 characters: `nft`, `iptables-restor`.
    pub name: String,
}

impl fmt::Display for Author {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (pid {})", self.name, self.pid)
    }
}

/// Tells when anybody changed any nftables object, route or routing rule of this namespace.
pub struct Monitor {
    rules: mnl::Socket,
    routes: Socket,
    /// Tables of the transaction whose end was not yet told.
    open: BTreeSet<Place>,
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitor").finish_non_exhaustive()
    }
}

const DOING: &str = "listening for rule changes";

impl Monitor {
    pub fn open() -> Result<Self, NetlinkError> {
        let open = || {
            let rules = super::open(mnl::Bus::Netfilter)?;
            rules.bind(1 << (libc::NFNLGRP_NFTABLES - 1), 0)?;
            let mut routes = Socket::new(NETLINK_ROUTE)?;
            routes.bind(&SocketAddr::new(0, 0))?;
            for group in ROUTES {
                routes.add_membership(group)?;
            }
            routes.set_non_blocking(true)?;
            Ok(Self {
                rules,
                routes,
                open: BTreeSet::new(),
            })
        };
        open().map_err(|error| NetlinkError::new(DOING, error))
    }

    /// Waits at most `patience` for something to happen, and says what did. A lost notification
    /// (the kernel's buffer overflowed) counts as a change by nobody in particular. The kernel tells of a
    /// transaction in two messages or more; where the first of them came, the last is waited for.
    pub fn changes(&mut self, patience: Duration) -> Result<Vec<Change>, NetlinkError> {
        let due = Instant::now() + patience;
        loop {
            let left = due.saturating_duration_since(Instant::now());
            let Some(changes) = self.once(left)? else {
                return Ok(Vec::new());
            };
            if !changes.is_empty() || self.open.is_empty() {
                return Ok(changes);
            }
        }
    }

    /// One message about rules at most; `None` when nothing came.
    fn once(&mut self, patience: Duration) -> Result<Option<Vec<Change>>, NetlinkError> {
        let fail = |error: nix::Error| NetlinkError::new(DOING, error.into());
        let (rules, routes) = {
            // SAFETY: both descriptors belong to sockets that outlive these borrows.
            let [first, second] = [self.rules.as_raw_fd(), self.routes.as_raw_fd()]
                .map(|raw| unsafe { BorrowedFd::borrow_raw(raw) });
            let mut sockets = [first, second].map(|socket| PollFd::new(socket, PollFlags::POLLIN));
            let timeout = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
            match poll(&mut sockets, timeout) {
                Ok(_) | Err(nix::Error::EINTR) => {}
                Err(error) => return Err(fail(error)),
            }
            let ready = |socket: &PollFd<'_>| socket.any().unwrap_or(false);
            (ready(&sockets[0]), ready(&sockets[1]))
        };
        let mut changes = Vec::new();
        if rules {
            match frames::receive(&self.rules, DOING) {
                Ok(frames) => changes.extend(self.read(&frames)),
                Err(NetlinkError::Io { source, .. }) => match source.raw_os_error() {
                    Some(libc::ENOBUFS) => changes.push(Change::lost()),
                    Some(libc::EAGAIN | libc::EINTR) => {}
                    _ => return Err(NetlinkError::new(DOING, source)),
                },
                Err(other) => return Err(other),
            }
        }
        if routes && self.routes_changed()? {
            changes.push(Change::lost());
        }
        Ok((rules || routes).then_some(changes))
    }

    fn routes_changed(&self) -> Result<bool, NetlinkError> {
        let mut any = false;
        loop {
            match self.routes.recv_from_full() {
                Ok(_) => any = true,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => return Ok(any),
                    Some(libc::EINTR) => {}
                    Some(libc::ENOBUFS) => any = true,
                    _ => return Err(NetlinkError::new(DOING, error)),
                },
            }
        }
    }

    /// A transaction's objects come first, then the new generation and whose it is.
    fn read(&mut self, frames: &[Frame]) -> Vec<Change> {
        let generation = message(libc::NFT_MSG_NEWGEN);
        let mut changes = Vec::new();
        for frame in frames {
            let payload = frame.payload();
            let (Some(family), Some(attributes)) = (payload.first(), payload.get(4..)) else {
                continue;
            };
            if frame.kind != generation {
                if let Some(name) = attribute(attributes, TABLE) {
                    self.open.insert(Place {
                        family: u32::from(*family),
                        table: text(name),
                    });
                }
                continue;
            }
            changes.push(Change {
                author: author_number(payload).map(|pid| Author {
                    pid,
                    name: attribute(attributes, GEN_PROC_NAME)
                        .map(text)
                        .unwrap_or_default(),
                }),
                tables: std::mem::take(&mut self.open),
            });
        }
        changes
    }
}

/// Who asked, by the body of a message that tells a generation.
pub(super) fn author_number(payload: &[u8]) -> Option<u32> {
    let bytes = attribute(payload.get(4..)?, GEN_PROC_PID)?;
    Some(u32::from_be_bytes(bytes.try_into().ok()?))
}

fn message(kind: i32) -> u16 {
    let [kind, ..] = kind.to_le_bytes();
    let [subsystem, ..] = libc::NFNL_SUBSYS_NFTABLES.to_le_bytes();
    u16::from_be_bytes([subsystem, kind])
}

/// The first attribute of this type: length and type in host order, padded to four bytes.
pub(super) fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    /// `NLA_F_NESTED` and `NLA_F_NET_BYTEORDER`.
    const FLAGS: u16 = 3 << 14;
    while let [a, b, c, d, ..] = bytes {
        let len = usize::from(u16::from_ne_bytes([*a, *b]));
        let kind = u16::from_ne_bytes([*c, *d]) & !FLAGS;
        let value = bytes.get(4..len)?;
        if kind == wanted {
            return Some(value);
        }
        bytes = bytes.get(len.next_multiple_of(4)..)?;
    }
    None
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_and_short_ones_end_the_search() {
        let bytes = [
            [8u16.to_ne_bytes(), 1u16.to_ne_bytes()].concat(),
            b"ab\0\0".to_vec(),
            [8u16.to_ne_bytes(), 2u16.to_ne_bytes()].concat(),
            vec![0, 0, 1, 2],
        ]
        .concat();
        assert_eq!(text(attribute(&bytes, 1).unwrap()), "ab");
        assert_eq!(attribute(&bytes, 2), Some(&[0u8, 0, 1, 2][..]));
        assert_eq!(attribute(&bytes, 3), None);
        assert_eq!(attribute(&bytes[..10], 2), None);
        assert_eq!(attribute(&[2, 0, 1, 0], 1), None);
    }
}
