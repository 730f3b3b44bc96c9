//! What may be done to a guest in which order, whoever runs it: its data volume is never where it could be lost.
//!
//! - [`create`] takes a volume that is there and free, or makes one; a guest that could not be finished is removed, and
//!   the volume is not.
//! - [`destroy`] takes the volume off, looks whether it is off, and only then removes the guest.
//! - [`recreate`] compares the data before and after by content, owner and mode.

use std::thread;
use std::time::{Duration, Instant};

use super::DATA;
use super::driver::{Driver, Ended, Guest, Source, Wanted};
use super::error::GuestError;
use super::name::Name;
use crate::output::say;

/// How long a guest's own system may take to come up.
const PATIENCE: Duration = Duration::from_secs(180);

/// Makes a guest and starts it.
///
/// # Errors
/// When there is one already, when the volume is somebody else's at the moment, or when the driver fails; what was made
/// of the guest is removed then.
pub fn create(driver: &dyn Driver, wanted: &Wanted) -> Result<(), GuestError> {
    let name = wanted.name.as_str();
    if let Some(found) = find(driver, name)? {
        return Err(if found.is_container {
            GuestError::Exists(name.to_owned())
        } else {
            GuestError::Machine(name.to_owned())
        });
    }
    let volume = wanted.volume.as_str();
    match driver.volume(volume)? {
        Some(users) if users.is_empty() => {
            say(&format!(
                "{volume}: the data volume is there, and is taken as it is"
            ));
        }
        Some(users) => {
            return Err(GuestError::VolumeTaken {
                volume: volume.to_owned(),
                by: users.join(", "),
            });
        }
        None => {
            say(&format!("{volume}: make the data volume"));
            driver.make_volume(&wanted.volume)?;
        }
    }
    say(&format!(
        "{name}: make an unprivileged container with nesting"
    ));
    driver.make(wanted)?;
    let finished = finish(driver, wanted);
    if finished.is_err() {
        // Half a guest is none. The volume was taken off or never put on, or it stays with what is left.
        say(&format!(
            "{name}: remove what was made of it; {volume} stays"
        ));
        let _said_above = take_off(driver, name, volume).and_then(|()| driver.remove(name));
    }
    finished
}

fn finish(driver: &dyn Driver, wanted: &Wanted) -> Result<(), GuestError> {
    let name = wanted.name.as_str();
    let made = ours(driver, name)?;
    if !made.is_unprivileged {
        return Err(GuestError::Privileged(name.to_owned()));
    }
    driver.attach(name, wanted.volume.as_str())?;
    say(&format!("{name}: start it"));
    driver.start(name)?;
    until_up(driver, name)
}

/// Removes a guest, and keeps its data volume.
///
/// # Errors
/// When the volume cannot be taken off: then nothing is removed.
pub fn destroy(driver: &dyn Driver, name: &Name, without_data: bool) -> Result<(), GuestError> {
    let guest = ours(driver, name.as_str())?;
    let Some(volume) = &guest.volume else {
        if !without_data {
            return Err(GuestError::NoVolume(guest.name));
        }
        return end(driver, &guest);
    };
    end_running(driver, &guest)?;
    say(&format!("{name}: take {volume} off"));
    take_off(driver, name.as_str(), volume)?;
    say(&format!("{name}: remove it; {volume} stays"));
    driver.remove(name.as_str())
}

/// Makes a guest anew on the data it had. `source` stands in for what it was made of, when that is to change.
///
/// # Errors
/// As [`destroy`] and [`create`]; also when the data is not what it was.
pub fn recreate(
    driver: &dyn Driver,
    name: &Name,
    source: Option<Source>,
) -> Result<(), GuestError> {
    let guest = ours(driver, name.as_str())?;
    let Some(volume) = guest.volume.clone() else {
        return Err(GuestError::NoVolume(guest.name));
    };
    let (known, network) = guest
        .wanted
        .clone()
        .map_or((None, None), |(known, network)| (Some(known), network));
    let source = source.or(known).ok_or_else(|| {
        GuestError::Said(format!(
            "what {name} was made of is not written down\n  hint: say it by --image or --rootfs"
        ))
    })?;
    if !guest.is_running {
        say(&format!("{name}: start it, to see what it keeps"));
        driver.start(name.as_str())?;
        until_up(driver, name.as_str())?;
    }
    say(&format!(
        "{name}: end what writes to {volume}, and keep the configuration there"
    ));
    inside(driver, name.as_str(), QUIET)?;
    let before = hash(driver, name.as_str())?;
    say(&format!("{volume}: {before}"));
    destroy(driver, name, false)?;
    let wanted = Wanted {
        name: name.clone(),
        source,
        volume: volume.parse()?,
        network,
    };
    create(driver, &wanted)?;
    let after = hash(driver, name.as_str())?;
    say(&format!("{volume}: {after}"));
    if before != after {
        return Err(GuestError::Changed {
            volume,
            before,
            after,
        });
    }
    inside(driver, name.as_str(), RESTORE)?;
    Ok(())
}

