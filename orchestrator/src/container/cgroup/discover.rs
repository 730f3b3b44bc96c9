//! Finding the subtree: from `/proc/self/cgroup` and `/proc/self/mountinfo`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{CONTROLLERS, CgroupError, CgroupRoot};

/// Where the processes of the orchestrator itself go on version 2, whose inner groups may not hold
/// processes once controllers are enabled for their children.
const LEAF: &str = "supervisor";

impl CgroupRoot {
    /// The subtree this process was started in, for a service to which it was handed. On version 2
    /// the process moves into a leaf and enables the controllers for its siblings.
    ///
    /// # Errors
    /// A controller is missing, or the subtree belongs to somebody else.
    pub fn delegated() -> Result<Self, CgroupError> {
        let tables = Tables::read().map_err(CgroupError::Unreadable)?;
        if let Some(own) = tables.unified() {
            if let Some(root) = own.parent().filter(|_| own.ends_with(LEAF)) {
                return Ok(Self::V2 {
                    root: root.to_owned(),
                });
            }
            let prepared = move_to_leaf(&own).and_then(|()| enable(&own));
            return match prepared {
                Ok(()) => Ok(Self::V2 { root: own }),
                Err(source) => Err(CgroupError::NotDelegated { path: own, source }),
            };
        }
        let [memory, pids] =
            CONTROLLERS.map(|name| tables.own_v1(name).ok_or(CgroupError::NoController(name)));
        Ok(Self::V1 {
            memory: memory?,
            pids: pids?,
        })
    }

    /// The subtree at `path` (as `/proc/PID/cgroup` writes paths) of each hierarchy, for a process
    /// that was told where it may make groups.
    ///
    /// # Errors
    /// A controller is missing; whether the subtree is ours shows when a group is made in it.
    pub fn named(path: &str) -> Result<Self, CgroupError> {
        let tables = Tables::read().map_err(CgroupError::Unreadable)?;
        if let Some(top) = tables.unified_top() {
            return Ok(Self::V2 {
                root: top.join(path.trim_start_matches('/')),
            });
        }
        let at = |controller: &'static str| {
            tables
                .v1(controller, path)
                .ok_or(CgroupError::NoController(controller))
        };
        Ok(Self::V1 {
            memory: at("memory")?,
            pids: at("pids")?,
        })
    }

    /// A subtree made for the purpose by root, named `name`: beneath this process's own groups on
    /// version 1, so that the limits it is under keep counting; at the top on version 2, where an
    /// inner group may not hold processes.
    ///
    /// # Errors
    /// A controller is missing, or the caller is not allowed.
    pub fn made_by_root(name: &str) -> Result<Self, CgroupError> {
        let tables = Tables::read().map_err(CgroupError::Unreadable)?;
        if let Some(top) = tables.unified_top() {
            let root = top.join(name);
            let made = ensure(&root)
                .and_then(|()| enable(&top))
                .and_then(|()| enable(&root));
            return match made {
                Ok(()) => Ok(Self::V2 { root }),
                Err(source) => Err(CgroupError::NotDelegated { path: root, source }),
            };
        }
        let make = |controller: &'static str| {
            let own = tables
                .own_v1(controller)
                .ok_or(CgroupError::NoController(controller))?;
            let path = own.join(name);
            match ensure(&path) {
                Ok(()) => Ok(path),
                Err(source) => Err(CgroupError::NotDelegated { path, source }),
            }
        };
        Ok(Self::V1 {
            memory: make("memory")?,
            pids: make("pids")?,
        })
    }
}

