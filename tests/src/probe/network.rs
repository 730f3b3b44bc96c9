//! Attempts over the network: TCP, UDP, DNS, ICMP, raw and packet sockets.

#![allow(
    clippy::disallowed_methods,
    reason = "the hostile client dials and sends for itself; that is what is under test"
)]

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::time::Duration;

use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};

use super::{Outcome, Report, attempt, family};

/// Connects; `Replied` when the peer echoes a line, `Connected` when it only accepts.
pub fn tcp(target: SocketAddr, patience: Duration) -> Report {
    attempt(
        &format!("tcp{}", family(target.ip())),
        target.to_string(),
        || {
            let mut stream = TcpStream::connect_timeout(&target, patience)?;
            stream.set_read_timeout(Some(patience.min(Duration::from_millis(300))))?;
            let mut answer = [0; 64];
            let replied = stream.write_all(b"portcullis-probe\n").is_ok()
                && stream.read(&mut answer).is_ok_and(|count| count > 0);
            Ok(if replied {
                Outcome::Replied
            } else {
                Outcome::Connected
            })
        },
    )
}

/// Sends a datagram and waits for an echo.
pub fn udp(target: SocketAddr, patience: Duration) -> Report {
    attempt(
        &format!("udp{}", family(target.ip())),
        target.to_string(),
        || exchange(target, b"portcullis-probe\n", patience),
    )
}

/// Asks a resolver of our own choice for a name.
pub fn dns(target: SocketAddr, patience: Duration) -> Report {
    attempt(
        &format!("dns{}", family(target.ip())),
        target.to_string(),
        || {
            let mut query = vec![0x70, 0x63, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
            for label in ["probe", "portcullis", "test"] {
                query.push(u8::try_from(label.len()).unwrap_or(0));
                query.extend_from_slice(label.as_bytes());
            }
            query.extend_from_slice(&[0, 0, 1, 0, 1]);
            exchange(target, &query, patience)
        },
    )
}

/// Asks the system's resolver for `name`.
pub fn resolver(name: &str) -> Report {
    attempt("resolver", name.to_owned(), || {
        (name, 443)
            .to_socket_addrs()
            .map(|mut found| match found.next() {
                Some(_) => Outcome::Replied,
                None => Outcome::Nothing,
            })
    })
}

/// An echo request through the kernel's unprivileged ping socket.
pub fn icmp(target: IpAddr, patience: Duration) -> Report {
    attempt(
        &format!("icmp{}", family(target)),
        target.to_string(),
        || echo_request(target, SockType::Datagram, patience),
    )
}

/// An echo request through a raw socket.
pub fn raw(target: IpAddr) -> Report {
    attempt(
        &format!("raw{}", family(target)),
        target.to_string(),
        || {
            echo_request(target, SockType::Raw, Duration::from_millis(200)).map(|outcome| {
                match outcome {
                    Outcome::Sent => Outcome::Opened,
                    other => other,
                }
            })
        },
    )
}

/// A packet socket, which would see and send below every rule.
pub fn packet() -> Report {
    attempt("packet", "all protocols".to_owned(), || {
        let protocol = Some(SockProtocol::EthAll);
        socket(
            AddressFamily::Packet,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            protocol,
        )?;
        Ok(Outcome::Opened)
    })
}

/// Sends a datagram to every target, and now and then begins a connection to it, until it is killed. Whoever watches the
/// wire knows what came of it.
pub fn send(targets: &[SocketAddr], every: Duration) -> io::Result<()> {
    const CONNECT_EACH: u32 = 16;
    for round in 0_u32.. {
        for target in targets {
            // A socket of its own each time: what was refused once must not decide about the next.
            let socket = UdpSocket::bind(unspecified(*target))?;
            // To be refused, or to have no network yet, is what is expected here.
            let _outcome = socket.send_to(b"portcullis-probe\n", target);
            if round % CONNECT_EACH == 0 {
                let _outcome = TcpStream::connect_timeout(target, every);
            }
        }
        std::thread::sleep(every);
    }
    Ok(())
}

fn unspecified(target: SocketAddr) -> SocketAddr {
    let any = match target {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    SocketAddr::new(any, 0)
}

fn exchange(target: SocketAddr, bytes: &[u8], patience: Duration) -> io::Result<Outcome> {
    let socket = UdpSocket::bind(unspecified(target))?;
    socket.connect(target)?;
    socket.set_read_timeout(Some(patience))?;
    socket.send(bytes)?;
    let mut answer = [0; 512];
    match socket.recv(&mut answer) {
        Ok(_) => Ok(Outcome::Replied),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Outcome::Sent),
        Err(error) => Err(error),
    }
}

fn echo_request(target: IpAddr, kind: SockType, patience: Duration) -> io::Result<Outcome> {
    let (domain, protocol, request): (_, _, u8) = match target {
        IpAddr::V4(_) => (AddressFamily::Inet, SockProtocol::Icmp, 8),
        IpAddr::V6(_) => (AddressFamily::Inet6, SockProtocol::IcmpV6, 128),
    };
    // Any socket that carries datagrams serves as one of std's.
    let socket = UdpSocket::from(socket(domain, kind, SockFlag::SOCK_CLOEXEC, protocol)?);
    socket.set_read_timeout(Some(patience))?;
    let mut message = [request, 0, 0, 0, 0x70, 0x63, 0, 1];
    let sum = checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    socket.send_to(&message, SocketAddr::new(target, 0))?;
    match socket.recv(&mut [0; 128]) {
        Ok(_) => Ok(Outcome::Replied),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Outcome::Sent),
        Err(error) => Err(error),
    }
}

/// The Internet checksum over an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(0)
}
