//! `portcullis-probe`: the hostile client of the acceptance suite.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the command's own voice"
)]

use std::fs;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getgid, getuid};
use tests::probe::{self, Outcome, Report, Targets};
use tests::{call, canary};

const EXAMPLES: &str = "\
Examples:
  portcullis-probe tcp 192.0.2.1:7
  portcullis-probe all --peer 192.0.2.1 --peer 2001:db8::1 --tcp-port 7 --udp-port 7 --loopback 5432

Each attempt prints one JSON line:
  {\"attempt\":\"tcp4\",\"target\":\"192.0.2.1:7\",\"outcome\":\"failed\",\"errno\":\"ECONNREFUSED\",\"ms\":0,\"escaped\":false}
outcome is one of connected, failed, nothing, opened, replied, sent, timed-out.
Exit status: 0 nothing escaped, 1 something did, 2 the probe could not be run.";

/// Try everything an agent could try to get past the gate
#[derive(Parser)]
#[command(version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Patience for each attempt
    #[arg(long, value_name = "MS", default_value_t = 1500, global = true)]
    timeout_ms: u64,
}

#[derive(Subcommand)]
enum Command {
    /// Every attempt below, against every peer
    All {
        /// Address of a peer outside; may be repeated, v4 and v6
        #[arg(long, value_name = "IP")]
        peer: Vec<IpAddr>,
        /// TCP port the peers listen on
        #[arg(long, default_value_t = 443)]
        tcp_port: u16,
        /// UDP port the peers echo on
        #[arg(long, default_value_t = 443)]
        udp_port: u16,
        /// Loopback port other than the gate's; may be repeated
        #[arg(long, value_name = "PORT")]
        loopback: Vec<u16>,
    },
    /// Connect
    Tcp { target: SocketAddr },
    /// Send a datagram and wait for an answer
    Udp { target: SocketAddr },
    /// Send datagrams, and begin connections, until killed; prints nothing
    Send {
        /// Whom to; may be repeated
        #[arg(required = true)]
        target: Vec<SocketAddr>,
        /// Pause between two rounds
        #[arg(long, value_name = "MS", default_value_t = 5)]
        every_ms: u64,
    },
    /// Ask a resolver for a name
    Dns { target: SocketAddr },
    /// Ask the system's resolver for a name
    Resolver { name: String },
    /// Ping through an unprivileged ping socket
    Icmp { target: IpAddr },
    /// Ping through a raw socket
    Raw { target: IpAddr },
    /// Open a packet socket
    Packet,
    /// Become root of a new user namespace, then TCP, raw and packet from there
    UserNamespace { target: SocketAddr },
    /// List descriptors the parent left open
    InheritedDescriptors,
    /// Connect to every abstract unix socket in sight
    AbstractSockets,
    /// Call the gRPC echo server through the gate's tunnel, as an ordinary client
    Grpc {
        /// The gate, ADDRESS:PORT
        #[arg(long)]
        gate: String,
        /// Whom to trust
        #[arg(long, value_name = "PEM")]
        roots: PathBuf,
        /// The server's name
        host: String,
        /// Path of the unary method
        method: String,
    },
    /// Look for byte strings in files and processes; prints FORM, tab, PLACE
    ///
    /// Standard input names them, one a line: the bytes in hex, a space, a name.
    Search {
        /// File or folder to search; may be repeated
        #[arg(long, value_name = "PATH")]
        root: Vec<PathBuf>,
        /// Also search what /proc shows of every process
        #[arg(long)]
        processes: bool,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let patience = Duration::from_millis(cli.timeout_ms);
    let reports = match cli.command {
        Command::All {
            peer,
            tcp_port,
            udp_port,
            loopback,
        } => probe::all(&Targets {
            peers: peer,
            tcp_port,
            udp_port,
            loopback,
            patience,
        }),
        Command::Tcp { target } => vec![probe::tcp(target, patience)],
        Command::Udp { target } => vec![probe::udp(target, patience)],
        Command::Dns { target } => vec![probe::dns(target, patience)],
        Command::Resolver { name } => vec![probe::resolver(&name)],
        Command::Icmp { target } => vec![probe::icmp(target, patience)],
        Command::Raw { target } => vec![probe::raw(target)],
        Command::Packet => vec![probe::packet()],
        Command::UserNamespace { target } => namespaced(target, patience),
        Command::InheritedDescriptors => probe::inherited_descriptors(),
        Command::AbstractSockets => probe::abstract_sockets(),
        Command::Send { target, every_ms } => {
            return match probe::send(&target, Duration::from_millis(every_ms)) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    eprintln!("portcullis-probe: {error}");
                    ExitCode::from(2)
                }
            };
        }
        Command::Search { root, processes } => return search(&root, processes),
        Command::Grpc {
            gate,
            roots,
            host,
            method,
        } => return grpc(&gate, &host, &roots, &method),
    };
    let mut escaped = false;
    for report in &reports {
        escaped |= report.escaped;
        match serde_json::to_string(report) {
            Ok(line) => println!("{line}"),
            Err(error) => {
                eprintln!("portcullis-probe: {error}");
                return ExitCode::from(2);
            }
        }
    }
    if escaped {
        ExitCode::from(1)
    } else {
        ExitCode::SUCCESS
    }
}

