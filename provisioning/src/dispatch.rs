//! `portcullis X …` runs the sibling that implements `X`, as git does: one name for a person, one small program per
//! privilege.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use thiserror::Error;

use crate::layout::Layout;

/// A command that a sibling implements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    pub word: &'static str,
    /// The program, and the configuration file (by component) it reads.
    pub program: &'static str,
    pub component: &'static str,
    /// Whether the word is part of the sibling's own command line.
    pub passed_on: bool,
    pub about: &'static str,
}

const fn entry(word: &'static str, component: &'static str, about: &'static str) -> Entry {
    let program = match component.as_bytes() {
        b"proxy" => "portcullis-proxy",
        b"boundary" => "portcullis-boundary",
        _ => "portcullis-orchestrator",
    };
    // `portcullis boundary verify` is `portcullis-boundary verify`.
    let passed_on = !matches!(word.as_bytes(), b"boundary" | b"gate");
    Entry {
        word,
        program,
        component,
        passed_on,
        about,
    }
}

/// Every command of the siblings.
pub const TABLE: &[Entry] = &[
    entry(
        "exec",
        "orchestrator",
        "Run any command in a fresh container behind the gate",
    ),
    entry(
        "ticket",
        "orchestrator",
        "Tickets: create, assign, comment, show, timeline",
    ),
    entry("run", "orchestrator", "Runs: list, show, log, cancel"),
    entry(
        "why",
        "orchestrator",
        "Why a ticket runs, waits or does not: every gate and its fact",
    ),
    entry("wake", "orchestrator", "Wake an agent for a ticket"),
    entry("agent", "orchestrator", "Agents: create, list, show"),
    entry("company", "orchestrator", "Companies: create, list"),
    entry(
        "approval",
        "orchestrator",
        "What agents ask for and people decide: list, show, approve, reject",
    ),
    entry("project", "orchestrator", "Projects: create, list"),
    entry("goal", "orchestrator", "Goals: create, list"),
    entry("label", "orchestrator", "Labels: create, list, remove"),
    entry("journal", "orchestrator", "The event journal: verify"),
    entry(
        "openapi",
        "orchestrator",
        "The description of the board's API (OpenAPI 3.1)",
    ),
    entry("policy", "proxy", "Policies: check, show"),
    entry(
        "reload",
        "proxy",
        "Put an edited policy to work; a broken one changes nothing",
    ),
    entry(
        "audit",
        "proxy",
        "What left and what was refused: tail, query",
    ),
    entry(
        "secret",
        "proxy",
        "Entries of the OpenPGP store: list, put, rotate, check, history, restore",
    ),
    entry("ca", "proxy", "The gate's certificate authority"),
    entry(
        "hold",
        "proxy",
        "Requests that wait for a person: list, show, approve, deny",
    ),
    entry(
        "allowance",
        "proxy",
        "What runs, agents and companies have taken: list, show",
    ),
    entry("canary", "proxy", "Have the gate try every credential now"),
    entry("gate", "proxy", "Everything else of portcullis-proxy"),
    entry(
        "boundary",
        "boundary",
        "The kernel's rules: apply, verify, show, counters, watch",
    ),
];

