//! `portcullis-relay`: the first process of a run container, and of somebody's own. See the `relay` and `sidecar` modules.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use nix::sys::signal::{Signal, kill};
use orchestrator::relay::{self, Control, Ended, Spec};
use orchestrator::sidecar::{self, Place};

const USAGE: &str = "\
Carries loopback connections to the gate's unix socket and runs a command beside that

Usage: portcullis-relay [--gate SOCKET] [--listen IP:PORT] [--direct] (-- COMMAND… | --control-fd N)
       portcullis-relay sidecar [--share DIR] [--boundary STATUS] (-- COMMAND… | --check)
       portcullis-relay environment [--gate URL] [--share DIR] [--write DIR]

  --gate SOCKET      the run's socket [default: /run/portcullis/gate.sock]
  --listen IP:PORT   where clients connect [default: 127.0.0.1:3128]
  --direct           also serve programs that ignore proxy variables: answer names on port 53 of
                     loopback as the gate says, and carry what is dialled at their addresses;
                     needs a network namespace of its own and may bind ports 53, 80 and 443
  --control-fd N     take the command from the engine over this descriptor

sidecar: the entrypoint of somebody's own agent container. Refuses to start where the gate would be worth nothing (root,
capabilities, the host's network, a container engine's socket, no wall), else runs the command behind the gate.
  --share DIR        the gate's volume [default: /portcullis]
  --boundary STATUS  the container shares a network namespace that the boundary guards, by this status file;
                     without it the container may have no network at all
  --check            only look: exit status 0 when a command would be started, 125 when not

environment: prints NAME=VALUE lines for programs that see the gate's volume at --share; with --write, puts that and the
files of apt, git, wget and Maven into DIR
  --gate URL         where such programs reach the gate [default: http://127.0.0.1:3128]

Examples:
  portcullis-relay --gate /run/portcullis/gate.sock -- curl https://example.com/
  portcullis-relay sidecar -- claude -p 'Say hello'

Exit status: the command's; 125 when it is not started, 126 and 127 as a shell says them, 2 for wrong usage";

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1).peekable();
    let done = match words.peek().map(String::as_str) {
        Some("sidecar") => Sidecar::parse(words.skip(1)).map(|it| it.map(Sidecar::run)),
        Some("environment") => Written::parse(words.skip(1)).map(|it| it.map(Written::run)),
        _ => Arguments::parse(words).map(|it| it.map(run)),
    };
    let done = match done {
        Ok(Some(done)) => done,
        Ok(None) => {
            say(USAGE);
            return ExitCode::SUCCESS;
        }
        Err(problem) => {
            say(&format!("portcullis-relay: {problem}\n{USAGE}"));
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(ended) => ExitCode::from(u8::try_from(ended.code()).unwrap_or(1)),
        Err((code, problem)) => {
            say(&format!("portcullis-relay: {problem}"));
            ExitCode::from(code)
        }
    }
}

struct Arguments {
    gate: PathBuf,
    listen: SocketAddr,
    control: Option<RawFd>,
    direct: bool,
    command: Vec<String>,
}

impl Arguments {
    /// `None` when help was asked for.
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut this = Self {
            gate: PathBuf::from("/run/portcullis/gate.sock"),
            listen: SocketAddr::from(([127, 0, 0, 1], 3128)),
            control: None,
            direct: false,
            command: Vec::new(),
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} needs a value"));
            match word.as_str() {
                "--gate" => this.gate = PathBuf::from(value()?),
                "--listen" => {
                    let text = value()?;
                    this.listen = text.parse().map_err(|_| format!("{text} is not IP:PORT"))?;
                }
                "--control-fd" => {
                    let text = value()?;
                    let number = text
                        .parse()
                        .map_err(|_| format!("{text} is not a number"))?;
                    this.control = Some(number);
                }
                "--direct" => this.direct = true,
                "--help" | "-h" => return Ok(None),
                "--" => {
                    this.command = words.collect();
                    break;
                }
                other => return Err(format!("unknown argument {other}")),
            }
        }
        if this.command.is_empty() == this.control.is_none() {
            return Err("give either a command after -- or --control-fd".to_owned());
        }
        Ok(Some(this))
    }
}

