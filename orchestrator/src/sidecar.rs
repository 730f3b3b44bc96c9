//! The first process of somebody's own agent container: looks at where it is, refuses what would make the gate worthless,
//! and then becomes (or looks after) the command.
//!
//! Only this process can see what only the agent's container shows: its user and capabilities, what is mounted, which
//! network it is in. What it sees is a [`Facts`]; [`refusals`] judges that. What it cannot see stays with whoever writes the
//! compose file; `docs/sidecar.md` says what that is.

mod facts;
mod mounts;

use std::path::{Path, PathBuf};

use crate::environment;
use crate::proof::{self, Wall};

pub use facts::{Facts, Ids};
pub use mounts::{Find, Found};

/// Where the gate's volume is mounted unless `--share` says otherwise.
pub const SHARE: &str = "/portcullis";
/// The gate as clients in the container see it.
pub const GATE: &str = "http://127.0.0.1:3128";

/// What the entrypoint was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The gate's volume.
    pub share: PathBuf,
    /// The boundary's status file, where the container shares a network namespace with the gate; nothing where it has none.
    pub boundary: Option<PathBuf>,
}

/// One reason not to start, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// A sentence without an end.
    pub problem: String,
    /// A line for the compose file, or for whoever writes it.
    pub remedy: String,
}

impl Refusal {
    fn new(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            problem: problem.into(),
            remedy: remedy.into(),
        }
    }
}

impl Place {
    /// The socket that leads to the gate.
    #[must_use]
    pub fn gate(&self) -> PathBuf {
        self.share.join("gate.sock")
    }

    /// Everything that stands against starting an agent here; nothing when it may start. The last look is at what keeps it
    /// in: the proof that the orchestrator and `exec` ask for, or that there is no network at all.
    #[must_use]
    pub fn refusals(&self) -> Vec<Refusal> {
        let mut refusals = match Facts::look(self) {
            Ok(facts) => refusals(&facts, self),
            Err(error) => vec![Refusal::new(
                format!("it cannot be told where this process is: {error}"),
                "give the container its /proc",
            )],
        };
        match proof::wall(self.boundary.as_deref()) {
            Ok(Wall::NoNetwork | Wall::Boundary(_)) => {}
            Err(problem) => refusals.push(Refusal::new(problem.problem, problem.remedy)),
        }
        refusals
    }

    /// The variables that the command is started with beside its own: the gate's win, and a credential's place is filled
    /// only where nothing is.
    pub fn variables<'a>(
        &self,
        is_set: impl Fn(&str) -> bool + 'a,
    ) -> impl Iterator<Item = (String, String)> + 'a {
        let share = self.share.display().to_string();
        let mut table = environment::client_families_at(GATE, &share, &self.share);
        if self.share.join("gitconfig").exists() {
            let path = format!("{share}/gitconfig");
            table.push(("GIT_CONFIG_SYSTEM".to_owned(), path));
        }
        table.push(("PORTCULLIS".to_owned(), "1".to_owned()));
        let placeholders = environment::placeholders().into_iter();
        table
            .into_iter()
            .chain(placeholders.filter(move |(name, _)| !is_set(name)))
    }
}

/// The files `env` (as `docker run --env-file` takes it) and `env.sh` (for a shell) and what stands beside them, for clients
/// that see the volume at `share` and the gate at `gate`: written into the image, for [`GATE`].
#[must_use]
pub fn files(gate: &str, share: &str) -> Vec<(&'static str, String)> {
    let hosts: [&str; 0] = [];
    let mut files = environment::files::client_files(gate, share, &hosts);
    let exist: Vec<&str> = files.iter().map(|(name, _)| *name).collect();
    let table = table(gate, share, &exist);
    files.push(("env", lines(&table)));
    let quoted = |value: &str| value.replace('\'', "'\\''");
    let lines = table
        .iter()
        .map(|(name, value)| format!("export {name}='{}'\n", quoted(value)));
    files.push(("env.sh", lines.collect()));
    files
}

/// What `env` would say to clients that see the files of the image at `share`, where some speak of [`GATE`], and the gate at
/// `gate`.
#[must_use]
pub fn env(gate: &str, share: &str) -> String {
    let hosts: [&str; 0] = [];
    let theirs = environment::files::client_files(gate, share, &hosts);
    let ours = environment::files::client_files(GATE, share, &hosts);
    let same = ours.iter().filter(|file| theirs.contains(file));
    let exist: Vec<&str> = same.map(|(name, _)| *name).collect();
    lines(&table(gate, share, &exist))
}