/// Ends the services and keeps `/etc/portcullis` on the volume: it is the person's, and not on it.
const QUIET: &str = "set -e
if test -x /usr/local/bin/portcullis; then /usr/local/bin/portcullis down >/dev/null; fi
if test -d /etc/portcullis; then
    rm -rf /var/lib/portcullis/kept.new
    cp -a /etc/portcullis /var/lib/portcullis/kept.new
    rm -rf /var/lib/portcullis/kept
    mv /var/lib/portcullis/kept.new /var/lib/portcullis/kept
    chmod 0700 /var/lib/portcullis/kept
fi
sync";

/// Puts the kept configuration in its place, where there is none. Its accounts are made by `provision`, of the same ids.
const RESTORE: &str = "set -e
if test -d /var/lib/portcullis/kept && ! test -e /etc/portcullis; then
    cp -a /var/lib/portcullis/kept /etc/portcullis.new
    chmod 0755 /etc/portcullis.new
    mv /etc/portcullis.new /etc/portcullis
fi";

/// SHA-256 over every file, link and directory of the data: name, kind, mode, owner, size and content.
///
/// # Errors
/// When it cannot be read.
pub fn hash(driver: &dyn Driver, guest: &str) -> Result<String, GuestError> {
    let script = format!(
        "set -e -o pipefail; cd {DATA}; {{ find . -mindepth 1 -xdev ! -type s \
         -printf '%P %y %m %U %G %l\\n' | LC_ALL=C sort; find . -xdev -type f -print0 | LC_ALL=C sort -z | \
         xargs -0 -r sha256sum; }} | sha256sum | cut -d ' ' -f 1"
    );
    let ended = inside(driver, guest, &script)?;
    Ok(format!("sha256 {}", ended.output.trim()))
}

/// Runs a script inside that must succeed.
///
/// # Errors
/// When it does not.
pub fn inside(driver: &dyn Driver, guest: &str, script: &str) -> Result<Ended, GuestError> {
    let ended = driver.run(guest, &["/bin/bash", "-c", script])?;
    if ended.code == 0 {
        return Ok(ended);
    }
    Err(GuestError::Inside {
        guest: guest.to_owned(),
        command: script.lines().next().unwrap_or_default().to_owned(),
        code: ended.code,
        said: ended.error.trim().to_owned(),
    })
}

/// The guest of that name, which this command made.
///
/// # Errors
/// When there is none, or it is a virtual machine or somebody else's.
pub fn ours(driver: &dyn Driver, name: &str) -> Result<Guest, GuestError> {
    let found = find(driver, name)?.ok_or_else(|| GuestError::NoGuest(name.to_owned()))?;
    if !found.is_container {
        return Err(GuestError::Machine(found.name));
    }
    if !found.is_ours {
        return Err(GuestError::Foreign(found.name));
    }
    Ok(found)
}

fn find(driver: &dyn Driver, name: &str) -> Result<Option<Guest>, GuestError> {
    let mut guests = driver.list()?.into_iter();
    Ok(guests.find(|guest| guest.name == name))
}

fn end_running(driver: &dyn Driver, guest: &Guest) -> Result<(), GuestError> {
    if guest.is_running {
        say(&format!("{}: stop it", guest.name));
        driver.stop(&guest.name)?;
    }
    Ok(())
}

fn end(driver: &dyn Driver, guest: &Guest) -> Result<(), GuestError> {
    end_running(driver, guest)?;
    say(&format!("{}: remove it", guest.name));
    driver.remove(&guest.name)
}

/// Takes the volume off and believes nobody: it is off when neither the guest nor the volume names the other.
fn take_off(driver: &dyn Driver, guest: &str, volume: &str) -> Result<(), GuestError> {
    let attached = |why: String| GuestError::Attached {
        volume: volume.to_owned(),
        guest: guest.to_owned(),
        why,
    };
    driver
        .detach(guest, volume)
        .map_err(|problem| attached(crate::output::chain(&problem)))?;
    let still = find(driver, guest)?.and_then(|guest| guest.volume);
    if still.is_some() {
        return Err(attached("it is still at its place".to_owned()));
    }
    match driver.volume(volume)? {
        None => Err(attached("it is not there any more".to_owned())),
        Some(users) if users.iter().any(|user| user == guest) => {
            Err(attached("it still says so".to_owned()))
        }
        Some(_) => Ok(()),
    }
}

/// Waits for the guest's own system. One that has failed units is up: which those are, `provision` finds out.
fn until_up(driver: &dyn Driver, guest: &str) -> Result<(), GuestError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let ended = driver.run(guest, &["systemctl", "is-system-running"]);
        let last = match ended {
            Ok(ended) => ended.output.trim().to_owned(),
            Err(problem) => crate::output::chain(&problem),
        };
        if matches!(last.as_str(), "running" | "degraded") {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(GuestError::NotUp {
                guest: guest.to_owned(),
                seconds: PATIENCE.as_secs(),
                last,
            });
        }
        thread::sleep(Duration::from_millis(200));
    }
}

#[cfg(test)]
mod tests;
