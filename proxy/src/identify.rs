//! Who is asking, as the kernel says it. A run's socket shows its peer by SO_PEERCRED; on the TCP
//! entrance the uid that owns the client's socket is asked of sock_diag at accept. Uid 0, the
//! gate's own and the overflow uid are nobody, and so is a socket whose inode is 0: that is what
//! the kernel answers once the client has closed.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::AsRawFd;

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, IPPROTO_TCP, IPPROTO_UDP};
use netlink_packet_sock_diag::inet::{
    ExtensionFlags, InetRequest, InetResponse, SocketId, StateFlags,
};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use netlink_sys::{Socket, SocketAddr as NetlinkAddr};
use nix::errno::Errno;
use nix::sys::socket::sockopt::{Ip6tOriginalDst, OriginalDst};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, SockaddrIn6, bind, getsockopt, socket,
};

/// The uid that stands for "not mapped here" (`/proc/sys/kernel/overflowuid` by default).
const OVERFLOW_UID: u32 = 65_534;

/// `TCP_ESTABLISHED` of the kernel's `tcp_states.h`.
const TCP_ESTABLISHED: u8 = 1;

/// Why a peer has no identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentifyError {
    #[error("asking the kernel who owns the client's socket")]
    Kernel(#[source] io::Error),
    #[error("the kernel knows no owner of the client's socket any more")]
    Gone,
    #[error("the kernel's answer about the client's socket could not be read")]
    Answer,
    #[error("uid {0} is never an identity")]
    Nobody(u32),
    #[error("sockets of several uids could have sent this")]
    Several,
    #[error("{0}")]
    Said(String),
}

/// The uid of the process at the other end of a unix stream, as it was when it connected.
pub fn unix_peer(stream: &tokio::net::UnixStream) -> Result<u32, IdentifyError> {
    let credentials = stream.peer_cred().map_err(IdentifyError::Kernel)?;
    somebody(credentials.uid())
}

/// The uid that owns the TCP socket `client`, which is connected to `gate` in this network
/// namespace. One short exchange with the kernel, which answers within the call.
pub fn tcp_peer(client: SocketAddr, gate: SocketAddr) -> Result<u32, IdentifyError> {
    somebody(tcp_owner(client, gate)?)
}

/// The same, whoever it is: root and the gate itself too.
pub fn tcp_owner(client: SocketAddr, gate: SocketAddr) -> Result<u32, IdentifyError> {
    let socket = asked(&question(client, gate))?;
    let mut answer = Vec::with_capacity(4096);
    socket.recv(&mut answer, 0).map_err(IdentifyError::Kernel)?;
    let message = NetlinkMessage::<SockDiagMessage>::deserialize(&answer)
        .map_err(|_| IdentifyError::Answer)?;
    match message.payload {
        NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(found)) => {
            let header = found.header;
            let same = header.socket_id.source_port == client.port()
                && header.socket_id.destination_port == gate.port();
            // Also one that is not established: a client that has left frees its port for somebody
            // else's next connection.
            if !same || header.inode == 0 || header.state != TCP_ESTABLISHED {
                return Err(IdentifyError::Gone);
            }
            Ok(header.uid)
        }
        NetlinkPayload::Error(error) => match error.to_io() {
            none if none.raw_os_error() == Some(libc::ENOENT) => Err(IdentifyError::Gone),
            error => Err(IdentifyError::Kernel(error)),
        },
        _ => Err(IdentifyError::Answer),
    }
}

/// The same where the client may be on another machine: `None` then. A client on this one has an
/// owner, or is refused as one whose owner is not known any more.
pub fn owner_or_remote(client: SocketAddr, gate: SocketAddr) -> Result<Option<u32>, IdentifyError> {
    match tcp_owner(client, gate) {
        Err(IdentifyError::Gone) if !is_own(client)? => Ok(None),
        owner => owner.map(Some),
    }
}