/// `sidecar`
struct Sidecar {
    place: Place,
    check: bool,
    command: Vec<String>,
}

impl Sidecar {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut this = Self {
            place: Place {
                share: PathBuf::from(sidecar::SHARE),
                boundary: None,
            },
            check: false,
            command: Vec::new(),
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} needs a value"));
            match word.as_str() {
                "--share" => this.place.share = absolute(value()?)?,
                "--boundary" => this.place.boundary = Some(absolute(value()?)?),
                "--check" => this.check = true,
                "--help" | "-h" => return Ok(None),
                "--" => {
                    this.command = words.collect();
                    break;
                }
                other => return Err(format!("unknown argument {other}")),
            }
        }
        if this.command.is_empty() != this.check {
            let problem = "give either a command after -- or --check; an entrypoint in a compose file \
                           takes the place of the image's, so its command has to be written out";
            return Err(problem.to_owned());
        }
        Ok(Some(this))
    }

    fn run(self) -> Result<Ended, (u8, String)> {
        let refusals = self.place.refusals();
        if !refusals.is_empty() {
            let mut text = "this agent is not started:".to_owned();
            for refusal in refusals {
                text.push_str(&format!(
                    "\n- {}\n  hint: {}",
                    refusal.problem, refusal.remedy
                ));
            }
            return Err((125, text));
        }
        if self.check {
            say("portcullis-relay: an agent may start here");
            return Ok(Ended::Code(0));
        }
        // Whatever file it executes, it stays who it is.
        nix::sys::prctl::set_no_new_privs()
            .map_err(|error| (125, format!("cannot give up new privileges: {error}")))?;
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]);
        command.envs(
            self.place
                .variables(|name| std::env::var_os(name).is_some()),
        );
        if self.place.boundary.is_some() {
            // The gate listens on this namespace's own loopback: there is nothing to carry.
            return Err(become_it(&mut command));
        }
        let warning = sidecar::resolver_warning(Path::new("/etc/resolv.conf"));
        if let Some(warning) = warning {
            say(&format!("portcullis-relay: warning: {warning}"));
        }
        let arguments = Arguments {
            gate: self.place.gate(),
            listen: SocketAddr::from(([127, 0, 0, 1], 3128)),
            control: None,
            direct: true,
            command: Vec::new(),
        };
        run_command(arguments, Some(command))
    }
}

/// Replaces this process; returns only when that failed.
fn become_it(command: &mut Command) -> (u8, String) {
    use std::os::unix::process::CommandExt;
    let name = command.get_program().to_string_lossy().into_owned();
    let error = command.exec();
    let missing = error.kind() == std::io::ErrorKind::NotFound;
    (
        if missing { 127 } else { 126 },
        format!("cannot run {name}: {error}"),
    )
}

/// `environment`
struct Written {
    gate: String,
    share: PathBuf,
    directory: Option<PathBuf>,
}

impl Written {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut this = Self {
            gate: sidecar::GATE.to_owned(),
            share: PathBuf::from(sidecar::SHARE),
            directory: None,
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} needs a value"));
            match word.as_str() {
                "--gate" => this.gate = url(value()?)?,
                "--share" => this.share = absolute(value()?)?,
                "--write" => this.directory = Some(PathBuf::from(value()?)),
                "--help" | "-h" => return Ok(None),
                other => return Err(format!("unknown argument {other}")),
            }
        }
        Ok(Some(this))
    }

    fn run(self) -> Result<Ended, (u8, String)> {
        let share = self.share.to_string_lossy();
        let Some(directory) = &self.directory else {
            print(&sidecar::env(&self.gate, &share));
            return Ok(Ended::Code(0));
        };
        for (name, text) in sidecar::files(&self.gate, &share) {
            let path = directory.join(name);
            std::fs::write(&path, text)
                .map_err(|error| (1, format!("cannot write {}: {error}", path.display())))?;
        }
        Ok(Ended::Code(0))
    }
}

