//! What LXC is told about a run: rendered as its configuration file, and nothing else.
//!
//! Every value that is not ours (paths) is escaped for its place; arguments and environment of the
//! command travel to the relay instead (`relay::control`), because a configuration line could not
//! carry a newline. Example (shortened):
//! ```text
//! lxc.rootfs.options = ro,nosuid,nodev
//! lxc.idmap = u 0 100000 1024
//! lxc.net.0.type = empty
//! lxc.cap.keep = none
//! lxc.no_new_privs = 1
//! lxc.seccomp.profile = /…/run.seccomp
//! lxc.mount.entry = /var/lib/…/workspaces/RUN work none rbind,rw 0 0
//! ```

use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::cgroup::CgroupRoot;
use super::slices::AGENT_ID;
use super::{EngineError, RunSpec};

/// Where the relay is inside.
pub(super) const RELAY: &str = "/opt/portcullis/relay";

/// Forbids set-user-id programs and device files in the workspace.
const REMOUNT: &str = "/bin/mount -o remount,bind,rw,nosuid,nodev \"$LXC_ROOTFS_MOUNT/work\"";

/// Lets the relay listen on low ports, which has no privilege either. By a command and not by
/// `lxc.sysctl`, which comes when `/proc/sys` is read-only already; the network namespace that a
/// process is in is the one whose setting it writes.
const LOW_PORTS: &str = "echo 0 > /proc/sys/net/ipv4/ip_unprivileged_port_start";

/// Host files that every container uses.
#[derive(Debug)]
pub(super) struct Fixed<'a> {
    pub(super) rootfs: &'a Path,
    pub(super) relay: &'a Path,
    pub(super) seccomp: &'a Path,
    /// The run's own system configuration of git.
    pub(super) gitconfig: &'a Path,
    pub(super) cgroups: &'a CgroupRoot,
    /// Mount points beneath `/usr`, which a user namespace may not leave out.
    pub(super) usr_mounts: &'a [PathBuf],
}

/// The configuration of one run's container.
///
/// # Errors
/// A path cannot be written into a configuration line.
pub(super) fn render(spec: &RunSpec, fixed: &Fixed<'_>) -> Result<String, EngineError> {
    let mut config = Config::default();
    let memory = spec.limits.memory_bytes;
    config.set("lxc.uts.name", hostname(spec.run.as_str()));
    config.set("lxc.rootfs.path", format!("dir:{}", plain(fixed.rootfs)?));
    // Not `lxc.rootfs.mount`: where AppArmor confines lxc-start (Debian, Ubuntu), LXC's own mount point is the only
    // one that it may assemble a tree on. Every monitor has a mount namespace of its own.
    //
    // The profile that LXC would choose is only there where somebody has loaded it, and a start without it fails.
    config.set("lxc.apparmor.profile", "unconfined");
    config.set("lxc.rootfs.options", "ro,nosuid,nodev");
    config.set("lxc.rootfs.managed", "0");
    for kind in ["u", "g"] {
        config.set(
            "lxc.idmap",
            format!("{kind} 0 {} {}", spec.slice.first, spec.slice.count),
        );
    }
    config.set("lxc.net.0.type", "empty");
    config.set("lxc.net.0.flags", "up");
    config.set("lxc.init.uid", AGENT_ID);
    config.set("lxc.init.gid", AGENT_ID);
    config.set("lxc.cap.keep", "none");
    config.set("lxc.no_new_privs", "1");
    config.set("lxc.seccomp.profile", plain(fixed.seccomp)?);
    // Without this LXC skips the profile, silently, when it is itself under a filter.
    config.set("lxc.seccomp.allow_nesting", "1");
    config.set("lxc.console.path", "none");
    config.set("lxc.tty.max", "0");
    config.set("lxc.pty.max", "256");
    config.set("lxc.autodev", "1");
    config.set("lxc.mount.auto", "proc:mixed sys:ro");
    for (key, value) in fixed.cgroups.limits(spec.limits) {
        config.set(&key, value);
    }

    let usr = if fixed.usr_mounts.is_empty() {
        "bind,ro,nosuid,nodev"
    } else {
        "rbind,ro,nosuid,nodev"
    };
    config.bind(Path::new("/usr"), "/usr", usr)?;
    // The options of a recursive bind reach its top alone.
    for mount in fixed.usr_mounts {
        config.bind(mount, &field(mount)?, "rbind,ro,nosuid,nodev")?;
    }
    config.bind(fixed.relay, RELAY, "bind,ro,nosuid,nodev")?;
    config.bind(
        &spec.gate_socket_dir,
        "/run/portcullis",
        "bind,ro,nosuid,nodev,noexec",
    )?;
    config.bind(
        &spec.trust_dir,
        "/opt/portcullis/trust",
        "bind,ro,nosuid,nodev,noexec",
    )?;
    config.bind(
        fixed.gitconfig,
        "/etc/gitconfig",
        "bind,ro,nosuid,nodev,noexec",
    )?;
    let bundle = spec.trust_dir.join("bundle.pem");
    if bundle.exists() {
        let store = "/etc/ssl/certs/ca-certificates.crt";
        config.bind(&bundle, store, "bind,ro,nosuid,nodev,noexec")?;
    }
    if let Some(bundle) = &spec.bundle {
        config.bind(bundle, "/opt/agent", "rbind,ro,nosuid,nodev")?;
    }
    // LXC applies the other options of a bind only together with `ro`; for the one writable bind a
    // command does, as the container's root and before the container's own rules hold. If it
    // fails, so does the start.
    config.bind(&spec.workspace, "/work", "rbind,rw")?;
    config.set("lxc.hook.version", "1");
    config.set("lxc.hook.mount", REMOUNT);
    config.set("lxc.hook.mount", LOW_PORTS);
    config.tmpfs("/tmp", &format!("size={memory},mode=1777"));
    let owner = format!("size={memory},mode=0700,uid={AGENT_ID},gid={AGENT_ID}");
    config.tmpfs("/home/agent", &owner);
    config.tmpfs(
        "/dev/shm",
        &format!("size={},mode=1777,create=dir", memory / 2),
    );
    Ok(config.text)
}

