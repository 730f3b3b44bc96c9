//! `portcullis-relay`: the first process of a run container. See the `relay` module.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use nix::sys::signal::{Signal, kill};
use orchestrator::relay::{self, Control, Ended, Spec};

const USAGE: &str = "\
Carries loopback connections to the gate's unix socket and runs a command beside that

Usage: portcullis-relay [--gate SOCKET] [--listen IP:PORT] [--direct] (-- COMMAND… | --control-fd N)

  --gate SOCKET      the run's socket [default: /run/portcullis/gate.sock]
  --listen IP:PORT   where clients connect [default: 127.0.0.1:3128]
  --direct           also serve programs that ignore proxy variables: answer names on port 53 of
                     loopback as the gate says, and carry what is dialled at their addresses;
                     needs a network namespace of its own and may bind ports 53, 80 and 443
  --control-fd N     take the command from the engine over this descriptor

Example:
  portcullis-relay --gate /run/portcullis/gate.sock -- curl https://example.com/";

fn main() -> ExitCode {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(Some(arguments)) => arguments,
        Ok(None) => {
            say(USAGE);
            return ExitCode::SUCCESS;
        }
        Err(problem) => {
            say(&format!("portcullis-relay: {problem}\n{USAGE}"));
            return ExitCode::from(2);
        }
    };
    match run(arguments) {
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

fn run(arguments: Arguments) -> Result<Ended, (u8, String)> {
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
    let mut command = match &mut control {
        Some(control) => {
            let spec =
                Spec::read(&mut control.0).map_err(|error| failed("no command to run", &error))?;
            described(&spec)
        }
        None => {
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

#[allow(clippy::print_stderr, reason = "the relay's only voice")]
fn say(text: &str) {
    eprintln!("{text}");
}
