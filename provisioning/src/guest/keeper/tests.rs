use std::cell::RefCell;
use std::path::Path;

use super::*;

/// Guests and volumes in memory. What it is told not to do it says it did, or fails at.
#[derive(Default)]
struct Fake {
    guests: RefCell<Vec<Guest>>,
    volumes: RefCell<Vec<String>>,
    /// `detach` says yes and does nothing.
    keeps_hold: bool,
    /// `detach` fails.
    fails: bool,
    /// What is made is privileged all the same.
    privileged: bool,
}

fn guest(name: &str, volume: Option<&str>) -> Guest {
    Guest {
        name: name.to_owned(),
        is_container: true,
        is_unprivileged: true,
        is_running: true,
        is_ours: true,
        volume: volume.map(str::to_owned),
        wanted: None,
    }
}

impl Fake {
    fn with(guests: Vec<Guest>, volumes: &[&str]) -> Self {
        Self {
            guests: RefCell::new(guests),
            volumes: RefCell::new(volumes.iter().map(|&name| name.to_owned()).collect()),
            ..Self::default()
        }
    }

    fn change(&self, name: &str, change: impl Fn(&mut Guest)) {
        let mut guests = self.guests.borrow_mut();
        guests
            .iter_mut()
            .filter(|guest| guest.name == name)
            .for_each(change);
    }

    fn names(&self) -> Vec<String> {
        let guests = self.guests.borrow();
        guests.iter().map(|guest| guest.name.clone()).collect()
    }
}

impl Driver for Fake {
    fn shown(&self) -> String {
        "memory".to_owned()
    }

    fn list(&self) -> Result<Vec<Guest>, GuestError> {
        Ok(self.guests.borrow().clone())
    }

    fn volume(&self, name: &str) -> Result<Option<Vec<String>>, GuestError> {
        let there = self.volumes.borrow().iter().any(|volume| volume == name);
        let guests = self.guests.borrow();
        let users = guests
            .iter()
            .filter(|guest| guest.volume.as_deref() == Some(name))
            .map(|guest| guest.name.clone());
        Ok(there.then(|| users.collect()))
    }

    fn make_volume(&self, name: &Name) -> Result<(), GuestError> {
        self.volumes.borrow_mut().push(name.as_str().to_owned());
        Ok(())
    }

    fn make(&self, wanted: &Wanted) -> Result<(), GuestError> {
        let made = Guest {
            is_running: false,
            is_unprivileged: !self.privileged,
            ..guest(wanted.name.as_str(), None)
        };
        self.guests.borrow_mut().push(made);
        Ok(())
    }

    fn attach(&self, guest: &str, volume: &str) -> Result<(), GuestError> {
        self.change(guest, |guest| guest.volume = Some(volume.to_owned()));
        Ok(())
    }

    fn detach(&self, guest: &str, _: &str) -> Result<(), GuestError> {
        if self.fails {
            return Err(GuestError::Said("the device is busy".to_owned()));
        }
        if !self.keeps_hold {
            self.change(guest, |guest| guest.volume = None);
        }
        Ok(())
    }

    fn start(&self, guest: &str) -> Result<(), GuestError> {
        self.change(guest, |guest| guest.is_running = true);
        Ok(())
    }

    fn stop(&self, guest: &str) -> Result<(), GuestError> {
        self.change(guest, |guest| guest.is_running = false);
        Ok(())
    }

    fn remove(&self, guest: &str) -> Result<(), GuestError> {
        let mut guests = self.guests.borrow_mut();
        // Whoever removes a guest with a volume removes the volume: that must never be asked.
        let with = guests.iter().find(|found| found.name == guest);
        if let Some(volume) = with.and_then(|found| found.volume.clone()) {
            self.volumes.borrow_mut().retain(|name| *name != volume);
        }
        guests.retain(|found| found.name != guest);
        Ok(())
    }

    fn run(&self, _: &str, _: &[&str]) -> Result<Ended, GuestError> {
        Ok(Ended {
            code: 0,
            output: "running\n".to_owned(),
            error: String::new(),
        })
    }

