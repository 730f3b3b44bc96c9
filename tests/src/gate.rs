//! A real `portcullis-proxy` with a generated configuration, as an ordinary uid.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Child;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::canary::Canary;
use crate::command::Program;
use crate::netns::Netns;
use crate::{binaries, host, upstream, wait};

/// Where agents find the gate, inside its namespace.
pub const ADDRESS: &str = "127.0.0.1:3128";

/// A credential of the gate.
#[derive(Clone, Debug)]
pub struct Credential {
    /// The name policies use.
    pub name: &'static str,
    /// `bearer`, `github-token`, ...
    pub kind: &'static str,
    /// The only host it may go to; several with blanks between them.
    pub host: &'static str,
    /// The secret.
    pub canary: Canary,
}

/// Who proves that the kernel boundary holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Boundary {
    /// Nobody; said out loud in the configuration.
    External,
    /// `portcullis-boundary`, by its status file.
    Kernel,
}

/// The gate's files and, while it runs, its process.
#[derive(Debug)]
pub struct Gate {
    /// Everything of this gate lies below.
    pub dir: PathBuf,
    /// Whom it runs as.
    pub uid: u32,
    /// Whom the control socket lets in.
    pub operator: u32,
    child: Option<Child>,
}

impl Gate {
    /// Writes the configuration; starts nothing.
    pub fn prepare(
        dir: &Path,
        agents: &[u32],
        policy: &str,
        credentials: &[Credential],
        boundary: Boundary,
    ) -> Self {
        let (uid, operator) = (host::uid(), host::uid());
        let gate = Self {
            dir: dir.to_path_buf(),
            uid,
            operator,
            child: None,
        };
        host::directory(dir, 0, 0o755);
        for public in ["policies", "boundary"] {
            host::directory(&dir.join(public), 0, 0o755);
        }
        for private in ["credentials", "ca", "audit"] {
            host::directory(&dir.join(private), uid, 0o700);
        }
        for shared in ["run", "runs"] {
            host::directory(&dir.join(shared), uid, 0o711);
        }
        gate.write_policy(policy);
        for credential in credentials {
            let text = format!("{}\n", credential.canary.secret);
            host::file(
                &dir.join("credentials").join(credential.name),
                &text,
                uid,
                0o600,
            );
        }
        let text = gate.configuration(agents, credentials, boundary);
        host::file(&gate.config(), &text, 0, 0o644);
        Program::new(binaries::path("portcullis-proxy"))
            .args(["ca", "init", "--config"])
            .arg(gate.config())
            .as_uid(uid)
            .run()
            .ok();
        gate
    }

    /// Replaces the policy file; the running gate sees it at the next reload.
    pub fn write_policy(&self, text: &str) {
        host::file(&self.policy(), text, 0, 0o644);
    }

    /// Starts it in `netns` and waits until it serves; panics with its log when it does not.
    pub fn start(&mut self, netns: &Netns) {
        self.try_start(netns)
            .unwrap_or_else(|log| panic!("the gate did not start:\n{log}"));
    }

    /// Starts it and waits until it serves or has ended; the error is its log.
    pub fn try_start(&mut self, netns: &Netns) -> Result<(), String> {
        self.try_start_with(netns, &[])
    }

    /// Starts it with variables of the environment, and waits until it serves.
    pub fn start_with(&mut self, netns: &Netns, variables: &[(&str, &str)]) {
        self.try_start_with(netns, variables)
            .unwrap_or_else(|log| panic!("the gate did not start:\n{log}"));
    }

    fn try_start_with(&mut self, netns: &Netns, variables: &[(&str, &str)]) -> Result<(), String> {
        let mut program = Program::new(binaries::path("portcullis-proxy"))
            .args(["run", "--config"])
            .arg(self.config());
        for (name, value) in variables {
            program = program.env(name, value);
        }
        let mut child = program
            .as_uid(self.uid)
            .in_netns(netns)
            .spawn_logging(&self.dir.join("log"));
        let serves = wait::until("the gate serves or ends", || {
            if let Ok(Some(_)) = child.try_wait() {
                return Some(false);
            }
            (listens(child.id()) && UnixStream::connect(self.control_socket()).is_ok())
                .then_some(true)
        });
        if serves {
            self.child = Some(child);
            Ok(())
        } else {
            Err(self.log())
        }
    }

