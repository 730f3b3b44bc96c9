//! What has to be proven before anything of an agent starts: the kernel boundary, here and now.
//!
//! The gate names the status file that it goes by; this room reads that file itself and asks the same
//! judgement, [`policy::boundary`]. So no run starts on the gate's word alone, and none when the gate
//! saw the proof last and the watcher died since.
//!
//! An agent's own container has another wall: no network at all. [`wall`] asks for whichever there has to be.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use policy::boundary::{FRESH_MS, Here, Proof, STATUS_BYTES_MAX, judge};

/// The proof in this status file at this moment.
///
/// # Errors
/// In words, with the remedy: not readable, writable by others than root, or no proof.
pub fn fresh(path: &Path) -> Result<Proof, String> {
    fresh_by(path, 0)
}

/// What keeps an agent in, proven here and now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wall {
    /// There is no interface but loopback and no way out in any other form.
    NoNetwork,
    /// The kernel boundary.
    Boundary(Proof),
}

/// Nothing keeps an agent in, as far as can be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoWall {
    /// A sentence without an end.
    pub problem: String,
    /// What to do about it.
    pub remedy: String,
}

/// The wall around this very process: the boundary of a status file, or, without one, that there is no network.
///
/// # Errors
/// [`NoWall`]
pub fn wall(status: Option<&Path>) -> Result<Wall, NoWall> {
    match status {
        Some(path) => {
            let proven = fresh(path).and_then(|proof| refused_here().map(|()| proof));
            proven.map(Wall::Boundary)
        }
        .map_err(|problem| NoWall {
            problem: format!("the boundary is not proven: {problem}"),
            remedy: "start the boundary's container first, then the gate, then this one; mount its status here, \
                     read-only"
                .to_owned(),
        }),
        None => no_network(&std::fs::read_to_string("/proc/net/dev").unwrap_or_default()),
    }
}

/// That this kernel refuses this very user a datagram before it is sent. A namespace's number is given again once it is
/// gone, so that a status file of a moment ago may be another's.
#[allow(
    clippy::disallowed_methods,
    reason = "one empty datagram to an address that nobody has, to hear that it may not leave"
)]
fn refused_here() -> Result<(), String> {
    const NOBODY: (std::net::Ipv4Addr, u16) = (std::net::Ipv4Addr::new(192, 0, 2, 1), 9);
    let told = |error: std::io::Error| format!("this kernel could not be tried: {error}");
    let socket = std::net::UdpSocket::bind((std::net::Ipv4Addr::UNSPECIFIED, 0)).map_err(told)?;
    match socket.send_to(&[], NOBODY) {
        Ok(_) => Err("this kernel lets a datagram of this user leave".to_owned()),
        // Refused by a rule, or without any way to go.
        Err(error) => match error.raw_os_error() {
            Some(libc::EPERM | libc::ENETUNREACH) => Ok(()),
            Some(_) | None => Err(told(error)),
        },
    }
}

/// `text` is that of `/proc/net/dev`: two lines of headings, then one for each interface.
fn no_network(text: &str) -> Result<Wall, NoWall> {
    let names = text.lines().skip(2).filter_map(|line| line.split_once(':'));
    let names: Vec<&str> = names.map(|(name, _)| name.trim()).collect();
    // Those that the kernel makes in every namespace where it has their modules lead nowhere while they are down.
    let down = |name: &str| {
        let flags = std::fs::read_to_string(format!("/sys/class/net/{name}/flags"));
        let flags = flags.unwrap_or_default();
        let flags = flags.trim().trim_start_matches("0x");
        u32::from_str_radix(flags, 16).is_ok_and(|flags| flags & 1 == 0)
    };
    let made_by_itself = |name: &str| {
        const THESE: [&str; 7] = [
            "tunl0", "gre0", "gretap0", "erspan0", "sit0", "ip6tnl0", "ip6gre0",
        ];
        (THESE.contains(&name) || ["ip_vti0", "ip6_vti0"].contains(&name)) && down(name)
    };
    let others: Vec<&str> = names
        .iter()
        .copied()
        .filter(|name| *name != "lo" && !made_by_itself(name))
        .collect();
    let problem = match (names.is_empty(), others.is_empty()) {
        (true, _) => "the kernel does not show which networks it has".to_owned(),
        (false, true) => return Ok(Wall::NoNetwork),
        (false, false) => format!("it has a network ({})", others.join(", ")),
    };
    Err(NoWall {
        problem,
        remedy: "network_mode: none; or, with the boundary's container, network_mode: service:boundary and \
                 --boundary STATUS"
            .to_owned(),
    })
}

