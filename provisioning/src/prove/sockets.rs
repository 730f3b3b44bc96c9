//! Sockets in a process's hands that belong to somebody else, of every family and of whatever network they were made in.
//!
//! A socket is a file whose owner is the user that the kernel judges its packets by. So the descriptor itself tells, also of
//! families that no table lists (vsock) and of sockets that were made in another network namespace; the tables of the process's
//! own network only say what it is.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;

use super::process::Process;

/// Tables below `/proc/PID/net`, and which field of a line is the inode; from the end where names may hold blanks.
const TABLES: [(&str, usize); 13] = [
    ("tcp", 9),
    ("tcp6", 9),
    ("udp", 9),
    ("udp6", 9),
    ("udplite", 9),
    ("udplite6", 9),
    ("raw", 9),
    ("raw6", 9),
    ("icmp", 9),
    ("icmp6", 9),
    ("packet", 8),
    ("netlink", 9),
    ("unix", 6),
];
const UNIX: &str = "unix";
/// Streams of whoever started it: their end is a log's, or a person's.
const STANDARD: [&str; 3] = ["0", "1", "2"];

/// Sockets that this process holds and that belong to a user of whom `foreign` is true, in words. Unix sockets that are its
/// standard streams are left out: a log is written over them.
///
/// # Errors
/// When the process is there and its descriptors cannot be read, in words.
pub fn of_others(process: &Process, foreign: impl Fn(u32) -> bool) -> Result<Vec<String>, String> {
    let directory = format!("/proc/{}/fd", process.pid);
    let entries = match fs::read_dir(&directory).and_then(Iterator::collect::<io::Result<Vec<_>>>) {
        Ok(entries) => entries,
        Err(error) if is_gone(&error) => return Ok(Vec::new()),
        Err(error) => return Err(format!("the descriptors of {}: {error}", process.shown())),
    };
    let families = families(process.pid);
    let mut standard = Vec::new();
    let mut found: Vec<(String, String)> = Vec::new();
    for entry in entries {
        let Some(inode) = fs::read_link(entry.path()).ok().and_then(|link| {
            let link = link.to_str()?.strip_prefix("socket:[")?;
            Some(link.strip_suffix(']')?.to_owned())
        }) else {
            continue;
        };
        let uid = match fs::metadata(entry.path()) {
            Ok(metadata) => metadata.uid(),
            Err(error) if is_gone(&error) => continue,
            Err(error) => return Err(format!("a socket of {}: {error}", process.shown())),
        };
        if entry
            .file_name()
            .to_str()
            .is_some_and(|name| STANDARD.contains(&name))
        {
            standard.push(inode.clone());
        }
        if foreign(uid) {
            let family = families.get(&inode).copied();
            let of =
                family.unwrap_or("unlisted (another network's, or of a family without a table)");
            found.push((inode, format!("{of} socket of uid {uid}")));
        }
    }
    found.retain(|(inode, _)| families.get(inode) != Some(&UNIX) || !standard.contains(inode));
    let mut words: Vec<String> = found.into_iter().map(|(_, words)| words).collect();
    words.dedup();
    Ok(words)
}

/// By inode the table that lists it, in the network of that process.
fn families(pid: u32) -> HashMap<String, &'static str> {
    let mut families = HashMap::new();
    for (table, field) in TABLES {
        let text = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        let inodes = text
            .lines()
            .skip(1)
            .filter_map(|line| line.split_whitespace().nth(field));
        families.extend(inodes.map(|inode| (inode.to_owned(), table)));
    }
    families
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(nix::errno::Errno::ESRCH as i32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;
    use std::os::fd::{AsRawFd as _, OwnedFd};
    use std::os::unix::net::UnixStream;
    use std::process::Stdio;

    use nix::sys::socket::{AddressFamily, NetlinkAddr, SockFlag, SockType, bind, socket};

    use crate::prove::process::Marked;

    fn datagrams(at: &str) -> OwnedFd {
        let at: SocketAddr = at.parse().unwrap();
        let domain = socket2::Domain::for_address(at);
        let socket = socket2::Socket::new(domain, socket2::Type::DGRAM, None).unwrap();
        socket.bind(&at.into()).unwrap();
        socket.into()
    }

    fn held_at(descriptor: u8, socket: OwnedFd) -> Vec<String> {
        let mut command = Marked::program("sh");
        // The shell moves it to where it is wanted, and waits.
        command.args(["-c", &format!("exec sleep 60 {descriptor}<&0 0</dev/null")]);
        if descriptor == 0 {
            command = Marked::program("sleep");
            command.arg("60");
        }
        let child = Marked::begin(command.stdin(Stdio::from(socket))).unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        loop {
            let process = child.seen().unwrap();
            let program = process.program().unwrap_or_default();
            if program.ends_with("sleep") || std::time::Instant::now() > deadline {
                return of_others(&process, |_| true).unwrap();
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    #[test]
    fn a_socket_of_every_family_is_seen_by_its_descriptor() {
        let own = nix::unistd::getuid().as_raw();
        let open = |family, kind| socket(family, kind, SockFlag::SOCK_CLOEXEC, None);
        let mut sockets: Vec<(&str, OwnedFd)> = vec![
            ("udp", datagrams("127.0.0.1:0")),
            ("udp6", datagrams("[::1]:0")),
            ("netlink", {
                // The kernel lists those that have an address.
                let socket = open(AddressFamily::Netlink, SockType::Raw).unwrap();
                bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0)).unwrap();
                socket
            }),
        ];
        for (name, family, kind) in [
            ("packet", AddressFamily::Packet, SockType::Raw),
            ("unlisted", AddressFamily::Vsock, SockType::Stream),
        ] {
            // A kernel without it, or a user without the right to it, has none to hold.
            sockets.extend(open(family, kind).ok().map(|socket| (name, socket)));
        }
        for (name, socket) in sockets {
            let found = held_at(0, socket);
            assert_eq!(found.len(), 1, "{name}: {found:?}");
            let whose = format!("socket of uid {own}");
            assert!(
                found[0].starts_with(name) && found[0].ends_with(&whose),
                "{name}: {found:?}"
            );
        }
        // A unix socket as a standard stream is a log's; elsewhere it is somebody's.
        let pair = || UnixStream::pair().unwrap();
        let (one, other) = pair();
        assert_eq!(held_at(0, one.into()), Vec::<String>::new());
        drop(other);
        let (one, other) = pair();
        assert_eq!(
            held_at(7, one.into()),
            [format!("unix socket of uid {own}")]
        );
        drop(other);
        // Control: nobody else's.
        let child = Marked::begin(Marked::program("sleep").arg("60")).unwrap();
        let process = child.seen().unwrap();
        assert_eq!(of_others(&process, |_| true), Ok(Vec::new()));
    }

    #[test]
    fn a_process_that_is_gone_holds_nothing() {
        let child = Marked::begin(Marked::program("sleep").arg("60")).unwrap();
        let process = child.seen().unwrap();
        drop(child);
        assert_eq!(of_others(&process, |_| true), Ok(Vec::new()));
    }
}
