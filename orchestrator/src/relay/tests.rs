use super::*;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};

fn spec() -> Spec {
    Spec {
        argv: vec!["sh".into(), "-c".into(), "echo \"a\nb\"; true".into()],
        env: vec![
            ("PROMPT".into(), "two\nlines = yes".into()),
            ("EMPTY".into(), String::new()),
        ],
        directory: "/work".into(),
    }
}

#[test]
fn a_spec_survives_newlines_and_empty_values() {
    let bytes = spec().encode().unwrap();
    assert_eq!(Spec::read(&mut bytes.as_slice()).unwrap(), spec());
}

#[test]
fn a_spec_that_cannot_be_carried_is_refused() {
    let mut nul = spec();
    nul.argv[1] = "a\0b".into();
    assert!(matches!(nul.encode(), Err(SpecError::Nul(_))));
    let mut name = spec();
    name.env[0].0 = "A=B".into();
    assert!(matches!(name.encode(), Err(SpecError::Name)));
    assert!(matches!(
        Spec {
            argv: vec![],
            ..spec()
        }
        .encode(),
        Err(SpecError::Empty)
    ));
    let bytes = spec().encode().unwrap();
    assert!(Spec::read(&mut &bytes[..bytes.len() - 1]).is_err());
}

#[test]
fn both_sides_of_the_control_agree() {
    let (mut engine, mut relay) = {
        let (a, b) = UnixStream::pair().unwrap();
        (Control(a), Control(b))
    };
    relay.say_started().unwrap();
    relay.say_ended(Ended::Signal(9)).unwrap();
    assert!(engine.hear_started().unwrap());
    assert_eq!(engine.hear_ended(), Some(Ended::Signal(9)));
    drop(relay);
    assert_eq!(engine.hear_ended(), None);
    assert_eq!(Ended::Signal(9).code(), 137);
}

#[allow(
    clippy::disallowed_methods,
    reason = "the client of the relay under test, on loopback"
)]
fn dial(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).unwrap()
}

#[test]
fn bytes_and_half_closes_are_carried_both_ways() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gate.sock");
    let gate = UnixListener::bind(&path).unwrap();
    let bound = listen("127.0.0.1:0".parse().unwrap(), &path).unwrap();
    let mut client = dial(bound[0]);
    client.write_all(b"ask").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let (mut peer, _) = gate.accept().unwrap();
    let mut heard = String::new();
    peer.read_to_string(&mut heard).unwrap();
    assert_eq!(heard, "ask");
    peer.write_all(b"answer after your end").unwrap();
    drop(peer);
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "answer after your end");
}

#[test]
fn a_gate_that_is_away_is_said_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let bound = listen("127.0.0.1:0".parse().unwrap(), &dir.path().join("none")).unwrap();
    let mut answer = String::new();
    dial(bound[0]).read_to_string(&mut answer).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 503 Portcullis gate is not answering"),
        "{answer}"
    );
}

#[test]
fn clients_that_neither_write_nor_read_take_slots_and_no_more() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    // Clients, relay and gate are all this process.
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gate.sock");
    let gate = UnixListener::bind(&path).unwrap();
    let (full, filled) = std::sync::mpsc::channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        let peers: Vec<_> = gate.incoming().take(CONNECTIONS).collect();
        full.send(()).unwrap();
        released.recv().unwrap();
        drop(peers);
        let (mut peer, _) = gate.accept().unwrap();
        peer.write_all(b"room").unwrap();
    });
    let bound = listen("127.0.0.1:0".parse().unwrap(), &path).unwrap();
    let silent: Vec<TcpStream> = (0..CONNECTIONS).map(|_| dial(bound[0])).collect();
    filled.recv().unwrap();
    let ask = || {
        let mut answer = String::new();
        dial(bound[0]).read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(ask().starts_with("HTTP/1.1 429 "));
    // The control: those that go make room for others.
    drop(silent);
    release.send(()).unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    loop {
        let answer = ask();
        if answer == "room" {
            break;
        }
        assert!(answer.starts_with("HTTP/1.1 429 "), "{answer}");
        assert!(
            std::time::Instant::now() < deadline,
            "no slot was given back"
        );
    }
}