    fn put(&self, _: &str, _: &str, _: &Path, _: u32) -> Result<(), GuestError> {
        Ok(())
    }

    fn shell(&self, _: &str) -> Result<Vec<String>, GuestError> {
        Ok(Vec::new())
    }
}

fn wanted() -> Wanted {
    Wanted {
        name: "agents".parse().unwrap(),
        source: Source::Image("debian/12".to_owned()),
        volume: "agents-data".parse().unwrap(),
        network: None,
    }
}

fn name() -> Name {
    "agents".parse().unwrap()
}

#[test]
fn a_volume_that_cannot_be_taken_off_keeps_its_guest() {
    let there = || vec![guest("agents", Some("agents-data"))];
    let control = Fake::with(there(), &["agents-data"]);
    destroy(&control, &name(), false).unwrap();
    assert!(control.names().is_empty());
    assert_eq!(control.volume("agents-data").unwrap(), Some(Vec::new()));

    for (keeps_hold, fails) in [(true, false), (false, true)] {
        let fake = Fake {
            keeps_hold,
            fails,
            ..Fake::with(there(), &["agents-data"])
        };
        let refused = destroy(&fake, &name(), false).unwrap_err();
        assert!(matches!(refused, GuestError::Attached { .. }), "{refused}");
        assert_eq!(fake.names(), ["agents"], "nothing is removed");
        assert!(fake.volume("agents-data").unwrap().is_some());
    }
}

#[test]
fn a_guest_without_a_volume_goes_only_when_that_is_said() {
    let fake = Fake::with(vec![guest("agents", None)], &[]);
    let refused = destroy(&fake, &name(), false).unwrap_err();
    assert!(matches!(refused, GuestError::NoVolume(_)), "{refused}");
    destroy(&fake, &name(), true).unwrap();
    assert!(fake.names().is_empty());
}

#[test]
fn neither_a_machine_nor_what_somebody_else_made_is_touched() {
    for (change, taken) in [
        (
            Guest {
                is_container: false,
                ..guest("agents", Some("agents-data"))
            },
            "machine",
        ),
        (
            Guest {
                is_ours: false,
                ..guest("agents", Some("agents-data"))
            },
            "foreign",
        ),
    ] {
        let fake = Fake::with(vec![change], &["agents-data"]);
        for refused in [
            destroy(&fake, &name(), true),
            recreate(&fake, &name(), None),
        ] {
            let refused = refused.unwrap_err();
            assert!(
                matches!(refused, GuestError::Machine(_) | GuestError::Foreign(_)),
                "{taken}: {refused}"
            );
        }
        let refused = create(&fake, &wanted()).unwrap_err();
        assert_eq!(
            matches!(refused, GuestError::Machine(_)),
            taken == "machine",
            "{refused}"
        );
        assert_eq!(fake.names(), ["agents"]);
    }
}

#[test]
fn a_privileged_guest_is_not_finished_and_its_volume_stays() {
    let control = Fake::default();
    create(&control, &wanted()).unwrap();
    assert_eq!(
        control.volume("agents-data").unwrap(),
        Some(vec!["agents".to_owned()])
    );

    let fake = Fake {
        privileged: true,
        ..Fake::with(Vec::new(), &["agents-data"])
    };
    let refused = create(&fake, &wanted()).unwrap_err();
    assert!(matches!(refused, GuestError::Privileged(_)), "{refused}");
    assert!(fake.names().is_empty());
    assert_eq!(fake.volume("agents-data").unwrap(), Some(Vec::new()));
}

#[test]
fn a_volume_in_use_is_nobody_elses() {
    let fake = Fake::with(vec![guest("other", Some("agents-data"))], &["agents-data"]);
    let refused = create(&fake, &wanted()).unwrap_err().to_string();
    assert!(refused.contains("in use by other"), "{refused}");
    assert_eq!(fake.names(), ["other"]);
}
