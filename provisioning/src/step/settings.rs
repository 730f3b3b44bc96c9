//! The kernel setting the boundary leans on: nobody but root sends pings through a socket of the kernel's own making.
//!
//! `net.ipv4.ping_group_range` says which groups may open ICMP datagram sockets; systemd opens it to all of them. The
//! boundary refuses what agents send through one; closed, they do not get one either. The setting is written below
//! `/etc/sysctl.d` for the next boots and set now. Where it may not be set (a container's read-only `/proc/sys`), that is
//! said, and it is the host's to set.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::{State, Step, StepError, configuration, doing};
use crate::file::{self, Access, FileError};
use crate::instance::Instance;
use crate::manifest::{Manifest, Standing};
use crate::site::Site;

const SETTINGS: &str = "/etc/sysctl.d";
const LIVE: &str = "/proc/sys/net/ipv4/ping_group_range";
/// From group 1 to group 0: none.
const CLOSED: &str = "1 0";
/// What the kernel shows for a group that this user namespace does not have.
const NO_GROUP: &str = "65534";
const MADE_DIRECTORY: &str = "made the directory";

/// The file for the next boots, and the value of now.
#[derive(Debug)]
pub struct Settings;

/// Where the settings for the next boots lie. The number sorts behind what distributions ship.
#[must_use]
pub fn path(instance: &Instance) -> PathBuf {
    Path::new(SETTINGS).join(format!("90-{}.conf", instance.layout.name()))
}

fn text() -> String {
    format!(
        "# Written by `portcullis up`. No group may open ICMP datagram sockets; `ping` keeps working where it has\n\
         # CAP_NET_RAW, as Debian installs it.\n\
         net.ipv4.ping_group_range = {CLOSED}\n"
    )
}

/// What there was before us, for a purge: the value, and whether the directory is ours.
fn before_path(instance: &Instance) -> PathBuf {
    instance.layout.state().join("settings-before")
}

/// `first last`, numbers of groups; closed when there is none between.
///
/// The kernel keeps a closed range as groups 1 and 0 of the first user namespace, and shows both to a guest as groups it
/// does not have. A range that a guest opened has groups of the guest's, which it would show.
fn is_closed(value: &str) -> bool {
    is_closed_in(value, is_guest())
}

/// Whether this is a user namespace with groups of its own.
fn is_guest() -> bool {
    let map = fs::read_to_string("/proc/self/gid_map").unwrap_or_default();
    let mut words = map.split_whitespace();
    (words.next(), words.next()) != (Some("0"), Some("0"))
}

fn is_closed_in(value: &str, guest: bool) -> bool {
    if guest && value.split_whitespace().eq([NO_GROUP, NO_GROUP]) {
        return true;
    }
    let mut numbers = value.split_whitespace().map(str::parse::<i64>);
    matches!((numbers.next(), numbers.next()), (Some(Ok(first)), Some(Ok(last))) if first > last)
}

/// Whether this kernel lets us set it: opening for writing changes nothing.
fn may_set() -> bool {
    OpenOptions::new().write(true).open(LIVE).is_ok()
}

fn set(value: &str) -> Result<(), FileError> {
    let failed = |source| FileError::new("write", Path::new(LIVE))(source);
    let mut live = OpenOptions::new().write(true).open(LIVE).map_err(failed)?;
    live.write_all(value.as_bytes()).map_err(failed)
}

/// The note for a kernel that is open and not ours to close; `None` when it is closed.
fn judge_live(value: Option<&str>, may_set: bool) -> Result<Option<String>, String> {
    match value {
        Some(value) if is_closed(value) => Ok(None),
        Some(value) if may_set => Err(format!("net.ipv4.ping_group_range is {:?}", value.trim())),
        Some(value) => Ok(Some(format!(
            "net.ipv4.ping_group_range is {:?} and may not be set here: agents can open ping sockets, through which the \
             boundary lets nothing out; `sysctl -w net.ipv4.ping_group_range=\"{CLOSED}\"` on the host closes it",
            value.trim()
        ))),
        None => Ok(Some(format!("this kernel has no {LIVE}"))),
    }
}

impl Step for Settings {
    fn name(&self) -> String {
        "kernel settings".to_owned()
    }

