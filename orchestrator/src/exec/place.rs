//! Where exec finds things: beneath the prefix that its own binary is installed in.

use std::path::{Path, PathBuf};

use super::{ExecArgs, ExecError};

/// Where the binaries are, beneath the prefix.
const LIBRARY: &str = "usr/local/lib/portcullis";

/// All paths of one exec.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) control: PathBuf,
    pub(super) state: PathBuf,
    pub(super) trust: PathBuf,
    pub(super) relay: PathBuf,
    pub(super) account: String,
}

impl Place {
    /// From the arguments, and from where this binary is.
    pub(super) fn find(args: &ExecArgs) -> Result<Self, ExecError> {
        let own = std::env::current_exe().map_err(ExecError::io("finding this program"))?;
        let beside = own.parent().unwrap_or(Path::new("/"));
        let prefix = prefix_of(beside);
        let or = |given: &Option<PathBuf>, default: &str| {
            given.clone().unwrap_or_else(|| prefix.join(default))
        };
        let relay = beside.join("portcullis-relay");
        if !relay.exists() {
            return Err(ExecError::Said(format!(
                "{} is missing\n  hint: install the programs together: portcullis up",
                relay.display()
            )));
        }
        Ok(Self {
            control: or(&args.control, "run/portcullis/proxy/control.sock"),
            state: or(&args.state, "var/lib/portcullis/exec"),
            trust: or(&args.trust, "var/lib/portcullis/trust"),
            relay,
            account: args.account.clone().unwrap_or_else(|| shut_in(&prefix)),
        })
    }

    pub(super) fn rootfs(&self) -> PathBuf {
        self.state.join("rootfs")
    }

    pub(super) fn runs(&self) -> PathBuf {
        self.state.join("runs")
    }

    pub(super) fn staging(&self, run: &str) -> PathBuf {
        self.state.join("staging").join(run)
    }

    pub(super) fn put_aside(&self, run: &str) -> PathBuf {
        self.state.join("put-aside").join(run)
    }
}

/// The account that the boundary of this instance shuts in for exec; the ids of any other could
/// reach the network, were the first wall to fail.
fn shut_in(prefix: &Path) -> String {
    let text = std::fs::read_to_string(prefix.join("etc/portcullis/boundary.toml"));
    let table: toml::Table = text.unwrap_or_default().parse().unwrap_or_default();
    let agents = table.get("agents").and_then(toml::Value::as_array);
    let mut names = agents.into_iter().flatten().filter_map(toml::Value::as_str);
    names
        .find(|name| name.ends_with("-exec"))
        .unwrap_or("portcullis-exec")
        .to_owned()
}

/// Trees of the system, in which no project lives.
const SYSTEM: [&str; 17] = [
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/proc",
    "/run",
    "/sbin",
    "/sys",
    "/usr",
    "/var/cache",
    "/var/lib/portcullis",
    "/var/log",
    "/var/spool",
];

/// Places beneath them that people keep sources in.
const SOURCES: [&str; 2] = ["/usr/src/", "/usr/local/src/"];

/// Directories that hold other people's or other projects' files.
const SHARED: [&str; 7] = [
    "/media", "/mnt", "/opt", "/srv", "/tmp", "/var/lib", "/var/tmp",
];

/// Why `directory` (without links) may not become a workspace, if so.
pub(super) fn unfit(directory: &Path, homes: &[&Path]) -> Option<&'static str> {
    let mut homes = homes.iter().filter(|home| home.parent().is_some());
    let source = SOURCES
        .iter()
        .any(|place| directory.to_string_lossy().starts_with(place));
    let mut above = directory.ancestors();
    if directory.parent().is_none() {
        Some("is the whole system")
    } else if !source && SYSTEM.iter().any(|tree| directory.starts_with(tree)) {
        Some("belongs to the system")
    } else if SHARED.iter().any(|place| Path::new(place) == directory) {
        Some("holds more than one project")
    } else if homes.clone().any(|home| home.starts_with(directory)) {
        Some("is somebody's home, or holds one")
    } else if homes.any(|home| hidden_in(home, directory)) && !directory.join(".git").exists() {
        Some("holds somebody's settings")
    } else if above.any(super::staging::is_repository)
        || directory
            .components()
            .any(|part| part.as_os_str() == ".git")
    {
        Some("is inside a git directory, from which git takes commands")
    } else {
        None
    }
}

fn hidden_in(home: &Path, directory: &Path) -> bool {
    let first = directory
        .strip_prefix(home)
        .ok()
        .and_then(|rest| rest.components().next());
    first.is_some_and(|name| name.as_os_str().to_string_lossy().starts_with('.'))
}

fn prefix_of(library: &Path) -> PathBuf {
    let is_installed = library.ends_with(LIBRARY);
    let depth = Path::new(LIBRARY).components().count();
    let prefix = library.ancestors().nth(depth).filter(|_| is_installed);
    prefix.unwrap_or(Path::new("/")).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_is_the_one_that_the_boundary_shuts_in() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(shut_in(dir.path()), "portcullis-exec");
        std::fs::create_dir_all(dir.path().join("etc/portcullis")).unwrap();
        let file = dir.path().join("etc/portcullis/boundary.toml");
        std::fs::write(
            file,
            "agents = [\"x-orchestrator\", \"x-exec\", \"1500-1599\"]",
        )
        .unwrap();
        assert_eq!(shut_in(dir.path()), "x-exec");
    }

    #[test]
    fn directories_of_the_system_of_people_and_of_git_are_no_workspaces() {
        let dir = tempfile::tempdir().unwrap();
        let bare = dir.path().join("bare");
        std::fs::create_dir_all(bare.join("objects")).unwrap();
        std::fs::create_dir_all(bare.join("hooks")).unwrap();
        std::fs::write(bare.join("HEAD"), "").unwrap();
        let homes = [Path::new("/home/me"), Path::new("/root"), Path::new("/")];
        let bare_hooks = bare.join("hooks");
        for bad in [
            "/",
            "/etc",
            "/etc/cron.d",
            "/usr/local/bin",
            "/home",
            "/home/me",
            "/root",
            "/home/me/.ssh",
            "/home/me/.config/systemd/user",
            "/tmp",
            "/var/lib/portcullis/proxy",
            "/srv/x/.git",
            "/srv/x/.git/hooks",
            bare.to_str().unwrap(),
            bare_hooks.to_str().unwrap(),
        ] {
            assert!(unfit(Path::new(bad), &homes).is_some(), "{bad}");
        }
        for good in [
            "/home/me/project",
            "/srv/x",
            "/work",
            "/usr/src/linux",
            "/var/lib/ci/build",
            "/tmp/x",
            dir.path().to_str().unwrap(),
        ] {
            assert_eq!(unfit(Path::new(good), &homes), None, "{good}");
        }
    }

    #[test]
    fn the_prefix_is_where_the_binaries_were_installed() {
        assert_eq!(
            prefix_of(Path::new("/usr/local/lib/portcullis")),
            Path::new("/")
        );
        assert_eq!(
            prefix_of(Path::new("/srv/x/usr/local/lib/portcullis")),
            Path::new("/srv/x")
        );
        assert_eq!(
            prefix_of(Path::new("/home/me/target/debug")),
            Path::new("/")
        );
    }
}
