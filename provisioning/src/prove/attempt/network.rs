//! Sockets of every kind, towards the outside and towards this machine itself.

use std::io::{self, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, TcpListener};
use std::thread;
use std::time::Duration;

use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

use super::WORD;
use crate::prove::kind::Kind;
use crate::prove::task::{Outcome, Report, Task};

/// How long a datagram's answer, or the error about it, is waited for between two sends.
const BETWEEN: Duration = Duration::from_millis(250);
/// IP_FREEBIND stands for both protocols.
const MSG_FASTOPEN: i32 = 0x2000_0000;

/// Connects, says the word and reads what comes back.
pub(super) fn tcp(task: &Task) -> Report {
    judged(|| {
        let socket = stream(task)?;
        socket.connect_timeout(&target(task)?, patience(task))?;
        exchange(socket)
    })
}

/// The same with the word in the first packet.
pub(super) fn fast_open(task: &Task) -> Report {
    judged(|| {
        let socket = stream(task)?;
        socket.send_to_with_flags(WORD, &target(task)?, MSG_FASTOPEN)?;
        read_answer(socket)
    })
}

pub(super) fn udp(task: &Task) -> Report {
    judged(|| datagram(task, &datagram_socket(task, None)?, WORD))
}

pub(super) fn udp_lite(task: &Task) -> Report {
    judged(|| datagram(task, &datagram_socket(task, Some(Protocol::UDPLITE))?, WORD))
}

/// Asks for the address of `probe.test`.
pub(super) fn dns(task: &Task) -> Report {
    const QUESTION: &[u8] =
        b"pc\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x05probe\x04test\x00\x00\x01\x00\x01";
    judged(|| datagram(task, &datagram_socket(task, None)?, QUESTION))
}

/// An ICMP echo request, by a datagram or by a raw socket.
pub(super) fn echo(task: &Task) -> Report {
    judged(|| {
        let address = address(task)?;
        let (kind, protocol) = (
            if task.kind == Kind::Raw {
                Type::RAW
            } else {
                Type::DGRAM
            },
            if address.is_ipv4() {
                Protocol::ICMPV4
            } else {
                Protocol::ICMPV6
            },
        );
        let socket = Socket::new(domain(address), kind, Some(protocol))?;
        let mut message = vec![
            if address.is_ipv4() { 8 } else { 128 },
            0,
            0,
            0,
            b'p',
            b'c',
            0,
            1,
        ];
        message.extend(WORD);
        message.push(0);
        let sum = checksum(&message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        datagram(task, &socket, &message)
    })
}

/// Opens a packet socket: whoever has one writes past every rule.
pub(super) fn packet() -> Report {
    let opened = socket(
        AddressFamily::Packet,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::EthAll,
    );
    match opened {
        Ok(_) => Report::new(Outcome::Granted, "a packet socket"),
        Err(error) => Report::of_error(&error.into()),
    }
}

/// Listens, says so in a line, and answers whoever connects until standard input ends.
pub(super) fn listen(task: &Task) -> Report {
    let bound = address(task).and_then(|address| TcpListener::bind((address, task.port)));
    let listener = match bound {
        Ok(listener) => listener,
        Err(error) => return Report::of_error(&error),
    };
    let full = task.kind == Kind::SquatFull;
    let _held = match full.then(|| crowd(&listener)).transpose() {
        Ok(dials) => dials,
        Err(error) => return Report::of_error(&error),
    };
    crate::output::data("listening");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut stream = stream;
                let mut buffer = [0; 512];
                // Whether the other side hears it is what the other side says.
                while let Ok(length @ 1..) = stream.read(&mut buffer) {
                    // What is left unsent when it is closed has no uid any more.
                    if stream.write_all(&buffer[..length]).is_err() || full {
                        break;
                    }
                }
            });
        }
    });
    let mut rest = Vec::new();
    match io::stdin().read_to_end(&mut rest) {
        Ok(_) => Report::new(Outcome::Granted, "listened"),
        Err(error) => Report::of_error(&error),
    }
}

