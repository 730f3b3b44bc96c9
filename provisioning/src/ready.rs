//! Whether a running service serves: each is asked in its own way.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde::Deserialize;

use crate::instance::Instance;

/// The boundary's status counts while it is at most this old; its watch writes it every second.
const FRESH_MS: u64 = 5_000;

/// What `portcullis-boundary watch` says, as far as we read it.
#[derive(Debug, Clone, Deserialize)]
pub struct BoundaryStatus {
    pub ok: bool,
    pub boot_id: String,
    pub netns: u64,
    /// Milliseconds since boot, suspended time included.
    pub boottime_ms: u64,
    pub ruleset_hash: String,
    pub scope: String,
    pub problem: Option<String>,
}

/// The boundary's status, if it is proven: good, of this boot and network namespace, and fresh.
///
/// # Errors
/// Why it is not proven.
pub fn boundary(instance: &Instance) -> Result<BoundaryStatus, String> {
    let path = instance.layout.boundary_status();
    let text = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let status: BoundaryStatus =
        serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    let now = Now::read().ok_or("this host's boot id, uptime or namespace cannot be read")?;
    match judge(&status, &now) {
        None => Ok(status),
        Some(problem) => Err(problem),
    }
}

/// What a status is held against.
#[derive(Debug)]
struct Now {
    boot_id: String,
    netns: u64,
    boottime_ms: u64,
}

impl Now {
    fn read() -> Option<Self> {
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let uptime = fs::read_to_string("/proc/uptime").ok()?;
        // "12345.67 …", seconds since boot with two decimals.
        let (seconds, hundredths) = uptime.split_whitespace().next()?.split_once('.')?;
        let boottime_ms =
            seconds.parse::<u64>().ok()? * 1000 + hundredths.parse::<u64>().ok()? * 10;
        let netns = fs::metadata("/proc/self/ns/net").ok()?.ino();
        Some(Self {
            boot_id: boot_id.trim().to_owned(),
            netns,
            boottime_ms,
        })
    }
}

fn judge(status: &BoundaryStatus, now: &Now) -> Option<String> {
    if !status.ok {
        return Some(
            status
                .problem
                .clone()
                .unwrap_or_else(|| "the rules are not as they should be".to_owned()),
        );
    }
    if status.boot_id != now.boot_id {
        return Some("its status is from another boot".to_owned());
    }
    if status.netns != now.netns {
        return Some("its status is from another network namespace".to_owned());
    }
    let age = now.boottime_ms.saturating_sub(status.boottime_ms);
    (age > FRESH_MS).then(|| {
        format!(
            "its status is {} s old; nobody watches the rules",
            age / 1000
        )
    })
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

    fn status() -> BoundaryStatus {
        BoundaryStatus {
            ok: true,
            boot_id: "b".into(),
            netns: 7,
            boottime_ms: 10_000,
            ruleset_hash: String::new(),
            scope: "agents".into(),
            problem: None,
        }
    }

    fn now() -> Now {
        Now {
            boot_id: "b".into(),
            netns: 7,
            boottime_ms: 12_000,
        }
    }

    #[test]
    fn only_a_good_fresh_status_of_this_boot_and_namespace_counts() {
        assert_eq!(judge(&status(), &now()), None);
        assert!(
            judge(
                &BoundaryStatus {
                    ok: false,
                    ..status()
                },
                &now()
            )
            .is_some()
        );
        assert!(
            judge(
                &status(),
                &Now {
                    boot_id: "c".into(),
                    ..now()
                }
            )
            .is_some()
        );
        assert!(judge(&status(), &Now { netns: 8, ..now() }).is_some());
        assert!(
            judge(
                &status(),
                &Now {
                    boottime_ms: 15_001,
                    ..now()
                }
            )
            .is_some()
        );
    }

    #[test]
    fn a_listener_is_told_from_a_connection() {
        let table = "  sl  local_address rem_address   st\n   0: 0100007F:20E2 00000000:0000 0A 0\n   1: 0100007F:1F90 0100007F:0050 01 0\n";
        assert!(table_has(table, 0x20E2));
        assert!(!table_has(table, 0x1F90));
    }
}
