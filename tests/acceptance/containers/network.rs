//! From inside a run container nothing on any network is reached, by any kind of socket.
//!
//! The container starts in a namespace where everything does answer: peers that look public, a
//! resolver, services on loopback, an abstract socket. Outside, the hostile client reaches each of
//! them; inside, none, and the peers hear nothing.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tests::binaries;
use tests::command::{Finished, Program};
use tests::netns::Netns;
use tests::probe::Report;

use super::Bench;

const PEERS: [&str; 2] = ["203.0.113.7", "2001:db8::7"];
const PORT: u16 = 7007;
const SERVICE: u16 = 5432;

/// Peers that echo whatever arrives, and count it.
struct Peers {
    netns: Netns,
    heard: Arc<AtomicUsize>,
}

impl Peers {
    fn open() -> Self {
        let netns = Netns::new();
        for peer in PEERS {
            netns.add_address(peer.parse().unwrap());
        }
        let peers = Self {
            netns,
            heard: Arc::default(),
        };
        // Pings without privilege are open to everybody here, so that a shut one says something.
        peers
            .enter("/bin/sh")
            .args([
                "-c",
                "echo 0 2147483647 > /proc/sys/net/ipv4/ping_group_range",
            ])
            .run()
            .ok();
        for peer in PEERS {
            let peer: IpAddr = peer.parse().unwrap();
            peers.echo_streams(SocketAddr::new(peer, PORT));
            peers.echo_datagrams(SocketAddr::new(peer, PORT));
            peers.echo_datagrams(SocketAddr::new(peer, 53));
        }
        for local in ["127.0.0.1", "::1"] {
            peers.echo_streams(SocketAddr::new(local.parse().unwrap(), SERVICE));
        }
        let heard = Arc::clone(&peers.heard);
        let listener = peers.bind(|| {
            let name = UnixAddress::from_abstract_name("portcullis-neighbour").unwrap();
            UnixListener::bind_addr(&name).unwrap()
        });
        std::thread::spawn(move || {
            for _caller in listener.incoming() {
                heard.fetch_add(1, Ordering::SeqCst);
            }
        });
        peers
    }

    fn bind<T: Send + 'static>(&self, make: impl FnOnce() -> T + Send + 'static) -> T {
        self.netns.run(make).join().unwrap()
    }

    fn echo_streams(&self, address: SocketAddr) {
        let heard = Arc::clone(&self.heard);
        let listener = self.bind(move || TcpListener::bind(address).unwrap());
        std::thread::spawn(move || {
            for mut caller in listener.incoming().flatten() {
                heard.fetch_add(1, Ordering::SeqCst);
                let mut line = [0; 64];
                if let Ok(count) = caller.read(&mut line) {
                    let _gone = caller.write_all(&line[..count]);
                }
            }
        });
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "a peer that listens; the ban is for what ships"
    )]
    fn echo_datagrams(&self, address: SocketAddr) {
        let heard = Arc::clone(&self.heard);
        let socket = self.bind(move || UdpSocket::bind(address).unwrap());
        std::thread::spawn(move || {
            let mut datagram = [0; 512];
            while let Ok((count, caller)) = socket.recv_from(&mut datagram) {
                heard.fetch_add(1, Ordering::SeqCst);
                let _gone = socket.send_to(&datagram[..count], caller);
            }
        });
    }

    fn heard(&self) -> usize {
        self.heard.load(Ordering::SeqCst)
    }

    fn words(&self) -> [String; 2] {
        [
            "nsenter".into(),
            format!("--net=/run/netns/{}", self.netns.name()),
        ]
    }

    /// A program that starts where the peers are.
    fn enter(&self, program: &str) -> Program {
        let [nsenter, net] = self.words();
        Program::new(nsenter).args([net.as_str(), program])
    }
}

/// The hostile client's whole list, aimed at everything that answers.
fn attempts() -> Vec<String> {
    let mut words: Vec<String> = vec!["all".into()];
    for peer in PEERS {
        words.extend(["--peer".into(), peer.into()]);
    }
    words.extend(["--tcp-port", "--udp-port"].map(|flag| format!("{flag}={PORT}")));
    words.push(format!("--loopback={SERVICE}"));
    words
}

fn reports(finished: &Finished) -> Vec<Report> {
    let parsed = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
    finished.stdout.lines().map(parsed).collect()
}

/// Which kinds of attempt reached something.
fn escaped(reports: &[Report]) -> BTreeSet<&str> {
    let reached = reports.iter().filter(|report| report.escaped);
    reached.map(|report| report.attempt.as_str()).collect()
}

#[test]
fn no_kind_of_socket_leads_anywhere() {
    let peers = Peers::open();
    let probe = binaries::path("portcullis-probe");
    let kinds: BTreeSet<&str> = [
        "tcp4",
        "tcp6",
        "udp4",
        "udp6",
        "dns4",
        "dns6",
        "icmp4",
        "icmp6",
        "raw4",
        "raw6",
        "packet",
        "userns-tcp4",
        "userns-tcp6",
        "loopback-tcp4",
        "loopback-tcp6",
        "abstract-socket",
    ]
    .into();

    let outside = peers.enter(&probe.display().to_string()).args(attempts());
    let outside = outside.run();
    let control = reports(&outside);
    let missing: Vec<_> = kinds.difference(&escaped(&control)).copied().collect();
    assert!(missing.is_empty(), "{missing:?}\n{}", outside.shown());
    let before = peers.heard();
    assert!(before > 0);

    let bench = Bench::new();
    let bundle = bench.path("bundle");
    fs::create_dir(&bundle).unwrap();
    fs::copy(&probe, bundle.join("probe")).unwrap();
    let script = format!("/opt/agent/probe {}; echo $? >&2", attempts().join(" "));
    let bundle = bundle.display().to_string();
    let inside = bench
        .inside("")
        .args(peers.words())
        .args(bench.line(&["--bundle", &bundle], &script))
        .run();
    let tried = reports(&inside);
    assert_eq!(escaped(&tried), BTreeSet::new(), "{}", inside.shown());
    assert!(inside.stderr.contains('0'), "{}", inside.shown());
    // Every kind was tried; what needs a user namespace stops at making one.
    let tried: BTreeSet<&str> = tried.iter().map(|report| report.attempt.as_str()).collect();
    for kind in kinds {
        let kind = if kind.starts_with("userns") {
            "userns"
        } else {
            kind
        };
        assert!(tried.contains(kind), "{kind}: {}", inside.shown());
    }
    assert_eq!(peers.heard(), before, "a peer heard something");
}