fn table(gate: &str, share: &str, exist: &[&str]) -> Vec<(String, String)> {
    let mut table = environment::client_families_with(gate, share, &|name| exist.contains(&name));
    table.push(("GIT_CONFIG_SYSTEM".to_owned(), format!("{share}/gitconfig")));
    table.push(("PORTCULLIS".to_owned(), "1".to_owned()));
    table.sort();
    table
}

fn lines(table: &[(String, String)]) -> String {
    let lines = table.iter();
    lines
        .map(|(name, value)| format!("{name}={value}\n"))
        .collect()
}

/// The judgement of everything but the network.
fn refusals(facts: &Facts, place: &Place) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    let ids = facts.ids;
    if ids.uids().contains(&0) {
        refusals.push(Refusal::new(
            "it runs as root",
            "user: \"1000:1000\", and that uid under [[listen.identity]] of proxy.toml",
        ));
    } else if ids.gids().contains(&0) {
        refusals.push(Refusal::new(
            "it runs in root's group",
            "user: \"1000:1000\": a uid alone leaves the group at 0",
        ));
    }
    match facts.gate_uid {
        Some(gate) if ids.uids().contains(&gate) => refusals.push(Refusal::new(
            format!("it runs as uid {gate}, which is the gate's own"),
            "give the agent a user of its own: user: \"1000:1000\"",
        )),
        Some(_) => {}
        None => refusals.push(Refusal::new(
            format!("there is no gate at {}", place.gate().display()),
            "mount the gate's volume there, read-only, and depends_on: {gate: {condition: service_healthy}}",
        )),
    }
    let named = |bits: u64| facts::capability_names(bits).join(", ");
    let held = facts.capabilities.iter().filter(|(_, bits)| *bits != 0);
    if let Some((set, bits)) = held.clone().next() {
        refusals.push(Refusal::new(
            format!("it has capabilities ({set}: {})", named(*bits)),
            "cap_drop: [ALL], no cap_add, and not privileged",
        ));
    }
    if facts.host_network {
        refusals.push(Refusal::new(
            "it is in the host's network (network_mode: host)",
            "network_mode: none, or service:boundary with the boundary's container",
        ));
    }
    if facts.traced_by_gate_pids {
        refusals.push(Refusal::new(
            "it sees the gate's processes (pid: host, or the gate's own)",
            "take the pid: line away",
        ));
    }
    for found in &facts.found {
        refusals.push(of_found(found));
    }
    refusals
}

fn of_found(found: &Found) -> Refusal {
    let path = found.path.display();
    match found.what {
        Find::Engine => Refusal::new(
            format!("{path} is a container engine's socket: whoever has it is root on the host"),
            "take that volume away from the agent",
        ),
        Find::Control => Refusal::new(
            format!(
                "{path} is within reach: the gate's control socket, or one that no agent needs"
            ),
            "keep [control] socket on a volume or tmpfs that the gate alone mounts",
        ),
        Find::Key => Refusal::new(
            format!("{path} is within reach: the key of the gate's certificate authority"),
            "keep [ca] directory on a volume that the gate alone mounts",
        ),
        Find::WritableShare => Refusal::new(
            format!("{path} can be written from here"),
            "mount it read-only: portcullis:/portcullis:ro",
        ),
    }
}

/// What a container's own `/etc/resolv.conf` should say where the relay answers names; the sentence to warn with if not.
#[must_use]
pub fn resolver_warning(resolv_conf: &Path) -> Option<String> {
    let text = std::fs::read_to_string(resolv_conf).unwrap_or_default();
    let first = text
        .lines()
        .filter_map(|line| line.strip_prefix("nameserver"))
        .map(str::trim)
        .next();
    let loopback = |name: &str| {
        name.parse()
            .is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
    };
    (!first.is_some_and(loopback)).then(|| {
        format!(
            "{} does not name 127.0.0.1, so programs that ignore proxy variables find no names\n  \
             hint: dns: [127.0.0.1]",
            resolv_conf.display()
        )
    })
}

#[cfg(test)]
mod tests;
