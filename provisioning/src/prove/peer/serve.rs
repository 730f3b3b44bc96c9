//! The peer's own process: it enters a network namespace of its own, listens where it is told to, answers, and tells what
//! arrived.

#![allow(
    clippy::disallowed_methods,
    reason = "the peer has nothing but its own namespace; it listens there and sends there"
)]

use std::fs;
use std::io::{self, BufRead as _, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::thread;
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{
    AddressFamily, LinkAddr, SockFlag, SockProtocol, SockType, recvfrom, setsockopt, socket,
    sockopt,
};

use socket2::{Domain, Socket, Type};

use super::frames::{self, Seen};
use super::{Order, Told};
use crate::process::Call;

/// The packet type of what this end itself sent.
const OUTGOING: u8 = 4;
/// Room for what arrives while nobody reads.
const BUFFER: usize = 8 << 20;
const DIAL: Duration = Duration::from_secs(2);

/// Serves until standard input ends.
///
/// # Errors
/// When the namespace or the packet socket cannot be made.
pub fn serve() -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNET)?;
    tell(&Told::Ready);
    for line in io::stdin().lock().lines() {
        match serde_json::from_str::<Order>(&line?) {
            Ok(order) => obey(order),
            Err(error) => tell(&Told::Trouble(error.to_string())),
        }
    }
    Ok(())
}

fn tell(told: &Told) {
    if let Ok(line) = serde_json::to_string(told) {
        crate::output::data(&line);
    }
}

fn trouble(what: &str, error: &dyn std::error::Error) {
    tell(&Told::Trouble(format!(
        "{what}: {}",
        crate::output::chain(error)
    )));
}

fn obey(order: Order) {
    match order {
        Order::Wire { commands, .. } => {
            // Before an address is up, so that nothing arrives unseen.
            if let Err(error) = record() {
                return trouble("recording", &error);
            }
            for words in commands {
                if let Err(error) = Call::new("ip").args(words).run() {
                    return trouble("raising the wire", &error);
                }
            }
            tell(&Told::Wired);
        }
        Order::Listen {
            address,
            tcp,
            udp,
            http,
            ..
        } => match listen(address, &tcp, &udp, &http) {
            Ok(()) => tell(&Told::Listening(address)),
            Err(error) => trouble(&format!("listening at {address}"), &error),
        },
        Order::Resolve { host } => {
            thread::spawn(move || {
                let words = ["neigh", "flush", "all"];
                if let Err(error) = Call::new("ip").args(words).run() {
                    return trouble("forgetting neighbours", &error);
                }
                let any: IpAddr = if host.is_ipv4() {
                    [0; 4].into()
                } else {
                    [0u16; 8].into()
                };
                // The kernel asks for the address in order to send this; that it gets it is what is watched.
                let sent =
                    UdpSocket::bind((any, 0)).and_then(|socket| socket.send_to(b"?", (host, 9)));
                if let Err(error) = sent {
                    trouble("asking for a neighbour", &error);
                }
            });
        }
        Order::Join { commands } => {
            for words in commands {
                if let Err(error) = Call::new("ip").args(words).run() {
                    return trouble("raising the second wire", &error);
                }
            }
            tell(&Told::Joined);
        }
        Order::Finish { address } => tell(&Told::Unfinished(address, unfinished(address))),
        Order::Dial { host, port } => {
            thread::spawn(move || tell(&Told::Dialled(host, port, dial(host, port))));
        }
    }
}

/// Tells every packet that comes in from now on.
fn record() -> io::Result<()> {
    let socket = socket(
        AddressFamily::Packet,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::EthAll,
    )?;
    // Beyond what the system grants unasked where that is allowed; more than the default is not needed to be right.
    let _ = setsockopt(&socket, sockopt::RcvBufForce, &BUFFER);
    thread::spawn(move || {
        let mut buffer = vec![0; 65_536];
        loop {
            match recvfrom::<LinkAddr>(socket.as_raw_fd(), &mut buffer) {
                Ok((_, Some(from))) if from.pkttype() == OUTGOING => {}
                Ok((length, _)) => match frames::read(&buffer[..length]) {
                    Some(Seen::Arrival(arrival)) if arrival.from != arrival.to => {
                        tell(&Told::Arrived(arrival));
                    }
                    Some(Seen::Advertisement(_)) => tell(&Told::Advertised),
                    Some(Seen::Arrival(_)) | None => {}
                },
                Err(nix::errno::Errno::EINTR | nix::errno::Errno::ENETDOWN) => {}
                Err(error) => return trouble("recording", &error),
            }
        }
    });
    Ok(())
}