/// Leaves a listener's queue no room, so that the kernel answers for it with SYN cookies: the smallest
/// backlog, and dials that stay unanswered as long as they are held.
fn crowd(listener: &TcpListener) -> io::Result<Vec<Socket>> {
    SockRef::from(listener).listen(0)?;
    let local = listener.local_addr()?;
    let dial = || {
        let socket = Socket::new(Domain::for_address(local), Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        match socket.connect(&local.into()) {
            Err(error) if error.raw_os_error() != Some(nix::libc::EINPROGRESS) => Err(error),
            Ok(()) | Err(_) => Ok(socket),
        }
    };
    (0..2).map(|_| dial()).collect()
}

fn judged(run: impl FnOnce() -> io::Result<Report>) -> Report {
    run().unwrap_or_else(|error| Report::of_error(&error))
}

fn address(task: &Task) -> io::Result<IpAddr> {
    task.address
        .ok_or_else(|| io::Error::other("the attempt names no address"))
}

fn target(task: &Task) -> io::Result<SockAddr> {
    Ok(match address(task)? {
        IpAddr::V6(six) if task.interface != 0 => {
            SocketAddr::from(SocketAddrV6::new(six, task.port, 0, task.interface)).into()
        }
        address => SocketAddr::new(address, task.port).into(),
    })
}

fn domain(address: IpAddr) -> Domain {
    if address.is_ipv4() {
        Domain::IPV4
    } else {
        Domain::IPV6
    }
}

fn patience(task: &Task) -> Duration {
    Duration::from_millis(task.patience_ms)
}

fn stream(task: &Task) -> io::Result<Socket> {
    let socket = Socket::new(domain(address(task)?), Type::STREAM, Some(Protocol::TCP))?;
    claim(&socket, task)?;
    socket.set_read_timeout(Some(patience(task)))?;
    socket.set_write_timeout(Some(patience(task)))?;
    Ok(socket)
}

fn datagram_socket(task: &Task, protocol: Option<Protocol>) -> io::Result<Socket> {
    let socket = Socket::new(domain(address(task)?), Type::DGRAM, protocol)?;
    claim(&socket, task)?;
    Ok(socket)
}

/// Takes the source that the task names, also an address that is not ours.
fn claim(socket: &Socket, task: &Task) -> io::Result<()> {
    let Some(source) = task.source else {
        return Ok(());
    };
    if source.is_ipv4() {
        socket.set_freebind_v4(true)?;
    } else {
        socket.set_freebind_v6(true)?;
    }
    // After an earlier connection from there; who listens there still has it.
    socket.set_reuse_address(task.source_port != 0)?;
    socket.bind(&SocketAddr::new(source, task.source_port).into())
}

fn exchange(socket: Socket) -> io::Result<Report> {
    let mut socket = socket;
    // Who made the connection may end it at once; the word is then what does not arrive.
    if let Err(error) = socket.write_all(WORD) {
        return Ok(Report {
            outcome: Outcome::Connected,
            ..Report::of_error(&error)
        });
    }
    read_answer(socket)
}

fn read_answer(socket: Socket) -> io::Result<Report> {
    let mut socket = socket;
    let mut buffer = [0; 64];
    Ok(match socket.read(&mut buffer) {
        Ok(length) if buffer[..length].starts_with(b"portcullis") => {
            Report::new(Outcome::Answered, "")
        }
        Ok(_) => Report::new(Outcome::Connected, "something else answered"),
        Err(error) => Report {
            outcome: Outcome::Connected,
            ..Report::of_error(&error)
        },
    })
}

/// Sends from a connected socket, or errors about it are told to nobody; the second send hears what came back for the
/// first.
fn datagram(task: &Task, socket: &Socket, message: &[u8]) -> io::Result<Report> {
    socket.connect(&target(task)?)?;
    socket.set_read_timeout(Some(BETWEEN))?;
    let rounds = task.patience_ms.div_ceil(250).clamp(2, 40);
    // Only a control waits long for its answer: what must not arrive is judged at the peer.
    for _ in 0..rounds {
        socket.send(message)?;
        let mut buffer = [MaybeUninit::uninit(); 512];
        match socket.recv(&mut buffer) {
            Ok(_) => return Ok(Report::new(Outcome::Answered, "")),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                ) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Report::new(Outcome::Sent, ""))
}

fn checksum(message: &[u8]) -> u16 {
    let sum: u32 = message
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)))
        .sum();
    let folded = (sum >> 16) + (sum & 0xffff);
    let folded = (folded >> 16) + (folded & 0xffff);
    !u16::try_from(folded).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn loopback(six: bool) -> IpAddr {
        if six {
            Ipv6Addr::LOCALHOST.into()
        } else {
            Ipv4Addr::LOCALHOST.into()
        }
    }

    fn task(kind: Kind, address: IpAddr, port: u16) -> Task {
        Task {
            address: Some(address),
            port,
            ..Task::new(kind, 500)
        }
    }

    #[test]
    fn a_listener_answers_and_a_closed_port_refuses() {
        for six in [false, true] {
            let listener = TcpListener::bind((loopback(six), 0)).unwrap();
            let port = listener.local_addr().unwrap().port();
            let served = thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut buffer = [0; 64];
                let length = stream.read(&mut buffer).unwrap();
                stream.write_all(&buffer[..length]).unwrap();
            });
            let report = tcp(&task(Kind::Tcp, loopback(six), port));
            assert_eq!(report.outcome, Outcome::Answered, "{report:?}");
            served.join().unwrap();
            let report = tcp(&task(Kind::Tcp, loopback(six), port));
            assert_eq!(report.errno.as_deref(), Some("ECONNREFUSED"), "{report:?}");
        }
    }

    #[test]
    fn a_datagram_nobody_takes_is_told() {
        let report = udp(&task(Kind::Udp, loopback(false), 9));
        assert_eq!(report.errno.as_deref(), Some("ECONNREFUSED"), "{report:?}");
    }

    #[test]
    fn an_echo_request_sums_to_zero() {
        let mut message = [8, 0, 0, 0, 1, 2, 3, 4];
        let sum = checksum(&message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(checksum(&message), 0);
    }
}
