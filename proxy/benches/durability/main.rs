//! What the record costs a request, side by side in one run: the same exchange with a credential
//! whose record is on the disk before it leaves, with one that is written and not waited for, and
//! with none; and one without a credential.
//!
//! `cargo bench -p proxy --features measure --bench durability -- --rounds 5 --seconds 1 --clients 64
//! --workers 1,4 --directory DIR`
//!
//! Everything is in this process: gates, clients, and an upstream with TLS. A gate has as many threads
//! for its work as `--workers` says, by default one, and they are kept on as many of the first
//! processors, but not on the last one, where all others are. With one, requests a second are what one
//! processor can do; with `--anywhere` nobody is kept anywhere, and they are what the machine can do.
//! With `--log-apart` the log's thread is where the others are, as it is where a gate leaves a processor
//! to spare. `--ways` names some of the four by their places (0 to 3). The ways take turns and the figures are
//! medians over the rounds. Processor time is that of the gate's threads, the log's among them. The log is put
//! below DIR, by default where temporary files are: look at what kind of disk that is.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a measurement prints its figures, has nobody to recover for, and its clients dial"
)]

mod clients;
mod load;
mod origin;
mod processors;
mod stand;
mod trust;

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clients::{Clients, Recorded};
use load::median;
use origin::Origin;
use stand::{SECRET, Stand, Way};

/// As the product's, so that its cost is in all figures.
#[global_allocator]
static ALLOCATOR: proxy::vault::Wiping = proxy::vault::Wiping;

const WAYS: [Way; 4] = [Way::Bare, Way::Off, Way::Written, Way::Durable];

struct Options {
    rounds: usize,
    span: Duration,
    clients: Vec<usize>,
    workers: Vec<usize>,
    directory: PathBuf,
    ways: Vec<Way>,
    anywhere: bool,
    log_apart: bool,
}

impl Options {
    fn read() -> Self {
        let mut options = Self {
            rounds: 5,
            span: Duration::from_secs(1),
            clients: vec![1, 16, 64],
            workers: vec![1],
            directory: std::env::temp_dir(),
            ways: WAYS.to_vec(),
            anywhere: false,
            log_apart: false,
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().unwrap_or_default();
            match word.as_str() {
                "--rounds" => options.rounds = value().parse().unwrap(),
                "--seconds" => options.span = Duration::from_secs_f64(value().parse().unwrap()),
                "--clients" => options.clients = numbers(&value()),
                "--workers" => options.workers = numbers(&value()),
                "--ways" => options.ways = ways(&value()),
                "--directory" => options.directory = value().into(),
                "--anywhere" => options.anywhere = true,
                "--log-apart" => options.log_apart = true,
                // What cargo itself gives.
                "--bench" => {}
                other => panic!("{other} is no option of this measurement"),
            }
        }
        options
    }
}

fn numbers(text: &str) -> Vec<usize> {
    text.split(',').map(|one| one.parse().unwrap()).collect()
}

/// By their places in [`WAYS`]. That without a log must be among them.
fn ways(text: &str) -> Vec<Way> {
    let ways = numbers(text).into_iter().map(|at| WAYS[at]);
    ways.collect()
}

fn main() {
    let options = Options::read();
    processors::ANYWHERE.store(options.anywhere, Ordering::Relaxed);
    processors::LOG_APART.store(options.log_apart, Ordering::Relaxed);
    let directory = tempfile::tempdir_in(&options.directory).unwrap();
    let origin = Origin::start(&["http/1.1"]);
    let clients = Clients::new();
    println!(
        "{:<26}{:>4}{:>4}{:>12}{:>14}{:>10}{:>10}{:>16}",
        "", "w", "c", "requests/s", "us CPU each", "p50 us", "p99 us", "syncs a request"
    );
    for workers in &options.workers {
        let stand = |way: Way| {
            let directory = directory.path().join(format!("{} {workers}", way.name()));
            Stand::new(way, *workers, &directory, &origin, SECRET)
        };
        let stands: Vec<Stand> = options.ways.iter().copied().map(stand).collect();
        for count in &options.clients {
            let mut seen: Vec<Vec<Recorded>> = stands.iter().map(|_| Vec::new()).collect();
            for round in 0..options.rounds {
                for turn in 0..stands.len() {
                    let at = (turn + round) % stands.len();
                    seen[at].push(clients.load(&stands[at], *count, options.span));
                }
            }
            tell(&options.ways, *workers, *count, &seen);
        }
    }
}

/// A line for each way.
fn tell(ways: &[Way], workers: usize, count: usize, seen: &[Vec<Recorded>]) {
    let off = ways.iter().position(|way| *way == Way::Off).unwrap();
    let middle = |at: usize, figure: &dyn Fn(&Recorded) -> f64| median(&seen[at], figure);
    for (at, way) in ways.iter().enumerate() {
        let rate = middle(at, &|of| of.load.rate());
        let cpu = middle(at, &|of| of.load.cpu_us);
        print!(
            "{:<26}{workers:>4}{count:>4}{rate:>12.0}{cpu:>14.1}{:>10.0}{:>10.0}{:>16.3}",
            way.name(),
            middle(at, &|of| of.load.p50_us),
            middle(at, &|of| of.load.p99_us),
            middle(at, &|of| of.syncs),
        );
        if *way == Way::Written || *way == Way::Durable {
            print!(
                "   against off: rate {:+.1} %, CPU {:+.1} %",
                (rate / middle(off, &|of| of.load.rate()) - 1.0) * 100.0,
                (cpu / middle(off, &|of| of.load.cpu_us) - 1.0) * 100.0,
            );
        }
        println!();
    }
}
