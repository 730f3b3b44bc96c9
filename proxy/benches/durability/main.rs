//! What the record costs a request, side by side in one run: the same exchange with a credential
//! whose record is on the disk before it leaves, with one that is written and not waited for, and
//! with none; and one without a credential.
//!
//! `cargo bench -p proxy --bench durability -- --rounds 5 --seconds 1 --clients 64 --directory DIR`
//!
//! Everything is in this process: gates, each with one thread for its work, clients, and an upstream
//! with TLS. The gates' threads are kept on the first processor and the others on the last, so
//! that requests a second are what one processor can do. The ways take turns and the figures are medians
//! over the rounds. Processor time is that of the gate's threads, the log's among them. The log is put
//! below DIR, by default where temporary files are: look at what kind of disk that is.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement prints its figures and has nobody to recover for"
)]

mod clients;
mod origin;
mod stand;

use std::path::PathBuf;
use std::time::Duration;

use clients::{Clients, Load};
use origin::Origin;
use stand::{Stand, Way};

/// As the product's, so that its cost is in all figures.
#[global_allocator]
static ALLOCATOR: proxy::vault::Wiping = proxy::vault::Wiping;

const WAYS: [Way; 4] = [Way::Bare, Way::Off, Way::Written, Way::Durable];

struct Options {
    rounds: usize,
    span: Duration,
    clients: Vec<usize>,
    directory: PathBuf,
}

impl Options {
    fn read() -> Self {
        let mut options = Self {
            rounds: 5,
            span: Duration::from_secs(1),
            clients: vec![1, 16, 64],
            directory: std::env::temp_dir(),
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().unwrap_or_default();
            match word.as_str() {
                "--rounds" => options.rounds = value().parse().unwrap(),
                "--seconds" => options.span = Duration::from_secs_f64(value().parse().unwrap()),
                "--clients" => {
                    let value = value();
                    options.clients = value.split(',').map(|one| one.parse().unwrap()).collect();
                }
                "--directory" => options.directory = value().into(),
                // What cargo itself gives.
                "--bench" => {}
                other => panic!("{other} is no option of this measurement"),
            }
        }
        options
    }
}

fn main() {
    let options = Options::read();
    let directory = tempfile::tempdir_in(&options.directory).unwrap();
    let origin = Origin::start();
    let stands: Vec<Stand> = WAYS
        .into_iter()
        .map(|way| Stand::new(way, &directory.path().join(way.name()), &origin))
        .collect();
    let clients = Clients::new();
    println!(
        "{:<26}{:>4}{:>12}{:>14}{:>10}{:>10}{:>16}",
        "", "c", "requests/s", "us CPU each", "p50 us", "p99 us", "syncs a request"
    );
    for count in &options.clients {
        let mut seen: Vec<Vec<Load>> = WAYS.iter().map(|_| Vec::new()).collect();
        for round in 0..options.rounds {
            for turn in 0..stands.len() {
                let at = (turn + round) % stands.len();
                seen[at].push(clients.load(&stands[at], *count, options.span));
            }
        }
        let off = WAYS.iter().position(|way| *way == Way::Off).unwrap();
        let middle = |at: usize, figure: &dyn Fn(&Load) -> f64| median(&seen[at], figure);
        for (at, way) in WAYS.iter().enumerate() {
            let rate = middle(at, &Load::rate);
            let cpu = middle(at, &|load| load.cpu_us);
            print!(
                "{:<26}{count:>4}{rate:>12.0}{cpu:>14.1}{:>10.0}{:>10.0}{:>16.3}",
                way.name(),
                middle(at, &|load| load.p50_us),
                middle(at, &|load| load.p99_us),
                middle(at, &|load| load.syncs),
            );
            if *way == Way::Written || *way == Way::Durable {
                print!(
                    "   against off: rate {:+.1} %, CPU {:+.1} %",
                    (rate / middle(off, &Load::rate) - 1.0) * 100.0,
                    (cpu / middle(off, &|load| load.cpu_us) - 1.0) * 100.0,
                );
            }
            println!();
        }
    }
}

fn median(loads: &[Load], figure: &dyn Fn(&Load) -> f64) -> f64 {
    let mut figures: Vec<f64> = loads.iter().map(figure).collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Keeps the calling thread, and what it starts, on the first or the last processor.
fn keep_on(last: bool) {
    use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
    use nix::unistd::Pid;
    let this = Pid::from_raw(0);
    let all = sched_getaffinity(this).unwrap();
    let mut own = (0..CpuSet::count()).filter(|cpu| all.is_set(*cpu).unwrap_or(false));
    let wanted = if last { own.next_back() } else { own.next() };
    let mut only = CpuSet::new();
    only.set(wanted.unwrap()).unwrap();
    sched_setaffinity(this, &only).unwrap();
}
