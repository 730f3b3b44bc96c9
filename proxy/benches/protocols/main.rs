//! What the versions of HTTP on either side cost the gate beside a tunnel that looks at nothing, what
//! it costs to look for the credential in the answers, and what a refused CONNECT costs.
//!
//! `cargo bench -p proxy --features measure --bench protocols -- --rounds 5 --seconds 0.5 --clients 16,64
//! --only versions,search,refused --directory DIR`
//!
//! Everything is in this process, as in the bench `durability`, whose upstream and gates these are: the
//! gate's one thread and the tunnel's are kept on the first processor, all others on the last one. The
//! ways take turns, and the figures are medians over the rounds. The log is put below DIR. Each client
//! has a connection of its own with one request at a time, over HTTP/2 too.
//!
//! *Not looked for* is a credential of seven bytes, which would be found everywhere and is therefore
//! passed over: all else is the same.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a measurement prints its figures, has nobody to recover for, and its clients dial"
)]

mod clients;
#[path = "../durability/load.rs"]
mod load;
#[path = "../durability/origin.rs"]
mod origin;
#[path = "../durability/processors.rs"]
mod processors;
#[allow(dead_code, reason = "the other bench asks for more")]
#[path = "../durability/stand.rs"]
mod stand;
#[path = "../durability/trust.rs"]
mod trust;
mod tunnel;

use std::path::PathBuf;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use clients::{Aim, Clients};
use load::{Load, median};
use origin::{HOSTS, LARGE, Origin};
use stand::{SECRET, Stand, Way};

/// As the product's, so that its cost is in all figures.
#[global_allocator]
static ALLOCATOR: proxy::vault::Wiping = proxy::vault::Wiping;

const SHORT: &str = "/v1/items/7?page=2";

struct Options {
    rounds: usize,
    span: Duration,
    clients: Vec<usize>,
    only: Vec<String>,
    directory: PathBuf,
}

impl Options {
    fn read() -> Self {
        let mut options = Self {
            rounds: 5,
            span: Duration::from_millis(500),
            clients: vec![16],
            only: ["versions", "search", "refused"].map(str::to_owned).into(),
            directory: std::env::temp_dir(),
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().unwrap_or_default();
            let list = |text: String| text.split(',').map(str::to_owned).collect::<Vec<_>>();
            match word.as_str() {
                "--rounds" => options.rounds = value().parse().unwrap(),
                "--seconds" => options.span = Duration::from_secs_f64(value().parse().unwrap()),
                "--clients" => {
                    let counts = list(value()).into_iter();
                    options.clients = counts.map(|count| count.parse().unwrap()).collect();
                }
                "--only" => options.only = list(value()),
                "--directory" => options.directory = value().into(),
                // What cargo itself gives.
                "--bench" => {}
                other => panic!("{other} is no option of this measurement"),
            }
        }
        options
    }

    fn wants(&self, part: &str) -> bool {
        self.only.iter().any(|only| only == part)
    }
}

/// One line of a table: what it is called, where its clients go, and which line it is held against.
struct Line {
    name: String,
    aim: Aim,
    against: usize,
}

/// What all parts need.
struct Bench {
    options: Options,
    directory: tempfile::TempDir,
    clients: Clients,
    old: Origin,
    new: Origin,
}

fn main() {
    let options = Options::read();
    let bench = Bench {
        directory: tempfile::tempdir_in(&options.directory).unwrap(),
        old: Origin::start(&["http/1.1"]),
        new: Origin::start(&["h2"]),
        clients: Clients::new(),
        options,
    };
    println!(
        "{:<44}{:>4}{:>12}{:>14}{:>10}{:>10}{:>12}",
        "", "c", "requests/s", "us CPU each", "p50 us", "p99 us", "CPU against"
    );
    if bench.options.wants("versions") {
        bench.versions();
    }
    if bench.options.wants("search") {
        bench.search();
    }
    if bench.options.wants("refused") {
        bench.refused();
    }
}

impl Bench {
    fn stand(&self, name: &str, way: Way, origin: &Origin, secret: &str) -> Stand {
        Stand::new(way, 1, &self.directory.path().join(name), origin, secret)
    }