/// A hostname that names the run: the first part of its id.
fn hostname(run: &str) -> String {
    let short: String = run
        .chars()
        .take_while(char::is_ascii_alphanumeric)
        .take(12)
        .collect();
    format!("run-{}", short.to_ascii_lowercase())
}

#[derive(Default)]
struct Config {
    text: String,
}

impl Config {
    fn set(&mut self, key: &str, value: impl std::fmt::Display) {
        // Writing to a String cannot fail.
        let _infallible = writeln!(self.text, "{key} = {value}");
    }

    fn bind(&mut self, from: &Path, to: &str, options: &str) -> Result<(), EngineError> {
        let to = to.trim_start_matches('/');
        self.set(
            "lxc.mount.entry",
            format!("{} {to} none {options} 0 0", field(from)?),
        );
        Ok(())
    }

    fn tmpfs(&mut self, to: &str, options: &str) {
        let to = to.trim_start_matches('/');
        self.set(
            "lxc.mount.entry",
            format!("tmpfs {to} tmpfs rw,nosuid,nodev,{options} 0 0"),
        );
    }
}

/// An absolute path for the rest of a line.
fn plain(path: &Path) -> Result<&str, EngineError> {
    let refused = |why: &str| EngineError::Refused(format!("{} {why}", path.display()));
    let text = path.to_str().ok_or_else(|| refused("is not UTF-8"))?;
    if !path.is_absolute() {
        return Err(refused("is not an absolute path"));
    }
    if text.chars().any(char::is_control) {
        return Err(refused("contains a control character"));
    }
    Ok(text)
}

/// An absolute path as one field of a mount table line.
fn field(path: &Path) -> Result<String, EngineError> {
    Ok(plain(path)?
        .replace('\\', "\\134")
        .replace(' ', "\\040")
        .replace('#', "\\043"))
}

#[cfg(test)]
mod tests {
    use super::super::{Limits, Slice};
    use super::*;

    fn spec(workspace: &str) -> RunSpec {
        RunSpec {
            run: "0190-abc".parse().unwrap(),
            slice: Slice {
                first: 100_000,
                count: 1024,
            },
            argv: vec!["true".into()],
            env: vec![],
            workspace: workspace.into(),
            bundle: None,
            gate_socket_dir: "/run/portcullis/runs/x".into(),
            trust_dir: "/nonexistent/trust".into(),
            git_hosts: vec![],
            limits: Limits {
                memory_bytes: 1 << 20,
                pids: 7,
            },
            stdin: vec![],
            log: "/dev/null".into(),
        }
    }

    fn rendered(workspace: &str) -> Result<String, EngineError> {
        let cgroups = CgroupRoot::V2 {
            root: "/sys/fs/cgroup/x".into(),
        };
        let fixed = Fixed {
            rootfs: Path::new("/rootfs"),
            relay: Path::new("/relay"),
            seccomp: Path::new("/seccomp"),
            gitconfig: Path::new("/gitconfig"),
            cgroups: &cgroups,
            usr_mounts: &[PathBuf::from("/usr/share/more")],
        };
        render(&spec(workspace), &fixed)
    }

    #[test]
    fn the_container_is_told_to_have_nothing() {
        let text = rendered("/ws").unwrap();
        for line in [
            "lxc.uts.name = run-0190",
            "lxc.rootfs.options = ro,nosuid,nodev",
            "lxc.idmap = u 0 100000 1024",
            "lxc.idmap = g 0 100000 1024",
            "lxc.net.0.type = empty",
            "lxc.cap.keep = none",
            "lxc.hook.mount = echo 0 > /proc/sys/net/ipv4/ip_unprivileged_port_start",
            "lxc.no_new_privs = 1",
            "lxc.seccomp.allow_nesting = 1",
            "lxc.cgroup2.memory.max = 1048576",
            "lxc.cgroup2.memory.swap.max = 0",
            "lxc.cgroup2.pids.max = 7",
            "lxc.mount.entry = /usr/share/more usr/share/more none rbind,ro,nosuid,nodev 0 0",
        ] {
            assert!(
                text.lines().any(|other| other == line),
                "{line} not in\n{text}"
            );
        }
    }

    #[test]
    fn a_path_cannot_become_another_line_or_field() {
        let text = rendered("/my work\\#1").unwrap();
        assert!(
            text.contains("lxc.mount.entry = /my\\040work\\134\\0431 work none"),
            "{text}"
        );
        assert!(rendered("/ws\nlxc.cap.keep = sys_admin").is_err());
        assert!(rendered("relative").is_err());
    }
}
