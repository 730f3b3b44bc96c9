//! What is mounted into the container that no agent may have.
//!
//! Sockets of container engines, the gate's control socket and its authority's key, wherever they were mounted and whatever
//! they are called there: the kernel's table says what a mount was called where it came from. Directories are looked
//! through a few levels deep, and where they cannot be listed for the usual names.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

use super::Place;

/// Levels below a mount point that are looked through, and entries in all.
const DEPTH: usize = 3;
const MOST: usize = 20_000;

/// Where engines have their sockets in the image's own tree.
const USUAL: [&str; 7] = [
    "/run/docker.sock",
    "/var/run/docker.sock",
    "/run/podman/podman.sock",
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/buildkit/buildkitd.sock",
    "/run/portcullis/proxy/control.sock",
];

/// Names of engines' sockets, wherever they lie.
const ENGINES: [&str; 9] = [
    "docker.sock",
    "docker-cli.sock",
    "dockershim.sock",
    "podman.sock",
    "containerd.sock",
    "crio.sock",
    "buildkitd.sock",
    "balena-engine.sock",
    "unix.socket",
];

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Find {
    /// A container engine's socket.
    Engine,
    /// The gate's control socket, or another one beside the gate's own for agents.
    Control,
    /// The authority's key.
    Key,
    /// The gate's volume, not read-only.
    WritableShare,
}

/// What, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// What it is.
    pub what: Find,
    /// As it is called here.
    pub path: PathBuf,
}

/// One line of `mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mount {
    /// What it was called in its own file system.
    root: PathBuf,
    point: PathBuf,
    writable: bool,
    kind: String,
}

/// Everything in the mounts of `table` that no agent may have.
pub(super) fn search(table: &str, place: &Place) -> Vec<Found> {
    let mut found: Vec<Found> = Vec::new();
    let mut add = |what, path: &Path| {
        if !found.iter().any(|known: &Found| known.path == path) {
            found.push(Found {
                what,
                path: path.to_owned(),
            });
        }
    };
    for path in USUAL.map(Path::new) {
        if let Some(what) = judged(path, path, place) {
            add(what, path);
        }
    }
    if access(&place.share, AccessFlags::W_OK).is_ok() {
        add(Find::WritableShare, &place.share);
    }
    let mut left = MOST;
    for mount in table.lines().filter_map(Mount::parse) {
        if mount.is_the_systems_own() {
            continue;
        }
        // Whoever may write there today: a uid is quickly changed.
        if mount.writable && mount.point == place.share {
            add(Find::WritableShare, &mount.point);
        }
        if let Some(what) = judged(&mount.point, &mount.root, place) {
            add(what, &mount.point);
        }
        // A directory that nobody may list can be gone through all the same.
        for path in usual_below(&mount.point) {
            if let Some(what) = judged(&path, &path, place) {
                add(what, &path);
            }
        }
        walk(&mount.point, DEPTH, &mut left, &mut |path| {
            if let Some(what) = judged(path, path, place) {
                add(what, path);
            }
        });
    }
    found
}

impl Mount {
    fn parse(line: &str) -> Option<Self> {
        let (front, back) = line.split_once(" - ")?;
        let mut fields = front.split(' ').skip(3);
        Some(Self {
            root: PathBuf::from(unescaped(fields.next()?)),
            point: PathBuf::from(unescaped(fields.next()?)),
            writable: fields.next()?.split(',').all(|option| option != "ro"),
            kind: back.split(' ').next()?.to_owned(),
        })
    }

    /// The image itself, and what every container has.
    fn is_the_systems_own(&self) -> bool {
        const KINDS: [&str; 8] = [
            "proc",
            "sysfs",
            "cgroup",
            "cgroup2",
            "devpts",
            "mqueue",
            "devtmpfs",
            "securityfs",
        ];
        let at = |point: &str| self.point == Path::new(point);
        at("/") || at("/dev") || at("/dev/shm") || KINDS.contains(&self.kind.as_str())
    }
}