fn fresh_by(path: &Path, owner: u32) -> Result<Proof, String> {
    let shown = path.display();
    let text = read(path, owner).map_err(|problem| format!("{shown}: {problem}"))?;
    let here = here().map_err(|problem| format!("cannot tell where this process is: {problem}"))?;
    judge(&text, &here, FRESH_MS).map_err(|problem| format!("{problem} ({})", problem.remedy()))
}

fn read(path: &Path, owner: u32) -> Result<String, String> {
    let mut file = File::open(path).map_err(|error| error.to_string())?;
    let metadata = file.metadata().map_err(|error| error.to_string())?;
    if !metadata.is_file() || metadata.uid() != owner || metadata.mode() & 0o022 != 0 {
        return Err("can be written by others than root".to_owned());
    }
    let mut text = String::new();
    file.by_ref()
        .take(STATUS_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(|error| error.to_string())?;
    Ok(text)
}

fn here() -> std::io::Result<Here> {
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let clock = Duration::from(clock_gettime(ClockId::CLOCK_BOOTTIME)?);
    Ok(Here {
        boot_id: boot_id.trim().to_owned(),
        netns: std::fs::metadata("/proc/self/ns/net")?.ino(),
        boottime_ms: u64::try_from(clock.as_millis()).unwrap_or(u64::MAX),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn status(change: impl FnOnce(&mut serde_json::Value), mode: u32) -> Result<Proof, String> {
        let here = here().unwrap();
        let mut value = serde_json::json!({
            "version": 1, "ok": true, "boot_id": here.boot_id, "netns": here.netns,
            "boottime_ms": here.boottime_ms, "ruleset_hash": "abc", "scope": "agents",
            "table": "portcullis", "problem": null, "events": [],
        });
        change(&mut value);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("status.json");
        std::fs::write(&path, value.to_string()).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let owner = std::fs::metadata(&path).unwrap().uid();
        fresh_by(&path, owner)
    }

    #[test]
    fn a_namespace_with_nothing_but_loopback_is_a_wall() {
        let dev = |names: &[&str]| {
            let lines = names.iter().map(|name| format!("{name:>6}: 0 0 0\n"));
            format!(
                "Inter-| Receive\n face |bytes\n{}",
                lines.collect::<String>()
            )
        };
        assert_eq!(no_network(&dev(&["lo"])), Ok(Wall::NoNetwork));
        let problem = |names: &[&str]| no_network(&dev(names)).unwrap_err().problem;
        assert!(problem(&["lo", "eth0"]).contains("(eth0)"));
        assert!(problem(&["lo", "wlan0", "eth1"]).contains("(wlan0, eth1)"));
        assert!(no_network("").is_err(), "nothing is shown");
        assert!(wall(Some(Path::new("/nonexistent/status.json"))).is_err());
    }

    #[test]
    fn a_fresh_status_that_only_root_writes_is_proof() {
        assert!(status(|_| (), 0o644).is_ok());
        let writable = status(|_| (), 0o664).unwrap_err();
        assert!(writable.contains("others than root"), "{writable}");
        let stale = status(|status| status["boottime_ms"] = 1.into(), 0o644).unwrap_err();
        assert!(stale.contains("stale"), "{stale}");
        let missing = fresh(Path::new("/nonexistent/status.json")).unwrap_err();
        assert!(missing.contains("/nonexistent"), "{missing}");
    }
}
