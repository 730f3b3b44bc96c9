//! From the command's start to the proof that nothing of its container is left.

use std::process::Child;
use std::thread;
use std::time::Duration;

use tokio::sync::watch;

use super::io::Streams;
use crate::container::{Evidence, Exit, Running};
use crate::relay::{Control, Ended};

/// Serves the run in threads of its own. `forget` is called once it is proven gone.
pub(super) fn watch(
    mut child: Child,
    mut control: Control,
    streams: Streams,
    evidence: Evidence,
    forget: impl FnOnce() + Send + 'static,
) -> Running {
    let (told, exit) = watch::channel(None);
    let (of_kill, of_watch) = (evidence.clone(), evidence.clone());
    let outputs = streams.pump();
    thread::spawn(move || {
        let ended = control.hear_ended();
        let monitor = child.wait();
        let gone = settle(&of_watch);
        // Whoever held the pipes is gone, or unreachable: then their readers are left behind.
        if gone {
            for output in outputs {
                let _panicked = output.join();
            }
            forget();
        }
        let exit = match (ended, gone) {
            (_, false) => Exit::Unknown,
            (Some(Ended::Code(code)), true) => Exit::Code(code),
            (Some(Ended::Signal(signal)), true) => Exit::Signal(signal),
            // The relay died without a word: killed from outside, or for want of memory.
            (None, true) => {
                if monitor.is_ok() {
                    Exit::Signal(libc::SIGKILL)
                } else {
                    Exit::Unknown
                }
            }
        };
        let _nobody_listens = told.send(Some(exit));
    });
    let kill = move || {
        if let Err(error) = of_kill.kill_rest() {
            tracing::error!(%error, "a run could not be killed");
        }
    };
    Running::new(evidence, exit, kill)
}

/// Waits until the kernel has taken the last process out of the run's groups; kills what lingers.
fn settle(evidence: &Evidence) -> bool {
    let mut pause = Duration::from_millis(1);
    // About ten seconds in all: a process that cannot die (stuck in the kernel) must not keep a
    // thread for ever; the supervisor goes on asking for proof.
    for _attempt in 0..40 {
        match evidence.proves_gone() {
            Ok(true) => return true,
            Ok(false) => {
                let _again = evidence.kill_rest();
            }
            Err(error) => tracing::warn!(%error, "waiting for the end of a run"),
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(300));
    }
    false
}