fn listen(address: IpAddr, tcp: &[u16], udp: &[u16], http: &[u16]) -> io::Result<()> {
    let at = |port: u16| -> SocketAddr {
        match address {
            IpAddr::V6(six) if six.is_unicast_link_local() => {
                std::net::SocketAddrV6::new(six, port, 0, wire_index()).into()
            }
            other => (other, port).into(),
        }
    };
    for port in tcp {
        let listener: TcpListener = bound(at(*port), Type::STREAM)?.into();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                thread::spawn(move || echo(stream));
            }
        });
    }
    for port in http {
        let listener: TcpListener = bound(at(*port), Type::STREAM)?.into();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                thread::spawn(move || answer(stream, address));
            }
        });
    }
    for port in udp {
        let socket: UdpSocket = bound(at(*port), Type::DGRAM)?.into();
        thread::spawn(move || {
            let mut buffer = [0; 2048];
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                // Whether the other side hears it is what the other side says.
                let _ = socket.send_to(&buffer[..length], from);
            }
        });
    }
    Ok(())
}

/// The addresses are routed here without being any interface's, which IPv6 lets one bind to only when asked.
fn bound(address: SocketAddr, kind: Type) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), kind, None)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
        socket.set_freebind_v6(true)?;
    }
    socket.bind(&address.into())?;
    if kind == Type::STREAM {
        socket.listen(64)?;
    }
    Ok(socket)
}

/// Our end of the wire: the one interface that is not loopback.
fn wire_index() -> u32 {
    let text = fs::read_to_string("/proc/net/dev").unwrap_or_default();
    let names = text
        .lines()
        .filter_map(|line| Some(line.split_once(':')?.0.trim()));
    let wire = names.into_iter().find(|name| name.starts_with("prove"));
    wire.and_then(|name| nix::net::if_::if_nametoindex(name).ok())
        .unwrap_or(0)
}

fn echo(mut stream: TcpStream) {
    let mut buffer = [0; 2048];
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        if stream.write_all(&buffer[..length]).is_err() {
            return;
        }
    }
}

/// Tells the head of one request and answers it.
fn answer(mut stream: TcpStream, to: IpAddr) {
    let mut head = Vec::new();
    let mut buffer = [0; 2048];
    while !head.windows(4).any(|four| four == b"\r\n\r\n") && head.len() < 64 << 10 {
        match stream.read(&mut buffer) {
            Ok(length @ 1..) => head.extend(&buffer[..length]),
            _ => break,
        }
    }
    let text = String::from_utf8_lossy(&head).into_owned();
    tell(&Told::Head { to, text });
    let answer = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 11\r\nConnection: close\r\n\r\nportcullis\n";
    // Whoever asked may be gone.
    let _ = stream.write_all(answer.as_bytes());
}

/// Connections from or at that address whose last acknowledgement is outstanding (09 is LAST_ACK in the kernel's table).
fn unfinished(address: IpAddr) -> usize {
    let file = if address.is_ipv4() {
        "/proc/thread-self/net/tcp"
    } else {
        "/proc/thread-self/net/tcp6"
    };
    let text = fs::read_to_string(file).unwrap_or_default();
    let wanted = hexadecimal(address);
    text.lines()
        .filter(|line| {
            let mut fields = line.split_whitespace().skip(1);
            let local = fields.next().unwrap_or_default();
            local.starts_with(&wanted) && matches!(fields.nth(1), Some("09" | "07" | "0B"))
        })
        .count()
}

/// An address as the kernel's table writes it: groups of four bytes, each in this machine's order.
fn hexadecimal(address: IpAddr) -> String {
    let bytes = match address {
        IpAddr::V4(four) => four.octets().to_vec(),
        IpAddr::V6(six) => six.octets().to_vec(),
    };
    let groups = bytes.chunks(4).map(|group| {
        let group: [u8; 4] = group.try_into().unwrap_or_default();
        format!("{:08X}", u32::from_ne_bytes(group))
    });
    groups.collect()
}

fn dial(host: IpAddr, port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect_timeout(&(host, port).into(), DIAL) else {
        return false;
    };
    let mut buffer = [0; 64];
    stream.set_read_timeout(Some(DIAL)).is_ok()
        && stream.write_all(crate::prove::attempt::WORD).is_ok()
        && matches!(stream.read(&mut buffer), Ok(1..))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_written_as_the_kernel_does() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let table = fs::read_to_string("/proc/net/tcp").unwrap();
        let wanted = format!("{}:{port:04X}", hexadecimal([127, 0, 0, 1].into()));
        assert!(table.contains(&wanted), "{wanted}");
    }
}