/// Of a proxy that speaks plain HTTP, on one line.
fn url(text: String) -> Result<String, String> {
    let plain = |rest: &str| !rest.is_empty() && rest.chars().all(|it| it.is_ascii_graphic());
    match text.strip_prefix("http://").is_some_and(plain) {
        true => Ok(text),
        false => Err(format!("{text} is not http://ADDRESS:PORT")),
    }
}

fn absolute(text: String) -> Result<PathBuf, String> {
    let path = PathBuf::from(&text);
    match path.is_absolute() {
        true => Ok(path),
        false => Err(format!("{text} is not an absolute path")),
    }
}

fn run(arguments: Arguments) -> Result<Ended, (u8, String)> {
    run_command(arguments, None)
}

/// `given` takes the place of the command in `arguments`.
fn run_command(arguments: Arguments, given: Option<Command>) -> Result<Ended, (u8, String)> {
    let failed = |what: &str, error: &dyn std::fmt::Display| (125, format!("{what}: {error}"));
    relay::block_signals().map_err(|error| failed("cannot block signals", &error))?;
    // Nobody inside may look into this process: its memory and descriptors are not the command's.
    nix::sys::prctl::set_dumpable(false)
        .map_err(|error| failed("cannot become non-dumpable", &error))?;
    let mut control = match arguments.control {
        Some(number) => {
            let descriptor = orchestrator::spawn::adopt(number)
                .map_err(|error| failed("cannot take over the control descriptor", &error))?;
            Some(Control(UnixStream::from(descriptor)))
        }
        None => None,
    };
    relay::listen(arguments.listen, &arguments.gate)
        .map_err(|error| failed(&format!("cannot listen on {}", arguments.listen), &error))?;
    if arguments.direct {
        let bound = relay::Direct::bind().map_err(|error| {
            let hint = "--direct needs a network namespace of its own, and \
                        net.ipv4.ip_unprivileged_port_start=0 there unless it runs as root";
            (125, format!("cannot listen on {error}\n  hint: {hint}"))
        })?;
        bound
            .serve(&arguments.gate)
            .map_err(|error| failed("cannot serve names", &error))?;
    }
    let mut command = match (&mut control, given) {
        (None, Some(command)) => command,
        (Some(control), _) => {
            let spec =
                Spec::read(&mut control.0).map_err(|error| failed("no command to run", &error))?;
            described(&spec)
        }
        (None, None) => {
            let mut command = Command::new(&arguments.command[0]);
            command.args(&arguments.command[1..]);
            command
        }
    };
    let name = command.get_program().to_string_lossy().into_owned();
    let ended = relay::supervise(&mut command, |pid| {
        if let Some(control) = &mut control {
            let _engine_gone = control.say_started();
            if let Ok(orders) = control.0.try_clone() {
                std::thread::spawn(move || forward_orders(orders, pid));
            }
        }
    });
    let ended = ended.unwrap_or_else(|(code, error)| {
        say(&format!("portcullis-relay: cannot run {name}: {error}"));
        if let Some(control) = &mut control {
            let _engine_gone = control.say_started();
        }
        Ended::Code(code)
    });
    if let Some(control) = &mut control {
        let _engine_gone = control.say_ended(ended);
    }
    Ok(ended)
}

fn described(spec: &Spec) -> Command {
    let mut command = Command::new(&spec.argv[0]);
    command
        .args(&spec.argv[1..])
        .env_clear()
        .current_dir(&spec.directory);
    command.envs(spec.env.iter().map(|(name, value)| (name, value)));
    command
}

/// One byte is one signal for the command. The end of the stream means that the engine is gone:
/// the command is then asked to stop, and the container goes with it.
fn forward_orders(mut orders: UnixStream, command: nix::unistd::Pid) {
    use std::io::Read;
    let mut byte = [0; 1];
    while let Ok(1) = orders.read(&mut byte) {
        if let Ok(signal) = Signal::try_from(i32::from(byte[0])) {
            let _gone = kill(command, signal);
        }
    }
    let _gone = kill(command, Signal::SIGKILL);
}

#[allow(clippy::print_stdout, reason = "what `environment` was asked for")]
fn print(text: &str) {
    print!("{text}");
}

#[allow(clippy::print_stderr, reason = "the relay's only voice")]
fn say(text: &str) {
    eprintln!("{text}");
}