    /// Each version on each side, held against a tunnel in which the client speaks the same.
    fn versions(&self) {
        let tunnel = |http2: bool| {
            let origin = if http2 { &self.new } else { &self.old };
            Line {
                name: format!("tunnel, {} inside", version(http2)),
                aim: Aim {
                    proxy: tunnel::start(origin.address),
                    ca: CertificateDer::from_pem_slice(origin.ca.as_bytes()).unwrap(),
                    host: HOSTS[1],
                    path: SHORT,
                    http2,
                },
                against: usize::from(http2),
            }
        };
        let mut lines = vec![tunnel(false), tunnel(true)];
        let mut stands = Vec::new();
        for way in [Way::Bare, Way::Durable] {
            for upstream in [false, true] {
                let origin = if upstream { &self.new } else { &self.old };
                let name = format!("{way:?} {upstream}");
                let stand = self.stand(&name, way, origin, SECRET);
                for http2 in [false, true] {
                    let (from, to) = (version(http2), version(upstream));
                    let name = format!("{from} to {to}, {}", way.name());
                    let aim = aim(&stand, SHORT, http2);
                    let against = usize::from(http2);
                    lines.push(Line { name, aim, against });
                }
                stands.push(stand);
            }
        }
        for count in &self.options.clients {
            self.measure(&lines, *count);
        }
    }

    /// The same exchange whose answer is looked through and whose is not. Nobody waits for the disk.
    fn search(&self) {
        let (looked, not) = ("credential, looked for", "credential, not looked for");
        for (path, size, count) in [(SHORT, "1 KiB", 16), (LARGE, "1 MiB", 4)] {
            let mut stands = Vec::new();
            for (what, secret) in [(not, "seven-7"), (looked, SECRET)] {
                let stand = self.stand(&format!("{what} {size}"), Way::Written, &self.old, secret);
                stands.push((what, stand));
            }
            let line = |(what, stand): &(&str, Stand)| Line {
                name: format!("{size}, {what}"),
                aim: aim(stand, path, false),
                against: 0,
            };
            let lines: Vec<Line> = stands.iter().map(line).collect();
            self.measure(&lines, count);
        }
    }

    /// A new connection each time, refused on its CONNECT.
    fn refused(&self) {
        let stand = self.stand("refused", Way::Bare, &self.old, SECRET);
        let loads: Vec<Load> = (0..self.options.rounds)
            .map(|_| self.clients.refused(stand.address, self.options.span))
            .collect();
        tell("a refused CONNECT, with its connection", 1, &loads, None);
    }

    /// All of them in turn, as often as there are rounds; a line of figures for each.
    fn measure(&self, lines: &[Line], count: usize) {
        let mut seen: Vec<Vec<Load>> = lines.iter().map(|_| Vec::new()).collect();
        for round in 0..self.options.rounds {
            for turn in 0..lines.len() {
                let at = (turn + round) % lines.len();
                let load = self.clients.load(&lines[at].aim, count, self.options.span);
                seen[at].push(load);
            }
        }
        for (at, line) in lines.iter().enumerate() {
            let against = (line.against != at).then(|| seen[line.against].as_slice());
            tell(&line.name, count, &seen[at], against);
        }
    }
}

fn aim(stand: &Stand, path: &'static str, http2: bool) -> Aim {
    Aim {
        proxy: stand.address,
        ca: stand.ca(),
        host: stand.way.host(),
        path,
        http2,
    }
}

fn version(http2: bool) -> &'static str {
    if http2 { "HTTP/2" } else { "HTTP/1.1" }
}

fn tell(name: &str, count: usize, loads: &[Load], against: Option<&[Load]>) {
    let cpu = |loads: &[Load]| median(loads, &|load| load.cpu_us);
    print!(
        "{name:<44}{count:>4}{:>12.0}{:>14.1}{:>10.0}{:>10.0}",
        median(loads, &Load::rate),
        cpu(loads),
        median(loads, &|load| load.p50_us),
        median(loads, &|load| load.p99_us),
    );
    match against {
        Some(against) => println!("{:>10.2} x", cpu(loads) / cpu(against)),
        None => println!(),
    }
}