    /// SIGKILL, and wait until it is gone.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("the gate runs");
        upstream::stop(&mut child);
    }

    /// SIGTERM; returns its exit code.
    pub fn stop(&mut self) -> Option<i32> {
        let mut child = self.child.take().expect("the gate runs");
        let pid = i32::try_from(child.id()).expect("a pid fits");
        kill(Pid::from_raw(pid), Signal::SIGTERM).expect("our own child");
        wait::until("the gate stops", || child.try_wait().ok().flatten()).code()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the gate runs").id()
    }

    /// Whether the process still runs.
    pub fn runs(&mut self) -> bool {
        self.child
            .as_mut()
            .is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Its audit log, one object a line.
    pub fn audit(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.audit_file()).unwrap_or_default();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
            .collect()
    }

    /// As [`Gate::audit`], of a log that a killed gate may have left with half a line.
    pub fn audit_lines(&self) -> Vec<Value> {
        let text = fs::read(self.audit_file()).unwrap_or_default();
        String::from_utf8_lossy(&text)
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    /// What it said, to operators.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    /// `proxy.toml`
    pub fn config(&self) -> PathBuf {
        self.dir.join("proxy.toml")
    }

    /// The policy of the one profile, `default`.
    pub fn policy(&self) -> PathBuf {
        self.dir.join("policies/default.toml")
    }

    /// The certificate clients must trust.
    pub fn ca(&self) -> PathBuf {
        self.dir.join("ca/ca.pem")
    }

    /// The audit log.
    pub fn audit_file(&self) -> PathBuf {
        self.dir.join("audit/audit.jsonl")
    }

    /// The control socket.
    pub fn control_socket(&self) -> PathBuf {
        self.dir.join("run/control.sock")
    }

    /// Where the boundary's status is looked for.
    pub fn boundary_status(&self) -> PathBuf {
        self.dir.join("boundary/status.json")
    }

    fn configuration(
        &self,
        agents: &[u32],
        credentials: &[Credential],
        boundary: Boundary,
    ) -> String {
        let dir = self.dir.display();
        // A port that nobody may use is an error, so it is left out without agents.
        let mut text = String::new();
        if !agents.is_empty() {
            write!(text, "[listen]\ntcp = \"{ADDRESS}\"\n").expect("text grows");
        }
        for uid in agents {
            write!(
                text,
                "[[listen.identity]]\nuid = {uid}\nagent = \"agent-{uid}\"\ncompany = \"acme\"\n\
                 profile = \"default\"\n"
            )
            .expect("text grows");
        }
        let boundary = match boundary {
            Boundary::External => "external = \"a namespace without a way out\"".to_owned(),
            Boundary::Kernel => format!("status = \"{}\"", self.boundary_status().display()),
        };
        write!(
            text,
            "[control]\nsocket = \"{dir}/run/control.sock\"\n\
             [[control.peer]]\nuser = \"{operator}\"\nprofiles = [\"default\"]\ninline = true\n\
             admin = true\n\
             [runs]\ndirectory = \"{dir}/runs\"\n\
             [board]\nsocket = \"{dir}/board.sock\"\n\
             [ca]\ndirectory = \"{dir}/ca\"\n\
             [audit]\ndirectory = \"{dir}/audit\"\n\
             [boundary]\n{boundary}\n\
             [profile.default]\npolicy = \"{dir}/policies/default.toml\"\n",
            operator = self.operator,
        )
        .expect("text grows");
        for credential in credentials {
            write!(
                text,
                "[credential.{name}]\nkind = \"{kind}\"\nfile = \"{dir}/credentials/{name}\"\n\
                 hosts = [\"{host}\"]\n",
                name = credential.name,
                kind = credential.kind,
                host = credential.host.replace(' ', "\", \""),
            )
            .expect("text grows");
            if credential.kind == "header" {
                text.push_str("header = \"x-api-key\"\n");
            }
        }
        text
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            upstream::stop(child);
        }
        if std::thread::panicking() {
            eprint_tail(&self.log());
        }
    }
}

/// Whether the namespace of process `pid` has a listener on the gate's port.
fn listens(pid: u32) -> bool {
    let port = ADDRESS
        .rsplit(':')
        .next()
        .and_then(|port| port.parse::<u16>().ok())
        .unwrap_or(0);
    // Local address and port in hex, remote address, state 0A.
    let wanted = format!(":{port:04X} 00000000:0000 0A ");
    fs::read_to_string(format!("/proc/{pid}/net/tcp")).is_ok_and(|table| table.contains(&wanted))
}

#[allow(
    clippy::print_stderr,
    reason = "a failing test shows what the gate had to say"
)]
fn eprint_tail(log: &str) {
    let lines: Vec<_> = log.lines().collect();
    eprintln!(
        "--- the gate's log ---\n{}",
        lines[lines.len().saturating_sub(40)..].join("\n")
    );
}
