//! Closing what is older than the rules.
//!
//! In scope `agents` a packet is judged by its socket's uid. A program that closes a connection
//! while data is still queued leaves an orphan behind, which the kernel goes on sending without a
//! uid: opened before the rules, it would outlive them. So `apply` destroys the TCP sockets of shut
//! users that reach beyond loopback. New ones cannot come to be: the first packet is refused, a SYN-ACK
//! without a uid too.
//!
//! Messages of `NETLINK_SOCK_DIAG` (linux/inet_diag.h), built and read as bytes.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::accounts::UidRange;
use crate::netlink::{NetlinkError, answers, diagnose};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const SOCK_DESTROY: u16 = 21;
/// Every TCP state in which data can still move: all but LISTEN (10), CLOSE (7), TIME_WAIT (6).
const STATES: u32 = !((1 << 10) | (1 << 7) | (1 << 6)) & 0x1fff;

/// What became of old connections.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cut {
    pub closed: u32,
    /// Connections the kernel would not destroy (built without INET_DIAG_DESTROY): their next
    /// packet with a uid is refused with a reset, which closes them as well.
    pub left: u32,
}

/// Destroys connections of these users to anything but loopback. With `led`, not those that were led there: every
/// packet of theirs, with a uid or without, goes to the gate as long as the flow is tracked.
pub(crate) fn cut(agents: &[UidRange], led: bool) -> Result<Cut, NetlinkError> {
    let mut cut = Cut::default();
    for family in [libc::AF_INET, libc::AF_INET6] {
        let [family, ..] = family.to_le_bytes();
        let found = diagnose(
            SOCK_DIAG_BY_FAMILY,
            libc::NLM_F_DUMP,
            &request(family, &[0; 48]),
        )?;
        for answer in found {
            let Some(socket) = Socket::parse(&answer) else {
                continue;
            };
            let shut = agents.iter().any(|range| range.contains(socket.uid));
            if !shut || socket.local_only() || led && socket.is_led() {
                continue;
            }
            match diagnose(SOCK_DESTROY, 0, &request(family, &socket.id)) {
                Ok(_) => cut.closed += 1,
                Err(error) if gone(&error) => {}
                Err(_) => cut.left += 1,
            }
        }
    }
    Ok(cut)
}

/// The connection ended by itself between the two questions.
fn gone(error: &NetlinkError) -> bool {
    matches!(error, NetlinkError::Io { source, .. }
        if source.raw_os_error() == Some(libc::ENOENT) || source.kind() == io::ErrorKind::NotFound)
}

/// `struct inet_diag_req_v2`: family, protocol, extensions, padding, states, socket id.
fn request(family: u8, id: &[u8; 48]) -> Vec<u8> {
    let [tcp, ..] = libc::IPPROTO_TCP.to_le_bytes();
    let mut bytes = vec![family, tcp, 0, 0];
    bytes.extend(STATES.to_ne_bytes());
    bytes.extend(id);
    bytes
}

/// The parts of `struct inet_diag_msg` that matter here.
struct Socket {
    family: u8,
    /// `struct inet_diag_sockid`: ports, addresses, interface, cookie.
    id: [u8; 48],
    uid: u32,
}

impl Socket {
    fn parse(message: &[u8]) -> Option<Self> {
        let family = *message.first()?;
        let id: [u8; 48] = message.get(4..52)?.try_into().ok()?;
        // After the id: expires, rqueue, wqueue, uid.
        let uid = u32::from_ne_bytes(message.get(64..68)?.try_into().ok()?);
        Some(Self { family, id, uid })
    }

    /// Cannot be told without connection tracking's netlink face, and then such a flow is cut like any.
    fn is_led(&self) -> bool {
        let (Some(local), Some(remote)) = (self.end(0, 4), self.end(2, 20)) else {
            return false;
        };
        matches!(answers(local, remote), Ok(Some(replier)) if replier.is_loopback())
    }

    fn end(&self, port: usize, address: usize) -> Option<SocketAddr> {
        let port = self.id.get(port..port + 2)?.try_into().ok()?;
        Some(SocketAddr::new(
            self.address(address)?,
            u16::from_be_bytes(port),
        ))
    }

    fn remote(&self) -> Option<IpAddr> {
        self.address(20)
    }

    fn address(&self, place: usize) -> Option<IpAddr> {
        let address = self.id.get(place..place + 16)?;
        if i32::from(self.family) == libc::AF_INET {
            let four: [u8; 4] = address.get(..4)?.try_into().ok()?;
            Some(Ipv4Addr::from(four).into())
        } else {
            let sixteen: [u8; 16] = address.try_into().ok()?;
            Some(Ipv6Addr::from(sixteen).to_canonical())
        }
    }

    fn local_only(&self) -> bool {
        self.remote().is_some_and(|address| address.is_loopback())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(family: i32, remote: &[u8], uid: u32) -> Vec<u8> {
        let mut bytes = vec![0; 72];
        bytes[0] = family.to_le_bytes()[0];
        bytes[24..24 + remote.len()].copy_from_slice(remote);
        bytes[64..68].copy_from_slice(&uid.to_ne_bytes());
        bytes
    }

    #[test]
    fn remote_address_and_uid_are_read_from_their_places() {
        let socket = Socket::parse(&message(libc::AF_INET, &[192, 0, 2, 1], 1500)).unwrap();
        assert_eq!(socket.uid, 1500);
        assert_eq!(socket.remote(), Some(IpAddr::from([192, 0, 2, 1])));
        assert!(!socket.local_only());
        let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets();
        let socket = Socket::parse(&message(libc::AF_INET6, &mapped, 1)).unwrap();
        assert!(socket.local_only());
        assert!(Socket::parse(&[0; 60]).is_none());
    }
}
