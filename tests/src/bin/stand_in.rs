//! `portcullis-stand-in`: upstreams for tests and demos where there is no internet.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the command's own voice"
)]

use std::error::Error;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use tests::pki::{Made, Pki};
use tests::stand_in::listener::Listen;
use tests::stand_in::{git, github, grpc, https, model, plain, proxmox, server, websocket};

const EXAMPLES: &str = "\
Examples:
  portcullis-stand-in pki --dir /tmp/pki --host git.portcullis.test --host 127.0.0.1
  portcullis-stand-in git --root /srv/git --repo acme/web --listen 127.0.0.1:8443 \\
      --cert /tmp/pki/leaf.pem --key /tmp/pki/leaf.key \\
      --user x-access-token --password-file /tmp/token --log /tmp/requests.jsonl
  portcullis-stand-in https --listen 127.0.0.1:9443 --cert /tmp/pki/leaf.pem \\
      --key /tmp/pki/leaf.key --record /tmp/record";

/// Upstreams for tests and demos: a git host, a recording web server, and their certificates
#[derive(Parser)]
#[command(version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve bare repositories by `git http-backend` behind TLS and Basic authentication
    Git(GitArgs),
    /// Record every decrypted byte and answer by path
    ///
    /// Paths: /status/CODE, /redirect/HOST/PATH, /bytes/N, /drip/N (one line each 50 ms), /echo,
    /// /names (header names as JSON), /challenge (401); anything else answers 200 `recorded`.
    Https(HttpsArgs),
    /// Serve a folder's files, streams of any length, an echo and a sink; record nothing
    ///
    /// Paths: /stream/N, /sink, /echo, /version, and the files.
    Plain(PlainArgs),
    /// Model APIs that call one tool and are done
    Model(ApiArgs),
    /// GitHub's API for one repository, acme/web
    Github(ApiArgs),
    /// The API of Proxmox VE for one node and one container
    Proxmox(ApiArgs),
    /// gRPC of every streaming kind; messages are bytes
    Grpc(ListenArgs),
    /// Send every WebSocket message back
    Websocket(ListenArgs),
    /// Make a private authority and a leaf: DIR/{ca.pem,ca.key,leaf.pem,leaf.key,hosts}
    ///
    /// An existing authority is kept; with the same hosts nothing is changed at all.
    Pki(PkiArgs),
}

#[derive(Args)]
struct ListenArgs {
    /// Address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDR")]
    listen: SocketAddr,
    /// Certificate chain
    #[arg(long, value_name = "PEM")]
    cert: PathBuf,
    /// Private key of the certificate
    #[arg(long, value_name = "PEM")]
    key: PathBuf,
    /// Offer HTTP/2 too (plain, model, github and proxmox; grpc always does)
    #[arg(long)]
    http2: bool,
    /// Write the bound ADDR:PORT here once connections are accepted
    #[arg(long, value_name = "FILE")]
    ready: Option<PathBuf>,
}

#[derive(Args)]
struct GitArgs {
    #[command(flatten)]
    listen: ListenArgs,
    /// Directory of the bare repositories, OWNER/NAME.git
    #[arg(long, value_name = "DIR")]
    root: PathBuf,
    /// Make this repository, with one commit on main, unless it exists
    #[arg(long, value_name = "OWNER/NAME")]
    repo: Vec<String>,
    /// The only user name that is let in
    #[arg(long, value_name = "U")]
    user: String,
    /// File that holds the password; one trailing newline is ignored
    #[arg(long, value_name = "F", required_unless_present = "password")]
    password_file: Option<PathBuf>,
    /// The password itself, where nobody looks at command lines
    #[arg(long, value_name = "P", conflicts_with = "password_file")]
    password: Option<String>,
    /// Append one JSON line per request: header names and whether the credential was right
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
}

#[derive(Args)]
struct HttpsArgs {
    #[command(flatten)]
    listen: ListenArgs,
    /// Directory of the records, one file per connection: 0001.bytes, 0002.bytes, ...
    #[arg(long, value_name = "DIR")]
    record: PathBuf,
}

#[derive(Args)]
struct PlainArgs {
    #[command(flatten)]
    listen: ListenArgs,
    /// Folder whose files are served
    #[arg(long, value_name = "DIR")]
    root: PathBuf,
}

#[derive(Args)]
struct ApiArgs {
    #[command(flatten)]
    listen: ListenArgs,
    /// The credential that lets a caller in
    #[arg(long, value_name = "SECRET")]
    credential: String,
}

#[derive(Args)]
struct PkiArgs {
    /// Directory to make or complete
    #[arg(long, value_name = "D")]
    dir: PathBuf,
    /// Name or address the leaf speaks for; may be repeated
    #[arg(long, value_name = "H", required = true)]
    host: Vec<String>,
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("portcullis-stand-in: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(command: Command) -> Result<(), Box<dyn Error>> {
    match command {
        Command::Git(args) => {
            let password = password(&args)?;
            fs::create_dir_all(&args.root)?;
            for name in &args.repo {
                git::make_repository(&args.root, name)?;
            }
            let host = git::GitHost {
                root: args.root,
                user: args.user,
                password,
                log: args.log,
            };
            runtime()?.block_on(git::serve(host, &args.listen.into()))?;
        }
        Command::Https(args) => {
            runtime()?.block_on(https::serve(args.record, &args.listen.into()))?;
        }
        Command::Plain(args) => {
            let answer = move |request| plain::answer(args.root.clone(), request);
            runtime()?.block_on(server::serve(&args.listen.into(), answer))?;
        }
        Command::Model(args) => {
            let answer = move |request| model::answer(args.credential.clone(), request);
            runtime()?.block_on(server::serve(&args.listen.into(), answer))?;
        }
        Command::Github(args) => {
            let answer = move |request| github::answer(args.credential.clone(), request);
            runtime()?.block_on(server::serve(&args.listen.into(), answer))?;
        }
        Command::Proxmox(args) => {
            let answer = move |request| proxmox::answer(args.credential.clone(), request);
            runtime()?.block_on(server::serve(&args.listen.into(), answer))?;
        }
        Command::Grpc(args) => {
            let mut listen = Listen::from(args);
            listen.http2 = true;
            runtime()?.block_on(server::serve(&listen, grpc::answer))?;
        }
        Command::Websocket(args) => runtime()?.block_on(websocket::serve(&args.into()))?,
        Command::Pki(args) => {
            let (pki, made) = Pki::make(&args.dir, &args.host)?;
            let word = match made {
                Made::Written => "written",
                Made::Unchanged => "unchanged",
            };
            println!("{}: {word}", pki.dir.display());
        }
    }
    Ok(())
}

fn password(args: &GitArgs) -> Result<String, Box<dyn Error>> {
    let (Some(file), None) = (&args.password_file, &args.password) else {
        return Ok(args.password.clone().unwrap_or_default());
    };
    let password =
        fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let password = password.strip_suffix('\n').unwrap_or(&password).to_owned();
    if password.is_empty() {
        return Err(format!("{}: holds no password", file.display()).into());
    }
    Ok(password)
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
}

impl From<ListenArgs> for Listen {
    fn from(args: ListenArgs) -> Self {
        Self {
            address: args.listen,
            cert: args.cert,
            key: args.key,
            http2: args.http2,
            ready: args.ready,
        }
    }
}
