//! What nothing forbids, by the same code as the attempts: whoever cannot do this is kept from it by something else than
//! the boundary, and its refusals mean nothing.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::thread;

use nix::unistd::geteuid;
use socket2::{Domain, Socket, Type};

use super::network;
use crate::prove::identity::SELF;
use crate::prove::kind::Kind;
use crate::prove::list;
use crate::prove::task::{Outcome, Report, Task};

/// Tries all of it. `number` is the user that this process should be; `names` are the protocols (`ipv4`, `ipv6`) that are
/// tried over loopback, where no rule stands; `raw` adds raw sockets.
pub(super) fn able(task: &Task) -> Report {
    let named = |name: &str| task.names.iter().any(|word| word == name);
    let (user, files, unix) = (|| is_user(task.number), files, unix_socket);
    let steps: [(&str, &dyn Fn() -> io::Result<()>); 4] = [
        ("be that user", &user),
        ("use files that are open to all", &files),
        ("use a unix socket", &unix),
        ("execute a program", &program),
    ];
    for (what, step) in steps {
        if let Err(error) = step() {
            return unable(what, &error);
        }
    }
    for (word, six) in [("ipv4", false), ("ipv6", true)] {
        if named(word)
            && let Err(error) = over_loopback(task, six, named("raw"))
        {
            return unable(
                &format!("send over {word} where there are no rules"),
                &error,
            );
        }
    }
    Report::new(Outcome::Granted, "files, sockets and programs")
}

fn unable(what: &str, error: &io::Error) -> Report {
    Report::new(Outcome::Unable, format!("it cannot {what}: {error}"))
}

fn is_user(wanted: u32) -> io::Result<()> {
    let is = geteuid().as_raw();
    if is == wanted {
        return Ok(());
    }
    Err(io::Error::other(format!("it is uid {is}, not {wanted}")))
}

fn files() -> io::Result<()> {
    let mut status = String::new();
    File::open("/proc/self/status")?.read_to_string(&mut status)?;
    OpenOptions::new()
        .append(true)
        .open("/dev/null")?
        .write_all(status.as_bytes())
}

fn unix_socket() -> io::Result<()> {
    let (mut here, mut there) = UnixStream::pair()?;
    here.write_all(super::WORD)?;
    let mut word = [0; super::WORD.len()];
    there.read_exact(&mut word)
}

/// This program itself, which every attempt executes.
fn program() -> io::Result<()> {
    let output = Command::new(SELF)
        .args(["prove", "list"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()?;
    if output.status.success() && output.stdout.starts_with(list::BUILT_IN.as_bytes()) {
        return Ok(());
    }
    Err(io::Error::other(format!("it ended with {}", output.status)))
}

/// A connection, a datagram and, with that right, an echo request, to this very namespace.
fn over_loopback(task: &Task, six: bool, raw: bool) -> io::Result<()> {
    let address: IpAddr = if six {
        Ipv6Addr::LOCALHOST.into()
    } else {
        Ipv4Addr::LOCALHOST.into()
    };
    let to = |kind, port| Task {
        address: Some(address),
        port,
        ..Task::new(kind, task.patience_ms)
    };
    let listener = TcpListener::bind((address, 0))?;
    let port = listener.local_addr()?.port();
    thread::spawn(move || {
        if let Ok((mut stream, _)) = listener.accept() {
            let mut word = [0; super::WORD.len()];
            // What went wrong is told by who waits for the answer.
            let _ = stream
                .read_exact(&mut word)
                .and_then(|()| stream.write_all(&word));
        }
    });
    answered("a connection", &network::tcp(&to(Kind::Tcp, port)))?;
    let domain = if six { Domain::IPV6 } else { Domain::IPV4 };
    let socket = Socket::new(domain, Type::DGRAM, None)?;
    socket.bind(&SocketAddr::new(address, 0).into())?;
    let local = socket.local_addr()?.as_socket();
    let port = local.map_or(0, |local| local.port());
    thread::spawn(move || {
        let mut buffer = [std::mem::MaybeUninit::uninit(); 64];
        // As above.
        let _ = socket
            .recv_from(&mut buffer)
            .and_then(|(_, from)| socket.send_to(super::WORD, &from));
    });
    answered("a datagram", &network::udp(&to(Kind::Udp, port)))?;
    if raw {
        answered("an echo request", &network::echo(&to(Kind::Raw, 0)))?;
    }
    Ok(())
}

fn answered(what: &str, report: &Report) -> io::Result<()> {
    if report.outcome == Outcome::Answered {
        return Ok(());
    }
    Err(io::Error::other(format!("{what}: {}", report.words())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_answers_where_there_are_no_rules_and_another_user_is_noticed() {
        let task = Task::new(Kind::Able, 5000);
        over_loopback(&task, false, false).unwrap();
        let own = geteuid().as_raw();
        is_user(own).unwrap();
        assert!(is_user(own + 1).is_err());
        files().unwrap();
        unix_socket().unwrap();
    }
}