    fn check(&self, site: &Site) -> Result<State, StepError> {
        let path = path(&site.instance);
        let manifest = Manifest::load(&site.instance.layout.manifest())?;
        let live = fs::read_to_string(LIVE).ok();
        match judge_live(live.as_deref(), may_set()) {
            Err(open) => Ok(State::Needs(open)),
            Ok(note) => Ok(
                match configuration::judge(manifest.standing(&path, &text())?, &path)? {
                    State::Right(mut notes) => {
                        notes.extend(note);
                        State::Right(notes)
                    }
                    needs @ State::Needs(_) => needs,
                },
            ),
        }
    }

    fn apply(&self, site: &Site) -> Result<(), StepError> {
        let instance = &site.instance;
        let (path, before) = (path(instance), before_path(instance));
        let live = fs::read_to_string(LIVE).unwrap_or_default();
        if !before.exists() {
            let made = if Path::new(SETTINGS).is_dir() {
                ""
            } else {
                MADE_DIRECTORY
            };
            let text = format!("{}\n{made}\n", live.trim());
            file::write(&before, text.as_bytes(), Access::root(0o644))?;
        }
        if !Path::new(SETTINGS).is_dir() {
            file::ensure_directory(Path::new(SETTINGS), Access::root(0o755))?;
        }
        let standing = Manifest::load(&instance.layout.manifest())?.put(
            &path,
            &text(),
            Access::root(0o644),
        )?;
        if matches!(standing, Standing::Absent | Standing::Outdated) {
            doing(&format!("write {}", path.display()));
        }
        if !is_closed(&live) && may_set() {
            doing(&format!("net.ipv4.ping_group_range = {CLOSED}"));
            set(CLOSED)?;
        }
        Ok(())
    }

    fn repair(&self, site: &Site) -> String {
        format!(
            "sysctl net.ipv4.ping_group_range; cat {}",
            path(&site.instance).display()
        )
    }
}

/// Removes the file and gives the kernel back the value of before, if nobody has set another since. Returns what was
/// done.
///
/// # Errors
/// When the file cannot be removed or the kernel refuses.
pub fn restore(instance: &Instance) -> Result<Vec<String>, FileError> {
    let mut done = Vec::new();
    let path = path(instance);
    match fs::remove_file(&path) {
        Ok(()) => done.push(format!("remove {}", path.display())),
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => {}
        Err(source) => return Err(FileError::new("remove", &path)(source)),
    }
    let Ok(before) = fs::read_to_string(before_path(instance)) else {
        return Ok(done);
    };
    let mut lines = before.lines();
    let value = lines.next().unwrap_or_default();
    let ours = fs::read_to_string(LIVE).is_ok_and(|live| is_closed(&live));
    if ours && !value.is_empty() && !is_closed(value) && may_set() {
        done.push(format!("net.ipv4.ping_group_range = {value}, as before"));
        set(value)?;
    }
    if lines.next() == Some(MADE_DIRECTORY) {
        // Somebody may have put something there since.
        let _not_empty = fs::remove_dir(SETTINGS);
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_without_a_group_is_closed() {
        for closed in ["1 0", "1\t0\n", "2147483647 1"] {
            assert!(is_closed(closed), "{closed:?}");
        }
        for open in ["0 2147483647", "0\t0\n", "1500 1500", "", "x 0", "1"] {
            assert!(!is_closed(open), "{open:?}");
        }
        // A guest sees two groups it does not have; elsewhere that is a range with a group in it.
        assert!(is_closed_in("65534\t65534\n", true));
        assert!(!is_closed_in("65534\t65534\n", false));
        assert!(!is_closed_in("0\t65534\n", true) && is_closed_in("1\t0\n", true));
        assert!(text().contains(&format!("\nnet.ipv4.ping_group_range = {CLOSED}\n")));
    }

    #[test]
    fn an_open_range_is_closed_where_that_is_allowed_and_told_where_not() {
        assert_eq!(judge_live(Some("1\t0\n"), true), Ok(None));
        assert_eq!(judge_live(Some("1\t0\n"), false), Ok(None));
        let open = Some("0\t2147483647\n");
        assert!(judge_live(open, true).is_err());
        let note = judge_live(open, false).unwrap().unwrap();
        assert!(note.contains("may not be set here"), "{note}");
        assert!(judge_live(None, true).unwrap().is_some());
    }
}
