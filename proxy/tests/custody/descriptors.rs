//! A gate without descriptors, group RES of the attack list.

#![allow(clippy::disallowed_methods, reason = "a client of the gate dials it")]

use std::io::{Read, Write};
use std::net::TcpStream;

use super::fixture::{DEADLINE, Fixture, eventually};

/// An agent's uid, which nothing else here uses.
const AGENT: u32 = 61_733;

/// A connection whose socket belongs to the agent.
fn connect(port: u16) -> TcpStream {
    std::thread::spawn(move || {
        // Of this thread alone; what it was before is root.
        nix::unistd::setfsuid(AGENT.into());
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream
    })
    .join()
    .unwrap()
}

fn is_served(mut stream: TcpStream) -> bool {
    let head = b"CONNECT api.example.com:443 HTTP/1.1\r\nHost: api.example.com:443\r\n\r\n";
    let mut answer = [0; 12];
    stream.write_all(head).is_ok()
        && stream.read_exact(&mut answer).is_ok()
        && &answer == b"HTTP/1.1 200"
}

/// Attack: RES-06
#[test]
fn a_gate_without_descriptors_accepts_again_once_there_are_some() {
    let port = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().port()
    };
    let mut fixture = Fixture::with(|text| {
        format!(
            "{text}[listen]\ntcp = \"127.0.0.1:{port}\"\n[[listen.identity]]\nuid = {AGENT}\n\
             agent = \"ci\"\ncompany = \"local\"\nprofile = \"default\"\n"
        )
    });
    fixture.start_by(&["prlimit", "--nofile=64:64"]);
    assert!(is_served(connect(port)), "control");
    let folder = format!("/proc/{}/fd", fixture.pid());
    let open = || std::fs::read_dir(&folder).unwrap().count();
    assert!(open() < 60, "control");
    let held: Vec<_> = (0..100).map(|_| connect(port)).collect();
    eventually("there is none left", || open() >= 64);
    // It lives, and what waits is served as soon as others leave.
    let waiting = connect(port);
    drop(held);
    assert!(is_served(waiting));
    assert!(is_served(connect(port)));
    assert_eq!(fixture.status()["audit"]["ok"], true);
    assert_eq!(fixture.status()["ready"], true);
    fixture.stop();
}