/// Why a command was not passed on.
#[derive(Debug, Error)]
pub enum DispatchError {
    #[error("there is no command {word:?}\n  hint: {hint}")]
    Unknown { word: String, hint: String },
    #[error("cannot run {program}\n  hint: `portcullis up` installs it beside this program")]
    Execute {
        program: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// The entry of a word.
#[must_use]
pub fn find(word: &str) -> Option<&'static Entry> {
    TABLE.iter().find(|entry| entry.word == word)
}

/// The commands of the gate's program that read its configuration. They take `--config` behind themselves; the other two
/// programs take it in front of everything.
const GATE_LEAVES: [&[&str]; 35] = [
    &["allowance", "list"],
    &["allowance", "show"],
    &["audit", "checkpoint-export"],
    &["audit", "export"],
    &["audit", "keygen"],
    &["audit", "query"],
    &["audit", "stats"],
    &["audit", "tail"],
    &["audit", "verify"],
    &["ca", "export"],
    &["ca", "init"],
    &["ca", "rotate"],
    &["ca", "status"],
    &["canary"],
    &["check"],
    &["health"],
    &["hold", "approve"],
    &["hold", "deny"],
    &["hold", "list"],
    &["hold", "show"],
    &["policy", "check"],
    &["policy", "explain"],
    &["reload"],
    &["run"],
    &["runs"],
    &["secret", "check"],
    &["secret", "history"],
    &["secret", "import"],
    &["secret", "list"],
    &["secret", "put"],
    &["secret", "restore"],
    &["secret", "rotate"],
    &["secret", "show-shape"],
    &["sidecar"],
    &["status"],
];

/// The sibling's arguments: its word, what the person typed, and the instance's configuration unless a `--config` is
/// among it. Everything after `--` belongs to somebody else and is not looked at.
#[must_use]
pub fn arguments(entry: &Entry, typed: &[OsString], config: Option<&Path>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = Vec::new();
    if entry.passed_on {
        arguments.push(entry.word.into());
    }
    arguments.extend(typed.iter().cloned());
    let own = arguments
        .iter()
        .take_while(|argument| *argument != "--")
        .count();
    let given = arguments[..own].iter().any(|argument| {
        let text = argument.to_string_lossy();
        text == "--config" || text.starts_with("--config=")
    });
    let Some(config) = config.filter(|_| !given) else {
        return arguments;
    };
    let place = match entry.component {
        "proxy" => {
            let takes_it = GATE_LEAVES.iter().any(|leaf| {
                arguments.len() >= leaf.len()
                    && leaf
                        .iter()
                        .zip(&arguments)
                        .all(|(word, typed)| typed == word)
            });
            takes_it.then_some(own)
        }
        _ => Some(0),
    };
    if let Some(place) = place {
        arguments.splice(place..place, ["--config".into(), config.into()]);
    }
    arguments
}

/// Becomes the sibling. Returns only when that failed.
pub fn execute(entry: &Entry, typed: &[OsString], layout: Option<&Layout>) -> DispatchError {
    let program = sibling(entry.program, layout);
    let config = layout
        .map(|layout| layout.config(entry.component))
        .filter(|path| path.exists());
    let source = Command::new(&program)
        .args(arguments(entry, typed, config.as_deref()))
        .exec();
    DispatchError::Execute { program, source }
}

/// Beside this very program, else where the instance has it.
fn sibling(name: &str, layout: Option<&Layout>) -> PathBuf {
    let beside = std::env::current_exe()
        .and_then(|own| own.canonicalize())
        .ok()
        .and_then(|own| own.parent().map(|directory| directory.join(name)))
        .filter(|path| path.exists());
    beside
        .or_else(|| layout.map(|layout| layout.binary(name)))
        .unwrap_or_else(|| Path::new(name).to_path_buf())
}

/// The error for a word nobody implements, with the nearest ones.
#[must_use]
pub fn unknown(word: &str, own: &[&str]) -> DispatchError {
    let mut near: Vec<(usize, &str)> = own
        .iter()
        .copied()
        .chain(TABLE.iter().map(|entry| entry.word))
        .map(|known| (strsim::osa_distance(word, known), known))
        .filter(|(distance, known)| *distance <= 2.max(known.len() / 3))
        .collect();
    near.sort_unstable();
    let hint = if near.is_empty() {
        "`portcullis --help` lists them all".to_owned()
    } else {
        let names: Vec<&str> = near.into_iter().take(3).map(|(_, known)| known).collect();
        format!(
            "did you mean {}? `portcullis --help` lists them all",
            names.join(" or ")
        )
    };
    DispatchError::Unknown {
        word: word.to_owned(),
        hint,
    }
}

#[cfg(test)]
mod tests;