/// What a path is that is called `path` here and `origin` where it came from; nothing if it is harmless or not there.
fn judged(path: &Path, origin: &Path, place: &Place) -> Option<Find> {
    let kind = fs::metadata(path).ok()?.file_type();
    let names = [path, origin].map(|it| it.file_name().unwrap_or_default().to_string_lossy());
    let named = |wanted: &[&str]| names.iter().any(|name| wanted.contains(&name.as_ref()));
    if kind.is_socket() {
        if named(&ENGINES) {
            return Some(Find::Engine);
        }
        let beside_ours = path.starts_with(&place.share) && path != place.gate();
        return (named(&["control.sock"]) || beside_ours).then_some(Find::Control);
    }
    (kind.is_file() && named(&["ca.key"])).then_some(Find::Key)
}

/// Where engines' sockets would be if a host's root, its `/var` or its `/run` were mounted at `point`.
fn usual_below(point: &Path) -> impl Iterator<Item = PathBuf> + '_ {
    const ABOVE: [&str; 4] = ["/", "/run/", "/var/", "/var/run/"];
    USUAL.iter().flat_map(move |path| {
        let below = ABOVE.iter().filter_map(|above| path.strip_prefix(above));
        below.map(|rest| point.join(rest))
    })
}

fn walk(directory: &Path, depth: usize, left: &mut usize, see: &mut impl FnMut(&Path)) {
    if depth == 0 {
        return;
    }
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if *left == 0 {
            return;
        }
        *left -= 1;
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => walk(&path, depth - 1, left, see),
            Ok(_) => see(&path),
            Err(_gone) => {}
        }
    }
}

fn unescaped(text: &str) -> String {
    let escapes = [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ];
    escapes
        .iter()
        .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn sockets_and_keys_are_found_under_any_name_and_depth() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for folder in ["share", "host/var/run", "one"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        let place = Place {
            share: at("share"),
            boundary: None,
        };
        let sockets = [
            "share/gate.sock",
            "host/var/run/docker.sock",
            "renamed",
            "plain",
        ];
        let _listeners = sockets.map(|name| UnixListener::bind(at(name)).unwrap());
        let line = |root: &str, point: &str| {
            let point = at(point).display().to_string();
            format!("9 1 0:1 {root} {point} rw,relatime shared:1 - tmpfs tmpfs rw\n")
        };
        let found = |table: &str| -> Vec<(Find, PathBuf)> {
            let all = search(table, &place).into_iter();
            let all = all.filter(|it| it.what != Find::WritableShare);
            all.map(|it| (it.what, it.path))
                .filter(|(_, path)| path.starts_with(directory.path()))
                .collect()
        };
        let share = |options: &str| {
            let table = line("/", "share").replace("rw,relatime", options);
            let found = search(&table, &place);
            let writable = found.iter().filter(|it| it.what == Find::WritableShare);
            writable.count()
        };
        // Root may write wherever it is not read-only.
        let root = usize::from(nix::unistd::geteuid().is_root());
        assert_eq!((share("rw,nosuid"), share("nosuid,ro")), (1, root));
        // Controls: the gate's own socket and somebody's other socket.
        assert_eq!(found(&(line("/", "share") + &line("/plain", "plain"))), []);
        let renamed = line("/docker.sock", "renamed");
        assert_eq!(found(&renamed), [(Find::Engine, at("renamed"))]);
        let deep = [(Find::Engine, at("host/var/run/docker.sock"))];
        assert_eq!(found(&line("/", "host")), deep);
        let usual: Vec<PathBuf> = usual_below(Path::new("/host")).collect();
        for name in [
            "run/docker.sock",
            "docker.sock",
            "var/run/docker.sock",
            "podman/podman.sock",
        ] {
            assert!(usual.contains(&Path::new("/host").join(name)), "{name}");
        }
        let beside = UnixListener::bind(at("share/other.sock")).unwrap();
        assert_eq!(
            found(&line("/", "share")),
            [(Find::Control, at("share/other.sock"))]
        );
        drop(beside);
        fs::write(at("one/ca.key"), "key").unwrap();
        assert_eq!(found(&line("/", "one")), [(Find::Key, at("one/ca.key"))]);
        let _control = UnixListener::bind(at("one/control.sock")).unwrap();
        assert_eq!(found(&line("/", "one")).len(), 2);
    }
}
