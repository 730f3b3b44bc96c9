//! Whether a running service serves: each is asked in its own way.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use nftables::status::Status;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::instance::Instance;

/// How long a socket may have no room for a connection.
const PATIENCE: Duration = Duration::from_secs(10);

/// The boundary's status, if it proves that the kernel's rules are the configured ones, here and now.
///
/// # Errors
/// Why it does not.
pub fn boundary(instance: &Instance) -> Result<Status, String> {
    let status = Status::read(&instance.layout.boundary_status())
        .map_err(|error| crate::output::chain(&error))?;
    match status.weakness() {
        Ok(None) => Ok(status),
        Ok(Some(weakness)) => Err(weakness),
        Err(error) => Err(format!("the status cannot be judged: {error}")),
    }
}

/// What keeps the service from serving; `None` when it does.
#[must_use]
pub fn problem(instance: &Instance, key: &str) -> Option<String> {
    let layout = &instance.layout;
    match key {
        "boundary" => boundary(instance).err(),
        "stand-in" => {
            let port = instance.record.stand_in_port?;
            (!listens(port)).then(|| format!("nothing listens on 127.0.0.1:{port}"))
        }
        "proxy" => socket(&layout.control_socket()),
        "orchestrator" => socket(&layout.api_socket()).or_else(|| socket(&layout.board_socket())),
        _ => None,
    }
}

fn socket(path: &Path) -> Option<String> {
    unanswered(path, PATIENCE)
}

/// Why nothing takes a connection; that there is no room for one more, if that lasts so long.
fn unanswered(path: &Path, patience: Duration) -> Option<String> {
    let connected = Socket::new(Domain::UNIX, Type::STREAM, None).and_then(|socket| {
        // A connection to a full queue waits as long as a write does.
        socket.set_write_timeout(Some(patience))?;
        socket.connect(&SockAddr::unix(path)?)
    });
    let refused = connected.err()?;
    let path = path.display();
    Some(match refused.kind() {
        ErrorKind::WouldBlock => format!(
            "{path} does not answer: its queue is full, and nothing takes a connection from it"
        ),
        _ => format!("{path} does not answer: {refused}"),
    })
}

/// Whether something listens on that loopback port, as the kernel lists it: no connection is made for it.
fn listens(port: u16) -> bool {
    fs::read_to_string("/proc/net/tcp").is_ok_and(|table| table_has(&table, port))
}

/// Lines are `sl local_address rem_address st …`; 0A is LISTEN, addresses are hexadecimal in host byte order.
fn table_has(table: &str, port: u16) -> bool {
    let address = format!(":{port:04X}");
    table.lines().any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let local = fields.next().is_some_and(|local| local.ends_with(&address));
        local && fields.nth(1) == Some("0A")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_nothing_is_taken_from_is_told_once_its_queue_is_full() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let patience = Duration::from_millis(50);
        let none = unanswered(&path, patience).unwrap();
        assert!(none.contains("No such file"), "{none}");
        let listener = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        listener.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        listener.listen(0).unwrap();
        assert_eq!(unanswered(&path, patience), None, "there is room for one");
        let full = unanswered(&path, patience).unwrap();
        assert!(full.contains("queue is full"), "{full}");
        listener.accept().unwrap();
        assert_eq!(unanswered(&path, patience), None, "there is room again");
        drop(listener);
        let gone = unanswered(&path, patience).unwrap();
        assert!(gone.contains("refused"), "{gone}");
    }

    #[test]
    fn a_listener_is_told_from_a_connection() {
        let table = "  sl  local_address rem_address   st\n   0: 0100007F:20E2 00000000:0000 0A 0\n   1: 0100007F:1F90 0100007F:0050 01 0\n";
        assert!(table_has(table, 0x20E2));
        assert!(!table_has(table, 0x1F90));
    }
}