fn ensure(directory: &Path) -> io::Result<()> {
    match fs::create_dir(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn move_to_leaf(own: &Path) -> io::Result<()> {
    let leaf = own.join(LEAF);
    ensure(&leaf)?;
    fs::write(leaf.join("cgroup.procs"), std::process::id().to_string())
}

fn enable(group: &Path) -> io::Result<()> {
    fs::write(group.join("cgroup.subtree_control"), "+memory +pids")
}

/// The two tables of `/proc/self` that say where this process is.
struct Tables {
    cgroup: String,
    mountinfo: String,
}

impl Tables {
    fn read() -> io::Result<Self> {
        Ok(Self {
            cgroup: fs::read_to_string("/proc/self/cgroup")?,
            mountinfo: fs::read_to_string("/proc/self/mountinfo")?,
        })
    }

    /// Our directory in the hierarchy of a version 1 controller.
    fn own_v1(&self, controller: &str) -> Option<PathBuf> {
        self.v1(
            controller,
            self.membership(|_, list| names(list, controller))?,
        )
    }

    /// The directory of `path` in the hierarchy of a version 1 controller.
    fn v1(&self, controller: &str, path: &str) -> Option<PathBuf> {
        let wanted = |mount: &Mount<'_>| mount.kind == "cgroup" && names(mount.options, controller);
        self.mounts().find(wanted)?.locate(path)
    }

    /// Our directory in the unified hierarchy, if that has the controllers.
    fn unified(&self) -> Option<PathBuf> {
        let own = self.membership(|id, list| id == "0" && list.is_empty())?;
        let mount = self.mounts().find(|mount| mount.kind == "cgroup2")?;
        mount.locate(own).filter(|path| has_controllers(path))
    }

    /// The top of the unified hierarchy as this process sees it.
    fn unified_top(&self) -> Option<PathBuf> {
        let mount = self.mounts().find(|mount| mount.kind == "cgroup2")?;
        Some(PathBuf::from(mount.point)).filter(|path| has_controllers(path))
    }

    /// The path column of the first line of `/proc/self/cgroup` that is wanted.
    fn membership(&self, wanted: impl Fn(&str, &str) -> bool) -> Option<&str> {
        self.cgroup.lines().find_map(|line| {
            let mut columns = line.splitn(3, ':');
            let (id, list, path) = (columns.next()?, columns.next()?, columns.next()?);
            wanted(id, list).then_some(path)
        })
    }

    fn mounts(&self) -> impl Iterator<Item = Mount<'_>> {
        self.mountinfo.lines().filter_map(Mount::parse)
    }
}

fn names(list: &str, controller: &str) -> bool {
    list.split(',').any(|name| name == controller)
}

struct Mount<'a> {
    root: &'a str,
    point: &'a str,
    kind: &'a str,
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let mut right = right.split(' ');
        Some(Self {
            root: left.next()?,
            point: left.next()?,
            kind: right.next()?,
            options: right.nth(1)?,
        })
    }

    /// A path of `/proc/self/cgroup` as a directory under this mount.
    fn locate(&self, path: &str) -> Option<PathBuf> {
        let beneath = Path::new(path).strip_prefix(self.root).ok()?;
        Some(Path::new(self.point).join(beneath))
    }
}

fn has_controllers(group: &Path) -> bool {
    let list = fs::read_to_string(group.join("cgroup.controllers")).unwrap_or_default();
    CONTROLLERS
        .iter()
        .all(|name| list.split_whitespace().any(|other| other == *name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hybrid() -> Tables {
        Tables {
            cgroup: "8:pids:/portcullis\n4:memory:/outer/portcullis\n1:cpu:/\n0::/\n".into(),
            mountinfo: "30 25 0:26 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids\n\
                        31 25 0:27 /outer /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                        32 25 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
                .into(),
        }
    }

    #[test]
    fn version_1_paths_are_relative_to_what_is_mounted() {
        let tables = hybrid();
        assert_eq!(
            tables.own_v1("pids"),
            Some("/sys/fs/cgroup/pids/portcullis".into())
        );
        assert_eq!(
            tables.own_v1("memory"),
            Some("/sys/fs/cgroup/memory/portcullis".into())
        );
        assert_eq!(tables.own_v1("cpu"), None);
        assert_eq!(
            tables.unified(),
            None,
            "a unified hierarchy without controllers is no use"
        );
    }

    #[test]
    fn a_group_outside_what_is_mounted_is_not_guessed_at() {
        let mut tables = hybrid();
        tables.cgroup = "4:memory:/elsewhere\n".into();
        assert_eq!(tables.own_v1("memory"), None);
    }
}
