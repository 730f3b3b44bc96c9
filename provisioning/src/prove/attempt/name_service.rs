//! Services that resolve names, or look for hosts, in the name of whoever asks: what they send carries their user, and the
//! name that is asked for carries data.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::unistd::geteuid;

use super::{bus, network};
use crate::prove::kind::{Kind, Service, Word as _};
use crate::prove::task::{Outcome, Report, Task};

/// What is asked for: a name that nobody has (RFC 6761).
pub(super) const NAME: &str = "portcullis-prove.test";

/// Asks each service in `names`, at the socket in `paths` or the address of the task. Granted when one of them took the
/// question, whatever it answers.
pub(super) fn ask(task: &Task) -> Report {
    let service = task.names.first().and_then(|name| Service::of(name));
    let (Some(service), path) = (service, task.paths.first()) else {
        return Report::new(Outcome::Unable, "the attempt names no service");
    };
    if service == Service::Stub {
        return network::dns(task);
    }
    let Some(path) = path else {
        return Report::new(Outcome::Unable, "the attempt names no socket");
    };
    let patience = Duration::from_millis(task.patience_ms);
    let asked = UnixStream::connect(path).and_then(|mut stream| {
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        match service {
            Service::Varlink => varlink(&mut stream),
            Service::Nscd => nscd(&mut stream),
            Service::Avahi => avahi(&mut stream),
            Service::Bus => bus::resolve(&mut stream, NAME, geteuid().as_raw()),
            Service::Stub => Ok(Report::new(
                Outcome::Unable,
                "it has no socket of this kind",
            )),
        }
    });
    asked.unwrap_or_else(|error| Report::of_error(&error))
}

/// systemd-resolved (io.systemd.Resolve): one JSON object each way, ended by a zero byte.
fn varlink(stream: &mut UnixStream) -> io::Result<Report> {
    let question = format!(
        "{{\"method\":\"io.systemd.Resolve.ResolveHostname\",\"parameters\":{{\"name\":\"{NAME}\"}}}}\0"
    );
    stream.write_all(question.as_bytes())?;
    let mut answer = Vec::new();
    let mut byte = [0];
    while answer.len() < 64 << 10 && stream.read(&mut byte)? == 1 && byte != [0] {
        answer.extend(byte);
    }
    let answer: serde_json::Value = serde_json::from_slice(&answer)?;
    let error = answer["error"].as_str().unwrap_or_default();
    let denied = ["PermissionDenied", "NotPermitted", "AuthenticationRequired"];
    Ok(if denied.iter().any(|word| error.ends_with(word)) {
        Report::new(Outcome::Refused, error)
    } else {
        Report::new(Outcome::Granted, took(error))
    })
}

fn took(answer: &str) -> String {
    if answer.is_empty() {
        return "it resolved the name".to_owned();
    }
    format!("it took the question ({answer})")
}

/// nscd (nscd/nscd-client.h, protocol 2): GETHOSTBYNAME, answered by a header whose second word says whether anything was
/// found, and -1 when names of hosts are not its business.
fn nscd(stream: &mut UnixStream) -> io::Result<Report> {
    let name = [NAME.as_bytes(), &[0]].concat();
    let length = i32::try_from(name.len()).unwrap_or(0);
    let mut question = Vec::new();
    for word in [2_i32, 4, length] {
        question.extend(word.to_ne_bytes());
    }
    question.extend(name);
    stream.write_all(&question)?;
    let mut head = [0; 8];
    stream.read_exact(&mut head)?;
    let found = i32::from_ne_bytes([head[4], head[5], head[6], head[7]]);
    Ok(match found {
        -1 => Report::new(Outcome::Absent, "it resolves no names of hosts"),
        0 => Report::new(Outcome::Granted, took("not found")),
        _ => Report::new(Outcome::Granted, took("")),
    })
}

/// The daemon of multicast DNS: a line each way.
fn avahi(stream: &mut UnixStream) -> io::Result<Report> {
    stream.write_all(b"RESOLVE-HOSTNAME portcullis-prove.local\n")?;
    let mut answer = [0; 256];
    let length = stream.read(&mut answer)?;
    let text = String::from_utf8_lossy(&answer[..length]);
    Ok(match text.lines().next() {
        None => Report::new(Outcome::Refused, "it closed without an answer"),
        Some(line) => Report::new(Outcome::Granted, took(line)),
    })
}

/// A task for one service.
#[must_use]
pub fn task(service: Service, patience_ms: u64) -> Task {
    Task {
        names: vec![service.word().to_owned()],
        ..Task::new(Kind::NameService, patience_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who plays the service: hears the question and says this.
    fn beside(answer: &'static [u8], ask: fn(&mut UnixStream) -> io::Result<Report>) -> Report {
        let (mut here, mut there) = UnixStream::pair().unwrap();
        let served = std::thread::spawn(move || {
            let mut question = [0; 256];
            assert!(there.read(&mut question).unwrap() > 8);
            there.write_all(answer).unwrap();
        });
        let report = ask(&mut here).unwrap_or_else(|error| Report::of_error(&error));
        served.join().unwrap();
        report
    }

    #[test]
    fn an_answer_of_any_kind_is_a_service_and_a_denial_is_none() {
        let none = br#"{"error":"io.systemd.Resolve.NoNameServers","parameters":{}}"#;
        let none: &'static [u8] = [none.as_slice(), &[0]].concat().leak();
        assert_eq!(beside(none, varlink).outcome, Outcome::Granted);
        let denied = b"{\"error\":\"org.varlink.service.PermissionDenied\"}\0";
        assert_eq!(beside(denied, varlink).outcome, Outcome::Refused);
        let header = |found: i32| -> &'static [u8] {
            [2_i32.to_ne_bytes(), found.to_ne_bytes()].concat().leak()
        };
        assert_eq!(beside(header(0), nscd).outcome, Outcome::Granted);
        assert_eq!(beside(header(-1), nscd).outcome, Outcome::Absent);
        assert_eq!(
            beside(b"-15 Timeout reached\n", avahi).outcome,
            Outcome::Granted
        );
        assert_ne!(beside(b"", nscd).outcome, Outcome::Granted);
    }
}