/// Whether an address is one of this network namespace, which is to say that a socket here can be
/// bound to it. Where `ip_nonlocal_bind` is set every address is.
fn is_own(address: SocketAddr) -> Result<bool, IdentifyError> {
    let kernel = |error: Errno| IdentifyError::Kernel(error.into());
    let fresh = |family| socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None);
    let bound = match (address.ip().to_canonical(), address) {
        (IpAddr::V4(ip), _) => {
            let socket = fresh(AddressFamily::Inet).map_err(kernel)?;
            let at = SockaddrIn::from(SocketAddrV4::new(ip, 0));
            bind(socket.as_raw_fd(), &at)
        }
        (IpAddr::V6(ip), address) => {
            let socket = fresh(AddressFamily::Inet6).map_err(kernel)?;
            let scope = match address {
                SocketAddr::V6(address) => address.scope_id(),
                SocketAddr::V4(_) => 0,
            };
            let at = SockaddrIn6::from(SocketAddrV6::new(ip, 0, 0, scope));
            bind(socket.as_raw_fd(), &at)
        }
    };
    match bound {
        Ok(()) => Ok(true),
        Err(Errno::EADDRNOTAVAIL) => Ok(false),
        Err(error) => Err(kernel(error)),
    }
}

/// Where a connection was going before the boundary led it to the gate; `None` when the kernel knows
/// of no other destination.
pub fn original_destination(
    stream: &tokio::net::TcpStream,
) -> Result<Option<SocketAddr>, IdentifyError> {
    let own = stream.local_addr().map_err(IdentifyError::Kernel)?;
    let found = match own {
        SocketAddr::V4(_) => getsockopt(stream, OriginalDst).map(|found| {
            let address = Ipv4Addr::from_bits(u32::from_be(found.sin_addr.s_addr));
            SocketAddr::from((address, u16::from_be(found.sin_port)))
        }),
        SocketAddr::V6(_) => getsockopt(stream, Ip6tOriginalDst).map(|found| {
            let address = Ipv6Addr::from(found.sin6_addr.s6_addr);
            SocketAddr::from((address, u16::from_be(found.sin6_port)))
        }),
    };
    match found {
        Ok(found) => Ok(Some(found)),
        // Not tracked, or no tracking at all: nothing was redirected.
        Err(Errno::ENOENT | Errno::ENOPROTOOPT) => Ok(None),
        Err(error) => Err(IdentifyError::Kernel(error.into())),
    }
}

/// The uid that owns the UDP socket which sent from `client`. A socket need not be bound to an
/// address or connected, so that all of that port are looked at; they must agree.
pub fn udp_peer(client: SocketAddr) -> Result<u32, IdentifyError> {
    let mut owner = None;
    let families: &[u8] = match client.ip() {
        // A socket of both families sends IPv4 as well.
        IpAddr::V4(_) => &[AF_INET, AF_INET6],
        IpAddr::V6(_) => &[AF_INET6],
    };
    for family in families {
        for found in udp_sockets(*family, client.port())? {
            let header = found.header;
            let bound = header.socket_id.source_address;
            let same = bound.is_unspecified() || bound.to_canonical() == client.ip();
            if header.socket_id.source_port != client.port() || !same || header.inode == 0 {
                continue;
            }
            if owner
                .replace(header.uid)
                .is_some_and(|uid| uid != header.uid)
            {
                return Err(IdentifyError::Several);
            }
        }
    }
    somebody(owner.ok_or(IdentifyError::Gone)?)
}

/// The UDP sockets of a family that are bound to a port.
fn udp_sockets(family: u8, port: u16) -> Result<Vec<InetResponse>, IdentifyError> {
    let mut id = if family == AF_INET {
        SocketId::new_v4()
    } else {
        SocketId::new_v6()
    };
    id.source_port = port;
    id.cookie = [0xff; 8];
    let socket = asked(&request(
        family,
        IPPROTO_UDP,
        id,
        NLM_F_REQUEST | NLM_F_DUMP,
    ))?;
    let mut found = Vec::new();
    loop {
        let mut answer = Vec::with_capacity(32 * 1024);
        socket.recv(&mut answer, 0).map_err(IdentifyError::Kernel)?;
        let mut rest = answer.as_slice();
        while !rest.is_empty() {
            let message = NetlinkMessage::<SockDiagMessage>::deserialize(rest)
                .map_err(|_| IdentifyError::Answer)?;
            let length = usize::try_from(message.header.length).unwrap_or(usize::MAX);
            match message.payload {
                NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(one)) => {
                    found.push(*one)
                }
                NetlinkPayload::Done(_) => return Ok(found),
                _ => return Err(IdentifyError::Answer),
            }
            rest = rest
                .get(length.next_multiple_of(4).max(4)..)
                .unwrap_or_default();
        }
        if answer.is_empty() {
            return Err(IdentifyError::Answer);
        }
    }
}

