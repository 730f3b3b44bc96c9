//! `prove --kill-gate`, interrupted: whoever is killed, the gate comes back, by the process that holds it down or by `up`.

use std::fs;
use std::process::Child;
use std::time::Duration;

use tests::command::Program;
use tests::instance::Instance;
use tests::wait;

const TERM: u32 = 15;
/// How long all attempts may take on a machine that is at work.
const FIRST_ROUND: Duration = Duration::from_secs(400);

fn gates(instance: &Instance) -> Vec<u32> {
    instance.processes("portcullis-proxy run")
}

/// A gate that is held down.
struct Held<'a> {
    instance: &'a Instance,
    before: Vec<u32>,
    prove: Child,
    holder: u32,
}

impl<'a> Held<'a> {
    fn start(instance: &'a Instance) -> Self {
        let before = gates(instance);
        let prove = instance.portcullis().args(["prove", "--kill-gate"]).spawn();
        // Everything is tried once before that.
        let holder = wait::until_within(FIRST_ROUND, "the gate is down", || {
            match instance.processes("prove hold-gate")[..] {
                [holder] if gates(instance).is_empty() => Some(holder),
                _ => None,
            }
        });
        Self {
            instance,
            before,
            prove,
            holder,
        }
    }

    fn signal(&self, signal: &str, pid: u32) {
        Program::new("kill")
            .args([signal, &pid.to_string()])
            .run()
            .ok();
    }

    /// Of `prove` itself, which its parent has to hear of.
    fn ends(&mut self) {
        let status = self.prove.wait().unwrap();
        assert!(!status.success(), "{status}");
    }

    fn comes_back(self) {
        wait::until_true("the gate is back", || {
            let now = gates(self.instance);
            now.len() == 1 && now != self.before && self.instance.run_status(&[]).code() == 0
        });
        wait::until_true("the wire is gone", || {
            !Program::new("ip")
                .args(["-o", "link"])
                .run()
                .ok()
                .stdout
                .contains(&format!("prove{}", self.prove.id()))
        });
    }
}

/// Whoever kills `prove` while the gate is down gets the gate back all the same.
pub(super) fn killed(instance: &Instance) {
    let mut held = Held::start(instance);
    held.signal("-KILL", held.prove.id());
    held.ends();
    held.comes_back();
}

/// What ends a whole control group ends `prove`, and is not heard by whoever has to bring the gate back.
pub(super) fn told_to_end(instance: &Instance) {
    let mut held = Held::start(instance);
    for signal in ["-HUP", "-INT", "-TERM"] {
        held.signal(signal, held.holder);
    }
    let status = fs::read_to_string(format!("/proc/{}/status", held.holder)).unwrap();
    let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
    let pending = u64::from_str_radix(pending.unwrap().trim(), 16).unwrap();
    assert_ne!(pending & (1 << (TERM - 1)), 0, "it waits: {status}");
    assert_eq!(gates(instance), Vec::<u32>::new());
    // The control: the same signal to one who hears it.
    held.signal("-TERM", held.prove.id());
    held.ends();
    held.comes_back();
}

/// Where nobody was left to bring it back, `up` says so and does it.
pub(super) fn killed_with_its_holder(instance: &Instance) {
    let mut held = Held::start(instance);
    held.signal("-KILL", held.holder);
    held.signal("-KILL", held.prove.id());
    held.ends();
    wait::until_true("nobody holds it", || {
        instance.processes("prove hold-gate").is_empty()
    });
    assert_eq!(gates(instance), Vec::<u32>::new());
    assert_ne!(instance.run_status(&[]).code(), 0, "control");
    let up = instance.run_up(&["--no-gate-test"]).ok();
    assert!(up.shown().contains("let go of the gate"), "{}", up.shown());
    held.comes_back();
    let again = instance.run_up(&["--no-gate-test"]).ok();
    let shown = again.shown();
    assert!(shown.contains("nothing was changed"), "{shown}");
}
