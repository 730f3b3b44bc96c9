//! A gate without descriptors, group RES of the attack list.

#![allow(clippy::disallowed_methods, reason = "a client of the gate dials it")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use super::fixture::{DEADLINE, Fixture, PROXY, USER, eventually, stderr};

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

/// The status line of what the gate says to a CONNECT.
fn said(stream: &mut TcpStream) -> String {
    let head = b"CONNECT api.example.com:443 HTTP/1.1\r\nHost: api.example.com:443\r\n\r\n";
    stream.write_all(head).unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(1) => answer.push(byte[0]),
            ended => panic!("{ended:?} behind {:?}", String::from_utf8_lossy(&answer)),
        }
    }
    String::from_utf8(answer).unwrap()
}

fn listening() -> (Fixture, u16) {
    let port = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().port()
    };
    let fixture = Fixture::with(|text| {
        format!(
            "{text}[listen]\ntcp = \"127.0.0.1:{port}\"\n[[listen.identity]]\nuid = {AGENT}\n\
             agent = \"ci\"\ncompany = \"local\"\nprofile = \"default\"\n\
             [limits]\nhandshake_timeout_seconds = 600\n"
        )
    });
    (fixture, port)
}

/// Attack: RES-06
#[test]
fn whoever_finds_no_descriptor_is_told_and_the_gate_goes_on() {
    let (mut fixture, port) = listening();
    fixture.start_by(&["prlimit", "--nofile=512:512"]);
    assert_eq!(fixture.status()["ready"], true, "control");
    let mut held: Vec<TcpStream> = Vec::new();
    let refused = loop {
        let mut stream = connect(port);
        let said = said(&mut stream);
        if !said.starts_with("HTTP/1.1 200") {
            break said;
        }
        held.push(stream);
        assert!(held.len() < 250, "not its bound of connections ends it");
    };
    assert!(held.len() > 50, "control: {} were served", held.len());
    assert!(refused.starts_with("HTTP/1.1 429 "), "{refused}");
    assert!(
        refused.contains("x-portcullis-code: limit_reached"),
        "{refused}"
    );
    assert!(refused.contains("Retry-After: "), "{refused}");
    // It can be asked, says so, and has it on record.
    let status = fixture.status();
    assert_eq!(status["ready"], false, "{status}");
    assert_eq!(status["descriptors"]["ok"], false, "{status}");
    assert_eq!(status["audit"]["ok"], true, "{status}");
    assert_eq!(status["boundary"]["ok"], true, "{status}");
    let told = said(&mut connect(port));
    assert!(
        told.starts_with("HTTP/1.1 429 "),
        "as often as asked: {told}"
    );
    // As soon as others leave, all is as it was.
    drop(held);
    eventually("it is ready again", || fixture.status()["ready"] == true);
    assert!(said(&mut connect(port)).starts_with("HTTP/1.1 200"));
    fixture.stop();
}

/// Attack: RES-06
#[test]
fn a_gate_that_could_not_keep_any_back_does_not_start() {
    let (fixture, _) = listening();
    let started = Command::new("prlimit")
        .args(["--nofile=128:128", PROXY, "run", "--user", USER, "--config"])
        .arg(fixture.config())
        .output()
        .unwrap();
    let talk = stderr(&started);
    assert_eq!(started.status.code(), Some(2), "{talk}");
    assert!(
        talk.contains("128 descriptors") && talk.contains("hint: "),
        "{talk}"
    );
}