/// A socket on which the kernel has been asked.
fn asked(request: &[u8]) -> Result<Socket, IdentifyError> {
    let mut socket = Socket::new(NETLINK_SOCK_DIAG).map_err(IdentifyError::Kernel)?;
    socket.bind_auto().map_err(IdentifyError::Kernel)?;
    socket
        .connect(&NetlinkAddr::new(0, 0))
        .map_err(IdentifyError::Kernel)?;
    socket.send(request, 0).map_err(IdentifyError::Kernel)?;
    Ok(socket)
}

/// Refuses the uids that never map to a grant.
fn somebody(uid: u32) -> Result<u32, IdentifyError> {
    let own = nix::unistd::geteuid().as_raw();
    if uid == 0 || uid == own || uid == OVERFLOW_UID || uid == u32::MAX {
        return Err(IdentifyError::Nobody(uid));
    }
    Ok(uid)
}

/// The message that asks for exactly one socket: the client's end, hence its address as source.
fn question(client: SocketAddr, gate: SocketAddr) -> Vec<u8> {
    let (family, mut id) = match client.ip() {
        IpAddr::V4(_) => (AF_INET, SocketId::new_v4()),
        IpAddr::V6(_) => (AF_INET6, SocketId::new_v6()),
    };
    id.source_address = client.ip();
    id.source_port = client.port();
    id.destination_address = gate.ip();
    id.destination_port = gate.port();
    id.cookie = [0xff; 8];
    request(family, IPPROTO_TCP, id, NLM_F_REQUEST)
}

fn request(family: u8, protocol: u8, id: SocketId, flags: u16) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = flags;
    let mut message = NetlinkMessage::new(
        header,
        SockDiagMessage::InetRequest(InetRequest {
            family,
            protocol,
            extensions: ExtensionFlags::empty(),
            states: StateFlags::all(),
            socket_id: id,
        })
        .into(),
    );
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test's own sockets belong to the test's own uid, which is exactly the identity the gate
    /// refuses.
    #[tokio::test]
    async fn the_gate_never_takes_itself_for_a_client() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let gate = listener.local_addr().unwrap();
        #[allow(
            clippy::disallowed_methods,
            reason = "a client of the entrance, in a test"
        )]
        let client = tokio::net::TcpStream::connect(gate).await.unwrap();
        let (_accepted, peer) = listener.accept().await.unwrap();
        assert_eq!(peer, client.local_addr().unwrap());
        let own = nix::unistd::geteuid().as_raw();
        assert!(matches!(tcp_peer(peer, gate), Err(IdentifyError::Nobody(uid)) if uid == own));
        drop(client);
        let nobody: SocketAddr = "127.0.0.1:1".parse().unwrap();
        assert!(matches!(tcp_peer(nobody, gate), Err(IdentifyError::Gone)));
    }

    #[test]
    fn an_address_is_of_this_machine_or_of_another() {
        let own = |text: &str| is_own(text.parse().unwrap()).unwrap();
        for here in ["127.0.0.1:1", "127.9.9.9:1", "[::ffff:127.0.0.1]:1"] {
            assert!(own(here), "{here}");
        }
        for away in ["192.0.2.7:1", "[2001:db8::7]:1", "[::ffff:192.0.2.7]:1"] {
            assert!(!own(away), "{away}");
        }
        let gate = "127.0.0.1:1".parse().unwrap();
        let owner = |text: &str| owner_or_remote(text.parse().unwrap(), gate);
        assert!(matches!(owner("192.0.2.7:9"), Ok(None)));
        assert!(matches!(owner("127.0.0.1:9"), Err(IdentifyError::Gone)));
    }

    #[test]
    fn root_the_overflow_uid_and_ourselves_are_nobody() {
        assert!(somebody(0).is_err());
        assert!(somebody(OVERFLOW_UID).is_err());
        assert!(somebody(nix::unistd::geteuid().as_raw()).is_err());
        assert_eq!(
            somebody(23_456).unwrap(),
            23_456,
            "control: an ordinary uid"
        );
    }
}
