//! Looks at processes, each beside the same look at a process of ours that has what is looked for.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use crate::prove::process::{self, Marked, Process};
use crate::prove::verdict::{Judged, Status};

/// How long a process of ours has to become what it is started for.
const BEGINS: Duration = Duration::from_secs(10);

pub(super) fn sleeping() -> Command {
    let mut command = Marked::program("sleep");
    command.arg("60");
    command
}

/// A socket that is listed, and sends nothing.
pub(super) fn bound() -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
    Ok(socket)
}

/// Whether the same look sees what it is for in a process of ours.
pub(super) fn look(command: &mut Command, sees: impl Fn(&Process) -> bool) -> Result<bool, String> {
    let child = Marked::begin(command).map_err(|error| error.to_string())?;
    let deadline = Instant::now() + BEGINS;
    loop {
        if child.seen().is_some_and(|process| sees(&process)) {
            return Ok(true);
        }
        if Instant::now() > deadline {
            return Ok(false);
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// What was not seen is not there only where the same look sees `what`. What was seen needs no control.
pub(super) fn beside((status, saw): Judged, seen: Result<bool, String>, what: &str) -> Judged {
    if status != Status::Holds {
        return (status, saw);
    }
    match seen {
        Ok(true) => (status, format!("{saw}; control: {what} was seen")),
        Ok(false) => (
            Status::CouldNotTell,
            format!("{saw}; but {what} was not seen either"),
        ),
        Err(why) => (
            Status::CouldNotTell,
            format!("{saw}; but there was no control: {why}"),
        ),
    }
}

pub(super) fn some_of(which: impl Fn(&Process) -> bool) -> Option<Vec<Process>> {
    let mut found = process::others();
    found.retain(|process| which(process));
    (!found.is_empty()).then_some(found)
}

pub(super) fn shown(all: &[Process], which: impl Fn(&Process) -> bool) -> Vec<String> {
    let offenders = all.iter().filter(|process| which(process));
    offenders.map(Process::shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_sees_nothing_of_its_own_holds_nothing() {
        let holds = || (Status::Holds, "none".to_owned());
        let of = |judged, seen| beside(judged, seen, "ours").0;
        assert_eq!(of(holds(), Ok(true)), Status::Holds);
        assert_eq!(of(holds(), Ok(false)), Status::CouldNotTell);
        assert_eq!(of(holds(), Err("no".to_owned())), Status::CouldNotTell);
        let broken = || (Status::Broken, "one".to_owned());
        assert_eq!(of(broken(), Ok(false)), Status::Broken);
        assert_eq!(look(&mut sleeping(), |_| true), Ok(true));
        assert!(look(&mut Marked::program("no-such-program-as-this"), |_| true).is_err());
    }
}