fn grpc(gate: &str, host: &str, roots: &Path, method: &str) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let said = match runtime {
        Ok(runtime) => runtime.block_on(call::echo(gate, host, roots, method)),
        Err(error) => Err(error.into()),
    };
    match said {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("{error}");
            ExitCode::from(1)
        }
    }
}

fn search(roots: &[PathBuf], processes: bool) -> ExitCode {
    let mut input = String::new();
    if let Err(error) = std::io::stdin().read_to_string(&mut input) {
        eprintln!("portcullis-probe: standard input: {error}");
        return ExitCode::from(2);
    }
    let forms: Option<Vec<_>> = input.lines().map(form).collect();
    let Some(forms) = forms.filter(|forms| !forms.is_empty()) else {
        eprintln!("portcullis-probe: standard input: each line is HEX NAME");
        return ExitCode::from(2);
    };
    let mut found: Vec<_> = roots
        .iter()
        .flat_map(|root| canary::search(&forms, root))
        .collect();
    if processes {
        found.extend(canary::search_processes(&forms));
    }
    for sighting in &found {
        println!("{}\t{}", sighting.form, sighting.place);
    }
    if found.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    }
}

fn form(line: &str) -> Option<(String, Vec<u8>)> {
    let (hex, name) = line.split_once(' ')?;
    let bytes = hex
        .as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    Some((name.to_owned(), bytes.collect::<Option<_>>()?))
}

/// The namespace itself is no escape: what can be reached from it is.
fn namespaced(target: SocketAddr, patience: Duration) -> Vec<Report> {
    let (uid, gid) = (getuid(), getgid());
    let opened = unshare(CloneFlags::CLONE_NEWUSER).and_then(|()| {
        let write = |file: &str, text: String| {
            fs::write(format!("/proc/self/{file}"), text).map_err(|_| nix::errno::Errno::EPERM)
        };
        write("setgroups", "deny".to_owned())?;
        write("uid_map", format!("0 {uid} 1"))?;
        write("gid_map", format!("0 {gid} 1"))
    });
    let mut reports = vec![Report {
        attempt: "userns".to_owned(),
        target: target.to_string(),
        outcome: if opened.is_ok() {
            Outcome::Opened
        } else {
            Outcome::Failed
        },
        errno: opened.err().map(|errno| format!("{errno:?}")),
        ms: 0,
        escaped: false,
    }];
    for mut report in [
        probe::tcp(target, patience),
        probe::raw(target.ip()),
        probe::packet(),
    ] {
        report.attempt = format!("userns-{}", report.attempt);
        reports.push(report);
    }
    reports
}
