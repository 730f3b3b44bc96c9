//! What the entrypoint sees of its own container.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::Place;
use super::mounts::{self, Found};

/// Seen in the first network namespace of a machine and in no other.
const HOST_ONLY: &str = "/proc/sys/net/core/netdev_budget";

/// What decides whether an agent may start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// Of this process.
    pub ids: Ids,
    /// `Permitted` and so on, with their bits.
    pub capabilities: Vec<(&'static str, u64)>,
    /// Who owns the gate's socket.
    pub gate_uid: Option<u32>,
    /// Whether this is the machine's own network namespace.
    pub host_network: bool,
    /// Whether another process of the gate's uid is to be seen.
    pub traced_by_gate_pids: bool,
    /// Mounted things that no agent may have.
    pub found: Vec<Found>,
}

/// Real, effective, saved and file system ids.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ids {
    uids: [u32; 4],
    gids: [u32; 4],
}

impl Ids {
    #[cfg(test)]
    pub(super) fn of(uid: u32, gid: u32) -> Self {
        Self {
            uids: [uid; 4],
            gids: [gid; 4],
        }
    }

    /// Users.
    #[must_use]
    pub fn uids(&self) -> &[u32; 4] {
        &self.uids
    }

    /// Primary groups.
    #[must_use]
    pub fn gids(&self) -> &[u32; 4] {
        &self.gids
    }
}

impl Facts {
    /// Looks around.
    ///
    /// # Errors
    /// `/proc` does not say.
    pub fn look(place: &Place) -> io::Result<Self> {
        let status = fs::read_to_string("/proc/self/status")?;
        let table = fs::read_to_string("/proc/self/mountinfo")?;
        let gate_uid = fs::symlink_metadata(place.gate())
            .ok()
            .map(|found| found.uid());
        Ok(Self {
            gate_uid,
            host_network: Path::new(HOST_ONLY).exists(),
            traced_by_gate_pids: gate_uid.is_some_and(sees_processes_of),
            found: mounts::search(&table, place),
            ..Self::of_status(&status).ok_or_else(|| io::Error::other("/proc/self/status"))?
        })
    }

    /// Ids and capabilities from the text of `/proc/PID/status`.
    fn of_status(text: &str) -> Option<Self> {
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.strip_prefix(':').map(str::trim)
        };
        let four = |name| {
            let numbers = field(name)?.split_whitespace().map(str::parse);
            let numbers: Vec<u32> = numbers.collect::<Result<_, _>>().ok()?;
            numbers.try_into().ok()
        };
        let set = |name| u64::from_str_radix(field(name)?, 16).ok();
        Some(Self {
            ids: Ids {
                uids: four("Uid")?,
                gids: four("Gid")?,
            },
            capabilities: vec![
                ("effective", set("CapEff")?),
                ("permitted", set("CapPrm")?),
                ("inheritable", set("CapInh")?),
                ("ambient", set("CapAmb")?),
                ("bounding", set("CapBnd")?),
            ],
            ..Self::default()
        })
    }
}

fn sees_processes_of(uid: u32) -> bool {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter(|entry| {
            let name = entry.file_name();
            name.to_str()
                .is_some_and(|name| name.parse::<u32>().is_ok())
        })
        .any(|entry| entry.metadata().is_ok_and(|found| found.uid() == uid))
}

/// Those that people have in compose files, and the rest by number.
pub(super) fn capability_names(bits: u64) -> Vec<String> {
    const NAMES: [&str; 41] = [
        "CHOWN",
        "DAC_OVERRIDE",
        "DAC_READ_SEARCH",
        "FOWNER",
        "FSETID",
        "KILL",
        "SETGID",
        "SETUID",
        "SETPCAP",
        "LINUX_IMMUTABLE",
        "NET_BIND_SERVICE",
        "NET_BROADCAST",
        "NET_ADMIN",
        "NET_RAW",
        "IPC_LOCK",
        "IPC_OWNER",
        "SYS_MODULE",
        "SYS_RAWIO",
        "SYS_CHROOT",
        "SYS_PTRACE",
        "SYS_PACCT",
        "SYS_ADMIN",
        "SYS_BOOT",
        "SYS_NICE",
        "SYS_RESOURCE",
        "SYS_TIME",
        "SYS_TTY_CONFIG",
        "MKNOD",
        "LEASE",
        "AUDIT_WRITE",
        "AUDIT_CONTROL",
        "SETFCAP",
        "MAC_OVERRIDE",
        "MAC_ADMIN",
        "SYSLOG",
        "WAKE_ALARM",
        "BLOCK_SUSPEND",
        "AUDIT_READ",
        "PERFMON",
        "BPF",
        "CHECKPOINT_RESTORE",
    ];
    (0..64)
        .filter(|number| bits >> number & 1 == 1)
        .map(|number| match NAMES.get(number) {
            Some(name) => (*name).to_owned(),
            None => number.to_string(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_to_the_last_set() {
        let text = "Name:\tx\nUid:\t1000\t1001\t1002\t1003\nGid:\t7\t7\t7\t7\nCapInh:\t0000000000000000\n\
                    CapPrm:\t0000000000001080\nCapEff:\t0000000000000000\nCapBnd:\t8000000000000000\n\
                    CapAmb:\t0000000000000000\n";
        let facts = Facts::of_status(text).unwrap();
        assert_eq!(facts.ids.uids(), &[1000, 1001, 1002, 1003]);
        assert_eq!(
            capability_names(facts.capabilities[1].1),
            ["SETUID", "NET_ADMIN"]
        );
        assert_eq!(capability_names(facts.capabilities[4].1), ["63"]);
        assert_eq!(Facts::of_status(&text.replace("CapAmb", "CapXyz")), None);
    }
}
