//! Whether a running service serves: each is asked in its own way.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;

use nftables::status::Status;

use crate::instance::Instance;

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
    UnixStream::connect(path)
        .err()
        .map(|refused| format!("{} does not answer: {refused}", path.display()))
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
    fn a_listener_is_told_from_a_connection() {
        let table = "  sl  local_address rem_address   st\n   0: 0100007F:20E2 00000000:0000 0A 0\n   1: 0100007F:1F90 0100007F:0050 01 0\n";
        assert!(table_has(table, 0x20E2));
        assert!(!table_has(table, 0x1F90));
    }
}
