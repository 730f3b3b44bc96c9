//! Network namespaces of a process's own, each held by a thread, and the wires between them.

use std::io;
use std::sync::mpsc;
use std::thread;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Uid, gettid, setfsuid};

use crate::process::Call;

type Job = Box<dyn FnOnce() + Send>;

/// A thread in a network namespace of its own. What it starts is there as well, and what it makes stays there.
pub(super) struct Place {
    thread: i32,
    jobs: mpsc::Sender<Job>,
}

impl Place {
    pub(super) fn new() -> Result<Self, String> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let (said, heard) = mpsc::channel();
        thread::spawn(move || {
            let entered = unshare(CloneFlags::CLONE_NEWNET).map(|()| gettid().as_raw());
            // Whoever asked waits for it.
            let _ = said.send(entered);
            queue.into_iter().for_each(|job| job());
        });
        let entered = heard.recv().map_err(|error| error.to_string())?;
        let thread = entered.map_err(|error| format!("no network namespace: {error}"))?;
        let place = Self { thread, jobs };
        place.run(|| ip(&["link", "set", "lo", "up"]))??;
        Ok(place)
    }

    /// Does something there.
    pub(super) fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, String> {
        let (said, heard) = mpsc::channel();
        let job: Job = Box::new(move || {
            // As above.
            let _ = said.send(work());
        });
        let gone = "a network namespace is gone";
        self.jobs.send(job).map_err(|_| gone.to_owned())?;
        heard.recv().map_err(|_| gone.to_owned())
    }
}

/// A wire between the caller's namespace and that place, with these addresses here and there.
pub(super) fn lay(
    to: &Place,
    name: &'static str,
    here: &[&'static str],
    there: &'static [&'static str],
) -> Result<(), String> {
    let thread = to.thread.to_string();
    ip(&[
        "link", "add", name, "type", "veth", "peer", "name", name, "netns", &thread,
    ])?;
    raise(name, here)?;
    to.run(move || raise(name, there))?
}

fn raise(name: &str, addresses: &[&str]) -> Result<(), String> {
    for address in addresses {
        let mut words = vec!["address", "add", address, "dev", name];
        // Nobody else is there who could have it.
        words.extend(address.contains(':').then_some("nodad"));
        ip(&words)?;
    }
    ip(&["link", "set", name, "up"])
}

pub(super) fn ip(words: &[&str]) -> Result<(), String> {
    let done = Call::new("ip").args(words.iter().copied()).run();
    done.map(drop).map_err(|error| crate::output::chain(&error))
}

/// What a thread makes that is this user for the kernel, sockets above all, and root otherwise.
pub(super) fn made_by<T: Send>(
    uid: u32,
    make: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    thread::scope(|scope| {
        let made = scope.spawn(|| {
            let user = Uid::from_raw(uid);
            setfsuid(user);
            // It says whom it replaces, which is the user by now.
            if setfsuid(user) != user {
                return Err(io::Error::other(format!("could not become uid {uid}")));
            }
            make()
        });
        let broke = |_| io::Error::other("it broke off");
        made.join().map_err(broke)?
    })
}
